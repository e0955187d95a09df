import { createProxy } from "#proxy";
import { serve } from "../_serve.ts";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const { nodeHandler } = createProxy({ target, ...options });
  return (await serve("node", nodeHandler)).port;
});
