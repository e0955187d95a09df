import { badOption } from "../misuse.ts";
import {
  callback,
  either,
  fields,
  limitFrom,
  milliseconds,
  millisecondsFrom,
  object,
  off,
  record,
  text,
  toggle,
  whole,
} from "../schema/kinds.ts";
import { assertOptions, isRecord, type Kind, type Schema } from "../schema/schema.ts";
import type { TargetAddress } from "../target/target.ts";
import { byAddress, byUri, consistentHash } from "./consistenthash.ts";
import type { CheckOptions } from "./healthchecks.ts";
import type { ResolveOptions } from "./hostnames.ts";
import type { OutlierOptions } from "./outliers.ts";
import type { Chance, Policy } from "./policy.ts";
import type { RetryBudgetOptions } from "./retrybudget.ts";
import { isPolicy, SPREADS, type SpreadName } from "./spread.ts";
import { stickyByName } from "./sticky.ts";
import type { CookieOptions } from "./stickycookie.ts";
import type { StateChange } from "./upstreams.ts";

/** An upstream with its weight. */
export interface BalancedTarget {
  /** The upstream. */
  target: TargetAddress;
  /**
   * The upstream's share of the requests, relative to the weights of the other upstreams.
   * @default 1
   */
  weight?: number;
}

/** The names of the policies. */
export type PolicyName = SpreadName | "ip_hash" | "uri" | "sticky";

/** How requests are spread over upstreams. */
export interface BalanceOptions {
  /**
   * Which upstream gets a request:
   *
   * - `"least_conn"`: the one of two random upstreams that has fewer requests.
   * - `"peak_ewma"`: the one of two random upstreams for which latency times requests is lower; it avoids slow upstreams.
   * - `"round_robin"`: the upstreams in turn.
   * - `"ip_hash"`, `"uri"`: the same one for the same client address, or for the same path and query.
   * - `"first"`: the first one that works; the others are standbys.
   * - `"sticky"`: the one that has answered the client before; a cookie of the proxy identifies it.
   * - a `Policy`, such as `consistentHash(byHeader("x-user"))` or `sticky({ next: "round_robin" })`.
   * @default "least_conn"
   * @example consistentHash(byHeader("x-user"))
   */
  policy?: PolicyName | Policy;
  /**
   * The cookie of the policy `"sticky"`, and of `consistentHash` with its option `sticky`. Unless `secret` is set, the cookie
   * is not valid after a restart or in another process.
   * @example { name: "route", secret: process.env.STICKY_SECRET }
   */
  cookie?: CookieOptions;
  /**
   * When an upstream that fails is ejected, so that it gets no requests for a while; `false` to eject no upstream.
   * @example { consecutiveFailures: 3, ejectionTime: 10_000 }
   */
  outliers?: OutlierOptions | false;
  /**
   * Active health checks. None by default.
   * @example { path: "/health", status: 204 }
   */
  check?: CheckOptions;
  /**
   * Milliseconds in which the share of an upstream that was added later, or that gets requests again, grows from a tenth to
   * its full share.
   * @default 10000
   */
  slowStart?: number;
  /** The maximum number of requests that an upstream gets at the same time; further requests wait. No limit by default. */
  maxRequests?: number;
  /**
   * The maximum number of requests that wait for each working upstream while all of them have `maxRequests`; further
   * requests get 503. With three upstreams, three times as many wait, in one queue: each request goes to the first upstream
   * that has a free place.
   *
   * The addresses of clients take turns. If the queue is full, the newest request of the address with the most waiting
   * requests gets 503, not a request of an address with fewer.
   * @default 100
   */
  maxQueue?: number;
  /**
   * Milliseconds that a request waits before it gets 503; with `0`, it waits until `timeout` ends it.
   * @default 10000
   */
  queueTimeout?: number;
  /**
   * The bytes a second that a client must take of a response, or send of a body, while requests of other addresses wait;
   * `0` for no limit. The option does the same as `minRate` of `pool`, but for the places that `maxRequests` limits. It
   * works only with Fetchway's own connections.
   * @default 240
   */
  minRate?: number;
  /**
   * Milliseconds for which a client may be slower than `minRate`.
   * @default 5000
   */
  minRateGrace?: number;
  /**
   * Whether each address of a host name is a separate upstream, for example with a headless service of Kubernetes. The names
   * are looked up at an interval: a new address is added as with `add`, and a missing one is removed as with `remove`. The
   * requests to all of these upstreams have the name in `Host` and in TLS. A lookup that fails changes nothing.
   *
   * By default, a name is one upstream, whose connections are spread over the addresses, and which is ejected as a whole.
   * Workers, and transports without the method `resolve`, refuse the option.
   * @default false
   * @example { interval: 5000 }
   */
  resolve?: boolean | ResolveOptions;
  /**
   * How many retries are allowed, so that they do not multiply the load during an outage.
   * @example { ratio: 0.1, perSecond: 5 }
   */
  retryBudget?: RetryBudgetOptions;
  /**
   * Called when an upstream is ejected, when active checks find it down, and when it gets requests again. It is not called
   * for upstreams that are added or removed.
   * @example ({ name, state, reason }) => console.warn(name, state, reason)
   */
  onStateChange?: (change: StateChange) => void;
}

