import { createProxy } from "#fetchway";
import { serve } from "../helpers/serve.ts";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const proxy = createProxy({ target, ...options });
  const { port, server } = await serve("node", proxy.nodeHandler);
  proxy.attach(server);
  return port;
});
