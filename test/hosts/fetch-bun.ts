/** A host on Bun, with its global `fetch` in place of Fetchway's own HTTP client. */
import { createProxy } from "#fetchway";
import { exitWithParent, getEnv, serveBun } from "../helpers/serve.bun.ts";
import { announce } from "./_announce.ts";
import { createFetching, refusing } from "./_fetching.ts";

await announce(
  (setup) => serveBun(createFetching(createProxy, setup) ?? refusing),
  getEnv,
  exitWithParent,
);
