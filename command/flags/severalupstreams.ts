/**
 * The options of a route, above all several upstreams. They stay plain data until the route is opened, so that a reloaded
 * config file can be compared with the running routes.
 */
import { readFileSync } from "node:fs";
import type { CreateProxyOptions, TargetAddress } from "#fetchway";
import { mirrorTo } from "#fetchway/mirror";
import {
  choice,
  proxySchema,
  quoteInput,
  text,
  toggle,
  type Kind,
  type Schema,
  type Table,
} from "#fetchway/options";
import { parseTarget } from "#fetchway/transport";
import {
  balance,
  type BalancedTarget,
  type BalanceOptions,
  type PolicyName,
} from "#fetchway/upstreams";
import type { Flags } from "./flagtable.ts";
import { type MirrorOption, routeMirrorSchema } from "./mirrorflags.ts";
import { UsageError } from "./read.ts";
import { addStreamInterceptors, streamSchema, type StreamSettings } from "./streamflags.ts";

/** Several upstreams, each with an optional weight. */
export type TargetList = readonly (TargetAddress | BalancedTarget)[];

/**
 * The options of a route: those of a proxy, those for streams, a mirror as data, and a target that may be several upstreams.
 */
export interface RouteOptions
  extends Omit<CreateProxyOptions, "mirror" | "target">, MirrorOption, StreamSettings {
  target: CreateProxyOptions["target"] | TargetList;
  /**
   * How requests are spread over several upstreams. With a single URL, the options for failures and health checks apply to
   * it.
   */
  balance?: BalanceOptions;
}

/** The options of a route, without its target and the options of its connections and of `balance`. */
export const routeSchema: Table = { ...proxySchema, ...routeMirrorSchema, ...streamSchema };

/** The options of `balance` that have flags. */
export interface BalanceFlags {
  policy?: PolicyName;
  /** The file with the secret of the cookies. */
  stickySecret?: string;
  check?: string;
  resolve?: boolean;
}

const policies = [
  "least_conn",
  "peak_ewma",
  "round_robin",
  "ip_hash",
  "uri",
  "first",
  "sticky",
] as const satisfies readonly PolicyName[];
const policy: Kind<PolicyName> = choice(...policies);

export const balanceSchema: Schema<BalanceFlags> = {
  policy: { kind: policy },
  stickySecret: { kind: text(/./, 'use a file such as "secret.txt"') },
  check: { kind: text(/^\/[!-~]*$/, 'use a path such as "/health"') },
  resolve: { kind: toggle },
};

export const balanceFlags: Flags<BalanceFlags> = {
  heading: "Several upstreams",
  flags: {
    policy: { value: "<name>", help: policies.join("|") },
    stickySecret: { value: "<file>", help: "the secret of the cookies of --policy sticky" },
    check: { value: "</path>", help: "request this path from each upstream every 10 s" },
    resolve: "use each address of a name as an upstream",
  },
};

/**
 * Returns the options of `balance` that flags have set.
 * @throws UsageError if the file of the secret cannot be used
 */
export function readBalanceFlags({ check, stickySecret, ...rest }: BalanceFlags): BalanceOptions {
  return {
    ...rest,
    ...(check !== undefined && { check: { path: check } }),
    ...(stickySecret !== undefined && { cookie: { secret: readSecret(stickySecret) } }),
  };
}

function readSecret(path: string): string {
  const label = `--sticky-secret ${quoteInput(path)}`;
  let secret: string;
  try {
    secret = readFileSync(path, "utf8").trim();
  } catch (error) {
    throw new UsageError(`${label} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
  if (secret.length >= 32) return secret;
  throw new UsageError(`${label}: the file needs at least 32 random characters`);
}

/** Whether a policy keeps clients at their upstream by a cookie. */
export function policyKeepsClients(given: BalanceOptions["policy"]): boolean {
  return typeof given === "object" ? given.keepsClient !== undefined : given === "sticky";
}

/** Whether a target is a list of upstreams. */
export function isTargetList(target: RouteOptions["target"]): target is TargetList {
  return Array.isArray(target);
}

/** Whether `balance` can apply to a target. It applies to several upstreams, and to a single one that has an address. */
export function isBalanceable(
  target: RouteOptions["target"],
): target is TargetList | TargetAddress {
  if (isTargetList(target) || typeof target === "string" || target instanceof URL) return true;
  return typeof target === "object" && "url" in target && !("fetch" in target);
}

/**
 * Returns the options for `createProxy`.
 * @throws TypeError for wrong upstreams, and for wrong options of `balance`, for streams or for a mirror
 */
export function toProxyOptions(options: RouteOptions): CreateProxyOptions {
  const { target, balance: spread, mirror, firstByteTimeout, heartbeat, ...others } = options;
  const rest: Omit<CreateProxyOptions, "target"> = others;
  if (mirror !== undefined) rest.mirror = mirrorTo(mirror);
  if (firstByteTimeout !== undefined || heartbeat !== undefined) {
    rest.interceptors = addStreamInterceptors(rest.interceptors, firstByteTimeout, heartbeat);
  }
  if (isTargetList(target)) return { ...rest, target: balance(target, spread) };
  if (spread === undefined || !isBalanceable(target)) return { ...rest, target };
  return { ...rest, target: balance([target], spread) };
}

/** Names the upstreams of a target in messages; undefined for a target that is not a list. */
export function nameUpstreams(
  target: RouteOptions["target"],
  show: (each: TargetAddress) => string,
): string | undefined {
  return isTargetList(target) ? listAddresses(target).map(show).join(", ") : undefined;
}

/** Returns the addresses of a target; none for a target that is a function or an app. */
export function listAddresses(target: RouteOptions["target"]): readonly TargetAddress[] {
  if (isTargetList(target)) return target.map((each) => (isWeighted(each) ? each.target : each));
  return isBalanceable(target) ? [target] : [];
}

/** Names one upstream by its origin, or its Unix domain socket. */
export function nameAddress(target: TargetAddress): string {
  const { origin, socketPath } = parseTarget(target);
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

function isWeighted(each: TargetAddress | BalancedTarget): each is BalancedTarget {
  return typeof each === "object" && "target" in each;
}
