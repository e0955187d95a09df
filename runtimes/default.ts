/**
 * The entry of `fetchway` for runtimes that no export condition names. It is `fetchway/fetch` with the types of Node's proxies.
 *
 * With `"moduleResolution": "bundler"` and `"module": "preserve"`, TypeScript sets no condition of a runtime, so it also takes
 * the types of this entry for code that runs on Node.
 * @module
 */
import type { CreateProxy, ExplainingProxy, Proxy, WaitingProxy } from "../src/proxy.ts";
import { createProxy as createFetchProxy } from "./fetch.ts";
import type { NodeProxy } from "./node.ts";
import { refuseNodeMembers } from "./nodemembers.ts";

export * from "./fetch.ts";
export type {
  AttachOptions,
  NodeHandler,
  NodeProxy,
  RequestTrace,
  SrvxServer,
  UpgradeListener,
} from "./node.ts";

/**
 * Creates a proxy that compiles its options once. The members `explain` and `moveWaiting`, and those that only Node's proxies
 * have, throw a `TypeError` when they are read. `fetchway/bun` and `fetchway/workerd` have the types of these runtimes.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "https://api.example" });
 */
export const createProxy: CreateProxy<NodeProxy> = (options) =>
  refuseNodeMembers(
    createFetchProxy(options) as Proxy & ExplainingProxy & WaitingProxy,
    "explain",
    "moveWaiting",
  );
