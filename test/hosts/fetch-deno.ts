/** A host on Deno, with its global `fetch` in place of Fetchway's own HTTP client. */
import { createProxy } from "#fetchway";
import { exitWithParent, getEnv, serveDeno } from "../helpers/serve.deno.ts";
import { announce } from "./_announce.ts";
import { createFetching, refusing } from "./_fetching.ts";

await announce(
  (setup) => serveDeno((createFetching(createProxy, setup) ?? refusing).fetch),
  getEnv,
  exitWithParent,
);