export const POLICIES: Readonly<Record<PolicyName, (chance: Chance) => Policy>> = {
  ...SPREADS,
  ip_hash: () => consistentHash(byAddress),
  uri: () => consistentHash(byUri),
  sticky: stickyByName,
};

/** A number in a range, both ends included. */
function between(min: number, max: number): Kind<number> {
  return object(
    (value) => typeof value === "number" && value >= min && value <= max,
    `use a number from ${min}${max === Infinity ? "" : ` to ${max}`}`,
  );
}

const count: Kind<number> = whole(1, "use a whole number from 1");
const duration: Kind<number> = millisecondsFrom(1, "use whole milliseconds from 1");

const outlierSchema: Schema<OutlierOptions> = {
  consecutiveFailures: { kind: limitFrom(1) },
  interval: { kind: duration },
  ejectionTime: { kind: duration },
  maxEjectionTime: { kind: duration },
  maxEjected: { kind: between(0, 1) },
};

const checkSchema: Schema<CheckOptions> = {
  path: { kind: text(/^\/[!-~]*$/, 'use a path such as "/health"') },
  interval: { kind: duration },
  timeout: { kind: duration },
  status: {
    kind: either(
      "use a status from 100 to 599, or a function of it",
      whole(100, "", 599),
      callback,
    ),
  },
  body: { kind: text(/[^]/, "use a text that is not empty") },
  headers: { kind: fields },
  healthyThreshold: { kind: count },
  unhealthyThreshold: { kind: count },
};

const resolveSchema: Schema<ResolveOptions> = { interval: { kind: duration } };

const budgetSchema: Schema<RetryBudgetOptions> = {
  ratio: { kind: between(0, Infinity) },
  perSecond: { kind: between(0, Infinity) },
};

const cookieSchema: Schema<CookieOptions> = {
  name: { kind: text(/^[\w!#$%&'*+.^`|~-]+$/, 'use the name of a cookie, such as "route"') },
  secret: { kind: text(/^.{32,}$/s, "use at least 32 random characters") },
  onSecretMade: { kind: callback },
};

/** The options of `balance` as data. */
export const upstreamSchema: Schema<BalanceOptions> = {
  policy: {
    kind: object(
      (value) => (typeof value === "string" ? Object.hasOwn(POLICIES, value) : isPolicy(value)),
      `use ${Object.keys(POLICIES).join(", ")}, or an object with a method pick`,
    ),
  },
  cookie: { kind: record(cookieSchema, 'use an object such as { secret: "…" }') },
  outliers: {
    kind: either(
      "use false, or an object such as { consecutiveFailures: 5 }",
      off,
      record(outlierSchema),
    ),
  },
  check: { kind: record(checkSchema, 'use an object such as { path: "/health" }') },
  slowStart: { kind: milliseconds },
  maxRequests: { kind: limitFrom(1) },
  maxQueue: { kind: limitFrom(0) },
  queueTimeout: { kind: milliseconds },
  minRate: { kind: whole(0, "use a whole number from 0; 0 sets no limit") },
  minRateGrace: { kind: duration },
  resolve: {
    kind: either(
      "use true, or an object such as { interval: 10000 }",
      toggle,
      record(resolveSchema),
    ),
  },
  retryBudget: {
    kind: record(budgetSchema, "use an object such as { ratio: 0.2, perSecond: 10 }"),
  },
  onStateChange: { kind: callback },
};

/**
 * Checks the options of `balance`.
 * @throws TypeError that names the option and the fix
 */
export function checkBalanceOptions(options: BalanceOptions): void {
  const given: unknown = options;
  if (!isRecord(given)) {
    throw badOption("balance", 'its options must be an object such as { policy: "first" }');
  }
  assertOptions(given, upstreamSchema);
  if (options.check !== undefined && !("path" in options.check)) {
    throw badOption("check", 'path: set it, such as { path: "/health" }');
  }
}
