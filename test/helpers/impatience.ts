/** Shorter time limits for tests that are expected to fail. Only Node imports this file. */
import { AsyncLocalStorage } from "node:async_hooks";
import { shortenTo } from "./wait.ts";

const limits = new AsyncLocalStorage<number>();
shortenTo(() => limits.getStore() ?? Infinity);

/** Calls `run`, and shortens all longer time limits in it to `limit`, in milliseconds. */
export function impatiently<T>(limit: number, run: () => Promise<T>): Promise<T> {
  return limits.run(limit, run);
}
