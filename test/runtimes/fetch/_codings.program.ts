/**
 * A program for every runtime: it gets encoded responses through the runtime's `fetch`, which decodes some of them, and prints
 * the content coding and the body that the client gets. Arguments: the upstream's origin, and the codings.
 */
import { Buffer } from "node:buffer";
import process from "node:process";
import { type CreateProxyOptions, createProxy } from "#fetchway";
import { createTransport } from "../../../runtimes/fetch.ts";

const [origin = "", ...codings] = process.argv.slice(2);
const transport = createTransport();
const app = { fetch: ({ url }: Request) => fetch(origin + new URL(url).pathname) };

const ways: Record<string, [CreateProxyOptions, Record<string, string>]> = {
  "the fetch of the runtime": [{ target: origin, transport }, {}],
  "the fetch of the runtime, and the request has Range": [
    { target: origin, transport, headers: { "Accept-Encoding": "gzip" } },
    { Range: "bytes=0-" },
  ],
  "an app in this process": [{ target: app }, { "Accept-Encoding": "identity" }],
  "an app in this process, beside the fetch of the runtime": [{ target: app, transport }, {}],
};

for (const [way, [options, headers]] of Object.entries(ways)) {
  const proxy = createProxy(options);
  for (const coding of codings) {
    const url = `http://a.test/${encodeURIComponent(coding)}`;
    const response = await proxy.fetch(new Request(url, { headers }));
    const kept = response.headers.get("content-encoding");
    const body = Buffer.from(await response.arrayBuffer()).toString("base64");
    console.log(JSON.stringify({ way, coding, status: response.status, kept, body }));
  }
}
process.exit(0);
