/**
 * A program for every runtime: it sends a request through each of several proxies, and prints each outcome.
 * test/runtimes/permissions.test.ts runs it without the permission to connect.
 */
import { createProxy, type CreateProxyOptions, createTransport as createOwn } from "#fetchway";
import { createTransport } from "../../runtimes/fetch.ts";

const target = "http://localhost:4000";
const cases: Record<string, CreateProxyOptions> = {
  address: { target: "http://127.0.0.1:4000" },
  name: { target },
  "own lookup": { target, pool: { dns: {} } },
  "lookup of each connection": { target, pool: { dns: false } },
  TLS: { target: "https://localhost:4000" },
  socket: { target: "unix:/tmp/no-such.sock" },
  fetch: { target, transport: createTransport() },
};
for (const [name, options] of Object.entries(cases)) {
  const proxy = createProxy(options);
  const { status, headers } = await proxy.fetch(new Request("http://a.test/"));
  console.log(`${name}: ${status} ${headers.get("proxy-status")}`);
  proxy.destroy();
}

// This method looks host names up for `balance` with the option `resolve`.
const resolved = createOwn().resolve?.("upstream.example");
await resolved?.catch((error: unknown) =>
  console.log(`lookup: ${(error as { code: string }).code}`),
);
