/** Run by Deno itself, with its global `fetch` in place of the proxy's own client. */
import { createProxy } from "#proxy";
import { exitWithParent, getEnv, serveDeno } from "../_serve.deno.ts";
import { announce } from "./_announce.ts";
import { createFetching, refusing } from "./_fetching.ts";

await announce(
  (setup) => serveDeno((createFetching(createProxy, setup) ?? refusing).fetch),
  getEnv,
  exitWithParent,
);
