/** `node:http` with undici in place of the proxy's own client. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProxy } from "#proxy";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const transport = createUndiciTransport();
  const server = createServer(createProxy({ target, transport, ...options }).nodeHandler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
});
