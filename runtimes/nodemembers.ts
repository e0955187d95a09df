import type { ExplainingProxy, Proxy, WaitingProxy } from "../src/proxy.ts";
import type { NodeProxy } from "./node.ts";

/** Throws, in place of a member that only proxies of the entry for Node have. */
export function refuse(): never {
  throw new TypeError(
    "fetchway: this member of Node's proxies (nodeHandler, attach, plugin, upgrade, explain, moveWaiting) needs their entry: import " +
      'createProxy from "fetchway/node"',
  );
}

/**
 * Returns members that throw, in place of those that only Node's proxies have. For code that runs on another runtime,
 * TypeScript may have chosen the types of the default entry, which have these members. If the members were missing,
 * `createServer(proxy.nodeHandler)` would make a server that never responds.
 */
export function refuseNodeMembers(): Omit<
  NodeProxy,
  keyof Proxy | keyof ExplainingProxy | keyof WaitingProxy
> {
  return { nodeHandler: refuse, attach: refuse, plugin: refuse, upgrade: refuse };
}
