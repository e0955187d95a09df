/** Combines the flags and the config file into the settings of the command's server and of its routes. */
import type { BalanceOptions } from "#fetchway/upstreams";
import {
  serverDefaults,
  type ServerOptions,
  type ServerSettings,
} from "../flags/commandoptions.ts";
import { flags as allFlags } from "../flags/flags.ts";
import type { GivenRoute } from "../flags/routeflag.ts";
import type { RouteOptions } from "../flags/severalupstreams.ts";
import type { RouteCondition } from "../serve/routecondition.ts";
import { normalizePattern } from "../serve/pattern.ts";

/** A route with its options, defaults included. */
export interface RouteSettings {
  /** Hosts and path prefixes, such as `"shop.example/api"`. */
  readonly match: readonly string[];
  /** A further condition for the requests; undefined if the route takes all requests that match. */
  readonly when?: RouteCondition;
  readonly options: RouteOptions;
}

/** All settings of the command. */
export interface Settings {
  readonly server: ServerSettings;
  readonly routes: readonly RouteSettings[];
  /** The trusted proxies of the flags, or else of the config file; a route may have others. */
  readonly trustProxy?: ProxyDefaults["trustProxy"];
}

type ProxyDefaults = Partial<Omit<RouteOptions, "target">>;

/**
 * A checked config file, in which durations are milliseconds, the paths of files are absolute, and no option is `undefined`.
 */
export interface ReadConfig extends ProxyDefaults {
  readonly server?: ServerOptions;
  readonly target?: RouteOptions["target"];
  readonly routes?: readonly (RouteOptions &
    Pick<RouteSettings, "when"> & { readonly match: string | readonly string[] })[];
}

/** The settings that flags have given. */
export interface GivenFlags {
  readonly server: Partial<ServerSettings>;
  /** The options of the proxies and of their pools. */
  readonly proxy: ProxyDefaults;
  readonly routes: readonly GivenRoute[];
  readonly target: RouteOptions["target"] | undefined;
  readonly balance?: BalanceOptions;
}

/**
 * Combines flags and config file. The flags of a route take precedence over the flags of the command, these over the options of
 * the file's routes, and these over the options of the file. A route of the command line replaces the file's routes for the
 * same host, path and condition.
 * @param base the default options of the pool of each route
 */
export function toSettings(
  flags: GivenFlags,
  file: ReadConfig = {},
  base: ProxyDefaults["pool"] = {},
): Settings {
  const { server, target, routes = [], ...defaults } = file;
  const spread = flags.balance === undefined ? {} : { balance: flags.balance };
  const own = { ...flags.proxy, ...spread };
  const given: RouteSettings[] = flags.routes.map(({ options, ...route }) => ({
    ...route,
    options: merge(base, defaults, own, options),
  }));
  if (flags.target !== undefined) {
    const options = merge(base, defaults, own, { target: flags.target });
    given.push({ match: ["/"], options });
  }
  const more = routes.map(({ match, when, ...options }): RouteSettings => {
    const route = {
      match: (typeof match === "string" ? [match] : match).map(normalizePattern),
      options: merge(base, defaults, options, own),
    };
    return when === undefined ? route : Object.assign(route, { when });
  });
  if (target !== undefined) {
    more.push({ match: ["/"], options: merge(base, defaults, { target }, own) });
  }
  const left = more.flatMap((route) => {
    const others = route.match.filter(
      (each) => !given.some(({ match, when }) => match.includes(each) && isSame(when, route.when)),
    );
    return others.length === 0 ? [] : [{ ...route, match: others }];
  });
  const all = { ...serverDefaults, ...server, ...flags.server };
  return {
    // Users may write an IPv6 address in brackets, as in a URL; the server needs it without them.
    server: { ...all, host: all.host.replace(/^\[(.*)\]$/, "$1") },
    routes: [...given, ...left],
    trustProxy: own.trustProxy ?? defaults.trustProxy,
  };
}

/** Names an option of the server in a message. */
export type NameServerOption = (option: keyof ServerOptions) => string;

/** Names options of the server as the user has written them: `server.cert` in the config file, otherwise `--cert`. */
export function nameAsWritten(given: ServerOptions, { server = {} }: ReadConfig): NameServerOption {
  return (option) => {
    if (!Object.hasOwn(given, option) && Object.hasOwn(server, option)) return `server.${option}`;
    const flag = allFlags.find((each) => each.scope === "server" && each.option === option);
    return `--${flag?.name}`;
  };
}

/**
 * Merges layers of options; later layers take precedence. The members of `pool`, `balance` and `balance.cookie` are merged one
 * by one. Every other option is replaced as a whole.
 * @param base the default options of the pool
 */
function merge(base: object, ...layers: readonly Partial<RouteOptions>[]): RouteOptions {
  const merged = Object.assign({}, ...layers) as RouteOptions;
  const spread = Object.assign({}, ...layers.map((layer) => layer.balance)) as BalanceOptions;
  const cookie = Object.assign({}, ...layers.map((layer) => layer.balance?.cookie)) as object;
  if (Object.keys(cookie).length > 0) spread.cookie = cookie;
  if (Object.keys(spread).length > 0) merged.balance = spread;
  const pool = Object.assign({}, ...layers.map((layer) => layer.pool)) as object;
  // A transport has its own connections, so `createProxy` refuses the option `pool` with it. Leave out the default pool.
  const isOwn = merged.transport === undefined && merged.fetch === undefined;
  const all = isOwn ? { ...base, ...pool } : pool;
  if (Object.keys(all).length > 0) merged.pool = all;
  else delete merged.pool;
  return merged;
}

/** Whether a value is a plain object or an array, so that its members can be compared. */
function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype || prototype === Array.prototype;
}

/** Whether two options are the same. The members of plain objects and arrays are compared, everything else by identity. */
export function isSame(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (!isPlain(one) || !isPlain(other) || Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name]))
  );
}
