/** A host on `node:http` with the entry `fetchway/undici`. */
import { createProxy } from "../../runtimes/undici.ts";
import { serve } from "../helpers/serve.ts";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const proxy = createProxy({ target, ...options });
  const { port, server } = await serve("node", proxy.nodeHandler);
  proxy.attach(server);
  return port;
});
