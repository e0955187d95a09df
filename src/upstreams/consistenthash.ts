import { getHeader } from "../fields/headers.ts";
import { either, off, toggle } from "../schema/kinds.ts";
import { assertOptions, type Schema } from "../schema/schema.ts";
import { type Group, type Member, type Policy, waits } from "./policy.ts";
import { readCookies } from "./requestcookies.ts";
import { next, type SpreadName, toPolicy } from "./spread.ts";
import type { PickRequest } from "./upstreams.ts";

/**
 * The number of entries in the lookup table. It is a prime number, and more than a hundred times the usual number of
 * upstreams (Maglev).
 */
const TABLE_SIZE = 65_537;
/** How many times the average load an upstream may have before further requests go to others. */
const BOUND = 1.25;
/** The maximum number of entries that are looked up. After that, the upstream with the fewest requests is picked. */
const MAX_JUMPS = 32;

/**
 * Returns the key of a request: requests with the same key go to the same upstream. Returns `""` for a request without a
 * key.
 */
export type HashKey = (request: PickRequest) => string;

/**
 * The key of a client: the IP address of its connection. Behind another proxy, all clients have the same key; use
 * `byHeader` or `byCookie` there.
 */
export const byAddress: HashKey = ({ clientAddress }): string => clientAddress ?? "";
/** The key of a resource: the path and query. */
export const byUri: HashKey = ({ path }): string => path;

/** Returns a `HashKey` for which the key is the value of a header field. */
export function byHeader(name: string): HashKey {
  return ({ headers }) => getHeader(headers, name) ?? "";
}

/** Returns a `HashKey` for which the key is the value of a cookie. */
export function byCookie(name: string): HashKey {
  return ({ headers }) => readCookies(headers, name)[0] ?? "";
}

/** How strictly requests with the same key go to the same upstream. */
export interface HashOptions {
  /**
   * Whether a request goes to the upstream of its key even if that upstream has many requests, for upstreams that keep
   * sessions in memory. While the upstream has `maxRequests`, the request waits; at most `maxQueue` requests wait for each
   * upstream. One popular key can then overload an upstream. A request still goes to another upstream if its own is ejected,
   * down or removed, or if too many requests wait for it.
   *
   * A client that sends a request without a key stays with the upstream that answers it, by the same cookie as with the
   * policy `sticky`. Otherwise, the key that the app then gives the client would in most cases lead to another upstream.
   * @default false
   */
  sticky?: boolean;
  /**
   * The policy for requests without a key, or the name of a policy. With `false`, all requests without a key go to the same
   * upstream, as if they had the same key, and no cookie is set.
   * @default "least_conn"
   */
  next?: SpreadName | Policy | false;
}

const hashSchema: Schema<HashOptions> = {
  sticky: { kind: toggle },
  next: { kind: either(`${next.check(undefined)}, or false`, off, next) },
};

/**
 * Sends requests with the same key to the same upstream. If upstreams are added or removed, few keys move to another
 * upstream. Without `sticky`, an upstream with more than 1.25 times the average load is skipped: the lookup continues at a
 * pseudo-random entry instead of the next one, so that no single neighbour takes all of its load.
 * @see https://research.google/pubs/maglev-a-fast-and-reliable-software-network-load-balancer/
 * @see https://arxiv.org/abs/1908.08762
 */
export function consistentHash(keyOf: HashKey, options: HashOptions = {}): Policy {
  assertOptions(options, hashSchema);
  const { sticky = false } = options;
  const other = options.next === false ? undefined : toPolicy(options.next);
  // Several balanced targets may share this policy, so keep a lookup for each.
  const lookups = new WeakMap<Group, Lookup>();
  const mayKeep = other !== undefined && (sticky || other.keepsClient !== undefined);
  return {
    ...(mayKeep && {
      keepsClient: (request) =>
        keyOf(request) === "" && (sticky || other.keepsClient?.(request) === true),
    }),
    isSticky(request) {
      return other === undefined || keyOf(request) !== "" ? sticky : waits(other, request);
    },
    observe: (member, latency) => other?.observe?.(member, latency),
    pick(members, request, group) {
      const key = keyOf(request);
      if (key === "" && other !== undefined) return other.pick(members, request, group);
      let lookup = lookups.get(group);
      if (lookup === undefined) lookups.set(group, (lookup = new Lookup()));
      lookup.update(members, group);
      const { table, total } = lookup;
      for (let jump = 0; jump < MAX_JUMPS; jump++) {
        const place = hash(key, jump) % TABLE_SIZE;
        const member = group.members[table[place] as number] as Member;
        if (!lookup.has(members, member)) continue;
        if (sticky || !isOverloaded(member, group.active, total)) return member;
      }
      return members.reduce((least, each) => (each.active < least.active ? each : least));
    },
  };
}

/** The values that are computed once for many picks among the upstreams of one target. */
class Lookup {
  table: Int32Array = new Int32Array(0);
  /** The total weight of the upstreams that can take requests. */
  total = 0;
  #version: number | undefined;
  /** The list for which `#able` and `total` were computed. */
  #list: readonly Member[] | undefined;
  #able: ReadonlySet<Member> = new Set();
  /** The last list that was passed, if its values were not computed; see `update`. */
  #other: readonly Member[] | undefined;

  /** Updates the values for the upstreams from which a pick may choose. */
  update(members: readonly Member[], group: Group): void {
    const isChanged = this.#version !== group.version;
    if (isChanged) {
      this.table = buildTable(group.members);
      this.#version = group.version;
    }
    if (this.#list === members) return;
    // Unless the upstreams have changed, compute the values of a list only when it is passed a second time. A list from which
    // tried upstreams were left out is passed only once.
    if (!isChanged && this.#other !== members) {
      this.#other = members;
      return;
    }
    this.#list = members;
    this.#other = undefined;
    this.#able = new Set(members);
    this.total = members.reduce((sum, { weight }) => sum + weight, 0);
  }

  /** Whether an upstream is in the list of the present pick. */
  has(members: readonly Member[], member: Member): boolean {
    return this.#list === members ? this.#able.has(member) : members.includes(member);
  }
}

/** @param total the total weight of the upstreams that can take requests; the others carry no load */
function isOverloaded({ active, weight }: Member, all: number, total: number): boolean {
  return active >= Math.ceil(BOUND * (all + 1) * (weight / total));
}

/**
 * Fills the table: the upstreams take entries in turn, each in its own order. A higher weight gives an upstream more turns.
 */
function buildTable(members: readonly Member[]): Int32Array {
  const table = new Int32Array(TABLE_SIZE).fill(-1);
  const most = members.reduce((highest, { share }) => Math.max(highest, share), 0);
  const orders = members.map(({ name, share }) => ({
    at: hash(name, 1) % TABLE_SIZE,
    step: (hash(name, 2) % (TABLE_SIZE - 1)) + 1,
    share: share / most,
    due: 0,
  }));
  for (let filled = 0; ;) {
    for (const [index, order] of orders.entries()) {
      order.due += order.share;
      if (order.due < 1) continue;
      order.due -= 1;
      while (table[order.at] !== -1) order.at = (order.at + order.step) % TABLE_SIZE;
      table[order.at] = index;
      if (++filled === TABLE_SIZE) return table;
    }
  }
}

/** Returns a hash of 32 bits: FNV-1a, with its bits mixed so that the hashes of similar texts differ in about half of them. */
export function hash(text: string, seed: number): number {
  let value = 0x811c9dc5 ^ Math.imul(seed + 1, 0x9e3779b1);
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  }
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}
