import { assertOptions, type Schema } from "../schema/schema.ts";
import { type Chance, type Policy, waits } from "./policy.ts";
import { next, type SpreadName, toPolicy } from "./spread.ts";

/** Options of the policy `sticky`. */
export interface StickyOptions {
  /**
   * The policy for requests without the cookie, and for those whose upstream gets no requests: a policy, such as
   * `consistentHash(byAddress)`, or the name of one.
   * @default "least_conn"
   */
  next?: SpreadName | Policy;
}

const schema: Schema<StickyOptions> = { next: { kind: next } };

/**
 * Keeps each client at the upstream that has answered it first, by a cookie that the proxy sets, for apps that keep
 * sessions in memory. The option `cookie` of `balance` sets the name and the secret of the cookie.
 *
 * While the client's upstream has `maxRequests`, the request waits; at most `maxQueue` requests wait for each upstream. If the
 * upstream is ejected, down or removed, or too many requests wait for it, the client gets another upstream, and the cookie of
 * that upstream.
 */
export function sticky(options: StickyOptions = {}): Policy {
  assertOptions(options, schema);
  return keepClients(toPolicy(options.next));
}

/** Returns the policy with the default options, for `balance`. */
export function stickyByName(chance: Chance): Policy {
  return keepClients(toPolicy("least_conn", chance));
}

function keepClients(other: Policy): Policy {
  return {
    keepsClient: () => true,
    isSticky: (request) => waits(other, request),
    pick: (able, request, group) => other.pick(able, request, group),
    observe: (member, latency) => other.observe?.(member, latency),
  };
}
