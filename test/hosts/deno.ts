/** Run by Deno itself: nothing of Node's here. */
import { createProxy } from "#proxy";
import { exitWithParent, getEnv, serveDeno } from "../_serve.deno.ts";
import { announce } from "./_announce.ts";

await announce(
  ({ target, options }) => serveDeno(createProxy({ target, ...options }).fetch),
  getEnv,
  exitWithParent,
);
