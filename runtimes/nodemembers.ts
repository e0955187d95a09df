import type { ExplainingProxy, Proxy, WaitingProxy } from "../src/proxy.ts";
import type { NodeProxy } from "./node.ts";

type NodeMembers = Omit<NodeProxy, keyof Proxy | keyof ExplainingProxy | keyof WaitingProxy>;

const NAMES: readonly string[] = [
  "nodeHandler",
  "attach",
  "plugin",
  "upgrade",
] satisfies (keyof NodeMembers)[];

/**
 * Adds the members that only Node's proxies have: each throws when it is read. For code that runs on another runtime,
 * TypeScript may have chosen the types of the default entry, which have these members. If the members were missing,
 * `createServer(proxy.nodeHandler)` would make a server that never responds; if they threw only when called, the server would
 * fail with each request instead of at its start.
 *
 * The members are not enumerable, so that a spread of the proxy does not read them.
 * @param more the names of further members that the proxy lacks
 */
export function refuseNodeMembers<Members extends object>(
  members: Members,
  ...more: readonly string[]
): Members & NodeMembers {
  for (const name of [...NAMES, ...more]) {
    const get = (): never => {
      throw new TypeError(
        `fetchway: this entry's proxies have no ${name}: write import { createProxy } from "fetchway/node"`,
      );
    };
    Object.defineProperty(members, name, { get });
  }
  return members as Members & NodeMembers;
}
