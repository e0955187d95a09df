import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProxy } from "#proxy";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const server = createServer(createProxy({ target, ...options }).nodeHandler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
});
