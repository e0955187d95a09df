/** A host on Bun. It uses no modules of Node. */
import { createProxy } from "#fetchway";
import { exitWithParent, getEnv, serveBun } from "../helpers/serve.bun.ts";
import { announce } from "./_announce.ts";

await announce(
  ({ target, options }) => serveBun(createProxy({ target, ...options })),
  getEnv,
  exitWithParent,
);
