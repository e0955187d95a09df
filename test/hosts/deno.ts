/** A host on Deno. It uses no modules of Node. */
import { createProxy } from "#fetchway";
import { exitWithParent, getEnv, serveDeno } from "../helpers/serve.deno.ts";
import { announce } from "./_announce.ts";

await announce(
  ({ target, options }) => serveDeno(createProxy({ target, ...options }).fetch),
  getEnv,
  exitWithParent,
);
