/** A host on `node:http`, with the global `fetch` in place of Fetchway's own HTTP client. */
import type { RequestListener } from "node:http";
import { createProxy } from "#fetchway";
import { serve } from "../helpers/serve.ts";
import { announce } from "./_announce.ts";
import { createFetching } from "./_fetching.ts";

await announce(async (setup) => {
  const proxy = createFetching(createProxy, setup);
  const handler: RequestListener =
    proxy?.nodeHandler ?? ((_, res) => void res.writeHead(500).end());
  const { port, server } = await serve("node", handler);
  proxy?.attach(server);
  return port;
});
