/**
 * The types of the command's config file: `fetchway/config`. Importing it loads no code of the proxy, so a config file loads
 * quickly.
 * @module
 */
import type { CreateProxyOptions } from "#fetchway";
import type { BalanceOptions } from "#fetchway/upstreams";
import type { ServerOptions } from "./flags/commandoptions.ts";
import type { Duration, Size } from "./flags/duration.ts";
import type { RouteOptions, TargetList } from "./flags/severalupstreams.ts";
import type { RouteCondition } from "./serve/routecondition.ts";

export type { CreateProxyOptions } from "#fetchway";
export type { BalancedTarget, BalanceOptions } from "#fetchway/upstreams";
export type { TargetList } from "./flags/severalupstreams.ts";
export type { StreamSettings } from "./flags/streamflags.ts";
export type {
  ClientLimits,
  ListenOptions,
  RecordOptions,
  ReportOptions,
  SecurityOptions,
  ServerOptions,
} from "./flags/commandoptions.ts";
export type { Duration, Size } from "./flags/duration.ts";
export type { RouteCondition } from "./serve/routecondition.ts";
export type { LogForm } from "./log/requestlog.ts";

/** The names of the options that are durations. */
export type DurationName =
  | `${string}Timeout`
  | "timeout"
  | "delay"
  | "ejectionTime"
  | "heartbeat"
  | "interval"
  | "keepAliveInitialDelay"
  | "maxEjectionTime"
  | "minRateGrace"
  | "slowStart"
  | "socketTTL"
  | "ttl"
  | "wait";

/** The names of the option groups that contain durations or sizes. */
export type GroupName = "check" | "dns" | "mirror" | "outliers" | "pool" | "resolve" | "retry";

/** The names of the options that are sizes. */
export type SizeName =
  | "bodyLimit"
  | "maxBody"
  | "maxHeaderSize"
  | "recordMaxBody"
  | "recordMaxBytes"
  | "replayLimit";

/**
 * Options in which a duration may be a number of milliseconds or a text such as `"10s"`, and a size a number of
 * bytes or a text such as `"10mb"`.
 */
export type WithDurations<Options> = {
  [Name in keyof Options]: Name extends DurationName
    ? Options[Name] | Duration
    : Name extends SizeName
      ? Options[Name] | Size
      : Name extends GroupName
        ? Grouped<Options[Name]>
        : Options[Name];
};

type Grouped<Value> = Value extends object ? WithDurations<Value> : Value;

type ProxyDefaults = Partial<Omit<RouteOptions, "balance" | "log" | "target">>;

/**
 * A route: which requests belong to it, and where to send them. The options of a route take precedence over those of the
 * config.
 */
export interface ConfigRoute extends WithDurations<ProxyDefaults> {
  /**
   * Which requests belong to the route: an optional host, then a path prefix.
   *
   * A prefix matches whole segments: `"/api"` matches `/api` and `/api/x`, and not `/apix`. A host is written without a port;
   * `*.` at its beginning stands for any subdomain. An exact host takes precedence over a wildcard, a longer wildcard over a
   * shorter one, and both over a route without a host; then the longest prefix takes precedence. The prefix stays in the path
   * unless `stripPrefix` removes it.
   * @example ["shop.example/api", "*.example.com/", "/"]
   */
  match: string | readonly string[];
  /**
   * A further condition: the method, header fields, or query parameters of the request. A request that does not satisfy it goes
   * to another route. Of routes with the same pattern, those with a condition come first, in the order of the file.
   *
   * A condition chooses between upstreams. It does not protect them, because another route may lead to the same upstream.
   * @example { method: ["PUT", "POST"], headers: { "x-beta": "1" }, query: { version: "2" } }
   */
  when?: RouteCondition;
  /** Where to send the requests of the route; an array for several upstreams. */
  target: CreateProxyOptions["target"] | TargetList;
  /** How requests are spread over several upstreams: the options of `balance` from `fetchway/upstreams`. */
  balance?: WithDurations<BalanceOptions>;
}

/** What a config file of the command exports. The options of a proxy here are the defaults of all routes. */
export interface Config extends WithDurations<ProxyDefaults> {
  /** The options of the server that the command starts. */
  server?: WithDurations<ServerOptions>;
  /** The target of all requests that no route matches: short for a route with the match `"/"`. */
  target?: CreateProxyOptions["target"] | TargetList;
  /** The options of `balance` that are the defaults of all routes. */
  balance?: WithDurations<BalanceOptions>;
  /** The routes, which say where to send requests by their host, path and condition. */
  routes?: readonly ConfigRoute[];
}

/**
 * Returns the config unchanged. Its parameter has the type `Config`, so an editor completes and checks the options.
 * @example
 * ```ts
 * export default defineConfig({
 *   server: { port: 8080 },
 *   routes: [{ match: "/api", target: "http://127.0.0.1:4001", stripPrefix: "/api" }],
 * });
 * ```
 */
export function defineConfig(config: Config): Config {
  return config;
}
