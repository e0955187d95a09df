/** A host on `node:http`, with undici in place of Fetchway's own HTTP client. */
import { createProxy } from "#fetchway";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { serve } from "../_serve.ts";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const transport = createUndiciTransport();
  const proxy = createProxy({ target, transport, ...options });
  const { port, server } = await serve("node", proxy.nodeHandler);
  proxy.attach(server);
  return port;
});
