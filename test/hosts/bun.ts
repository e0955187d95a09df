/** Run by Bun itself: nothing of Node's here. */
import { createProxy } from "#proxy";
import { exitWithParent, getEnv, serveBun } from "../_serve.bun.ts";
import { announce } from "./_announce.ts";

await announce(
  ({ target, options }) => serveBun(createProxy({ target, ...options })),
  getEnv,
  exitWithParent,
);
