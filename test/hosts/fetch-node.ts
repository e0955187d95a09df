/** `node:http` with the global `fetch` in place of the proxy's own client. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProxy } from "#proxy";
import { announce } from "./_announce.ts";
import { createFetching } from "./_fetching.ts";

await announce(async (setup) => {
  const proxy = createFetching(createProxy, setup);
  const server = createServer(proxy?.nodeHandler ?? ((_, res) => void res.writeHead(500).end()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
});
