/**
 * A program for every runtime: it sends a request to a host name that only an HTTP proxy could resolve, first through
 * Fetchway's own client, then through `fetch`.
 */
import process from "node:process";
import { createProxy, createTransport as createOwn } from "#fetchway";
import { createTransport as createFetch } from "../../../runtimes/fetch.ts";

for (const transport of [createOwn(), createFetch()]) {
  const proxy = createProxy({ target: "http://upstream.invalid", transport, log: false });
  const response = await proxy.fetch(new Request("http://a.test/"));
  console.log(`${response.status} ${await response.text()}`.trim());
  proxy.destroy();
}
process.exit(0);
