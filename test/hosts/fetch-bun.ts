/** Run by Bun itself, with its global `fetch` in place of the proxy's own client. */
import { createProxy } from "#proxy";
import { exitWithParent, getEnv, serveBun } from "../_serve.bun.ts";
import { announce } from "./_announce.ts";
import { createFetching, refusing } from "./_fetching.ts";

await announce(
  (setup) => serveBun(createFetching(createProxy, setup) ?? refusing),
  getEnv,
  exitWithParent,
);
