import type { IncomingMessage } from "node:http";
import {
  createProxy,
  type PoolStats,
  type Proxy,
  applyAbsoluteForm,
  type Explanation,
} from "#fetchway";
import { authorityOf, pathOf } from "#fetchway/requests";
import type { StateChange } from "#fetchway/upstreams";
import type { Server, ServerRequest } from "srvx";
import { isSame, type RouteSettings } from "../config/settings.ts";
import { type RouteOptions, toProxyOptions } from "../flags/severalupstreams.ts";
import { sumOf } from "../status/recent.ts";
import { compileCondition, describeRoute, type RoutableRequest } from "./routecondition.ts";
import { decodePattern, hostOf, parsePattern, PatternMap, readingsOf } from "./pattern.ts";

/** A route that serves requests: its settings, and the proxy that was created from them. */
interface LiveRoute {
  readonly settings: RouteSettings;
  readonly proxy: ReturnType<typeof createProxy>;
  /** Returns whether a request satisfies the condition of the route; undefined if the route has no condition. */
  readonly accepts: ((request: RoutableRequest) => boolean) | undefined;
  /** The number of requests whose response has not begun. */
  running: number;
  /** Stops passing the server's upgrade requests to the route; undefined if none are passed to it. */
  detach?: () => void;
}

/** The routes, and the patterns by which a request finds its route. */
interface RouteTable {
  readonly routes: readonly LiveRoute[];
  readonly patterns: PatternMap<LiveRoute>;
  /** The only route, if it takes all requests. */
  readonly only: LiveRoute | undefined;
}

/** Milliseconds between two checks of the removed routes. */
const RETIRED_INTERVAL = 1000;
/**
 * The minimum number of milliseconds for which the connections of a removed route are kept, because a WebSocket handshake
 * whose hooks are still running is not counted anywhere.
 */
const RETIRED_TIME = 10_000;

/**
 * Sends requests to the proxies of the routes, by host, path and condition. The routes can be replaced while requests are
 * running. A route with unchanged settings keeps its proxy. The old proxy of a removed route finishes its requests, except
 * those that wait for an upstream to come back, which the new routes take.
 */
export class Router {
  #table: RouteTable = { routes: [], patterns: new PatternMap(), only: undefined };
  readonly #retired: Map<LiveRoute, number> = new Map();
  #sweeping: ReturnType<typeof setInterval> | undefined;
  /** The sums of the counters of all removed routes whose connections are closed, because counters must not decrease. */
  #ended: PoolStats | undefined;
  #server: Server | undefined;
  #admit: (message: IncomingMessage) => boolean = () => true;
  readonly #prepare: (options: RouteOptions) => RouteOptions;
  readonly #rescue: (error: unknown, request: Request) => Response;
  /** Answers requests that no route matches. */
  readonly #none: LiveRoute;
  /** Answers requests whose paths an upstream might read as a path of another route. */
  readonly #ambiguous: LiveRoute;

  /**
   * @param prepare returns the options of a proxy with additions, such as a listener
   * @param rescue answers a request whose proxy throws, because a function in its options has returned a wrong value
   */
  constructor(
    routes: readonly RouteSettings[],
    prepare: (options: RouteOptions) => RouteOptions = (options) => options,
    rescue: (error: unknown, request: Request) => Response = (error) => {
      throw error;
    },
  ) {
    this.#prepare = prepare;
    this.#rescue = rescue;
    this.#none = this.#openAnswer(404, "Not Found: no route for this host and path\n");
    this.#ambiguous = this.#openAnswer(400, "Bad Request: the path is ambiguous\n");
    this.update(routes);
  }

  /**
   * Replaces the routes.
   * @throws TypeError for wrong settings; the current routes are then kept
   */
  update(settings: readonly RouteSettings[]): void {
    const { routes: before } = this.#table;
    const opened: LiveRoute[] = [];
    let routes: LiveRoute[];
    try {
      routes = settings.map((each) => {
        const kept = before.find((route) => isSame(route.settings, each));
        const route = kept ?? this.#open(each);
        if (kept === undefined) opened.push(route);
        return route;
      });
    } catch (error) {
      for (const { proxy } of opened) void proxy.close();
      throw error;
    }
    this.#table = createTable(routes);
    for (const route of opened) this.#attach(route);
    for (const route of before) if (!routes.includes(route)) this.#retire(route);
    for (const { proxy } of this.#retired.keys()) {
      proxy.moveWaiting((request) => (this.#table.only ?? this.#findFor(request)).proxy);
    }
  }

  /** The number of removed routes whose connections are not closed yet. */
  get retired(): number {
    return this.#retired.size;
  }

  readonly answer = (request: ServerRequest): Promise<Response> => {
    const route = this.#routeOf(request);
    route.running++;
    return route.proxy.fetch(request, contextOf(request)).then(
      (response) => {
        route.running--;
        return response;
      },
      (error: unknown) => {
        route.running--;
        return this.#rescue(error, request);
      },
    );
  };

  /** Returns the route of a request, and the explanation of what its proxy would do with the request. */
  async explain(request: ServerRequest): Promise<[RouteSettings, Explanation]> {
    const { settings, proxy } = this.#routeOf(request);
    return [settings, await proxy.explain(request, contextOf(request))];
  }

  /**
   * Passes the upgrade requests of a Node server to the routes. On Bun and Deno, `answer` receives them.
   * @param admit is called first with each request that asks for an upgrade or has `Expect: 100-continue`; if it returns false,
   * the request is not upgraded
   */
  attach(server: Server, admit: (message: IncomingMessage) => boolean = () => true): void {
    this.#server = server;
    this.#admit = admit;
    for (const route of [...this.#table.routes, this.#none, this.#ambiguous]) this.#attach(route);
  }

  /** The handlers of WebSockets that Bun's server needs; undefined on other runtimes. */
  get websocket(): unknown {
    return (this.#none.proxy as { websocket?: unknown }).websocket;
  }

  /** Returns the counters of the connections of all routes, also removed ones; undefined where the runtime has none. */
  stats(): PoolStats | undefined {
    const all = statsOf(this.#table.routes);
    // A removed route sends no further requests, so the health of its upstreams is outdated.
    for (const stats of statsOf(this.#retired.keys())) {
      all.push({ ...stats, ...endUpstreams(stats) });
    }
    if (this.#ended !== undefined) all.push(this.#ended);
    return mergeStats(all);
  }

  /** Lets running and waiting requests finish, then closes the connections, as `Proxy.close` does. */
  async close(timeout?: number): Promise<void> {
    clearInterval(this.#sweeping);
    const live = [...this.#table.routes, ...this.#retired.keys()];
    await Promise.all(live.map(({ proxy }) => proxy.close(timeout)));
  }

  /** Closes the connections immediately. */
  destroy(): void {
    clearInterval(this.#sweeping);
    for (const { proxy } of [...this.#table.routes, ...this.#retired.keys()]) proxy.destroy();
  }

  #open(settings: RouteSettings): LiveRoute {
    const { match, when, options } = settings;
    const named = match.length === 0 ? {} : { route: describeRoute(settings) };
    const prepared = { ...named, ...this.#prepare(options) };
    const { balance } = prepared;
    if (balance?.onStateChange !== undefined) {
      // The upstreams of a removed route are checked until its last tunnel ends. Their states are outdated, as in `stats`.
      const onStateChange = (change: StateChange): void => {
        if (!this.#retired.has(route)) balance.onStateChange?.(change);
      };
      prepared.balance = { ...balance, onStateChange };
    }
    const accepts = when && compileCondition(when);
    const proxy = createProxy(toProxyOptions(prepared));
    const route: LiveRoute = { settings, proxy, accepts, running: 0 };
    return route;
  }

  /** Makes a route with a fixed response. The route has a proxy, so that its requests are reported like all others. */
  #openAnswer(status: number, text: string): LiveRoute {
    const headers = { "content-type": "text/plain; charset=utf-8" };
    return this.#open({
      match: [],
      options: {
        target: "http://no-route.invalid",
        onRequest: () => new Response(text, { status, headers }),
      },
    });
  }

  #routeOf(request: ServerRequest): LiveRoute {
    applyAbsoluteForm(request);
    return this.#table.only ?? this.#findFor(request);
  }

  /** Finds the route by `Host` and the URL of the web request. The proxy forwards the path of the same URL. */
  #findFor(request: RoutableRequest): LiveRoute {
    return this.#find(request.headers.get("host") ?? authorityOf(request.url), request);
  }

  #find(authority: string | null, request: RoutableRequest): LiveRoute {
    const { patterns } = this.#table;
    const host = authority === null ? undefined : hostOf(authority);
    const path = pathOf(request.url);
    const accepts = (route: LiveRoute): boolean => route.accepts?.(request) !== false;
    const found = patterns.find(host, path, accepts);
    const isClear = readingsOf(path)?.every(
      (reading) => patterns.find(host, reading, accepts) === found,
    );
    return isClear === true ? (found ?? this.#none) : this.#ambiguous;
  }

  #attach(route: LiveRoute): void {
    // Only a Node server reports upgrades separately.
    if (this.#server?.node === undefined) return;
    const match = (message: IncomingMessage): boolean => {
      if (!this.#admit(message)) return false;
      const { only } = this.#table;
      if (only !== undefined) return only === route;
      const { url = "/", headers } = message;
      const { host = headers[":authority"] as string | undefined } = headers;
      const authority = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1] ?? host ?? null;
      return this.#find(authority, toRoutable(message)) === route;
    };
    route.detach = route.proxy.attach(this.#server, { match });
  }

  /**
   * Takes a route out of service. Its proxy is closed when its requests and tunnels have ended, but not before
   * `RETIRED_TIME`.
   */
  #retire(route: LiveRoute): void {
    route.detach?.();
    this.#retired.set(route, performance.now() + RETIRED_TIME);
    if (this.#sweeping !== undefined) return;
    this.#sweeping = setInterval(() => this.#sweep(), RETIRED_INTERVAL);
    (this.#sweeping as { unref?(): void }).unref?.();
  }

  /** Keeps the counters of a removed route; for upstreams, only of those that a route still has, so that memory is bounded. */
  #keep(stats: PoolStats | undefined): void {
    if (stats === undefined) return;
    const { maxSockets: _, ...counters } = endStats(stats);
    const all = this.#ended === undefined ? [counters] : [this.#ended, counters];
    const { upstreams = [], ...rest } = mergeStats(all) as PoolStats;
    const live = statsOf(this.#table.routes).flatMap((each) => each.upstreams ?? []);
    const names = new Set(live.map(({ name }) => name));
    this.#ended = { ...rest, upstreams: upstreams.filter(({ name }) => names.has(name)) };
  }

  #sweep(): void {
    for (const [route, time] of this.#retired) {
      if (performance.now() < time || route.running > 0 || isBusy(route.proxy)) continue;
      this.#retired.delete(route);
      this.#keep(route.proxy.stats());
      void route.proxy.close();
    }
    if (this.#retired.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }
}

/** Returns the runtime's object from which the proxy reads the client's address. */
function contextOf({ runtime }: ServerRequest): unknown {
  return runtime?.deno?.info ?? runtime?.bun?.server;
}

/** Reads an upgrade request from Node's request, because Node's server creates no web `Request` for an upgrade. */
function toRoutable({ method = "GET", url = "/", headers }: IncomingMessage): RoutableRequest {
  const get = (name: string): string | null => {
    const value = headers[name.toLowerCase()] ?? null;
    return Array.isArray(value) ? value.join(", ") : value;
  };
  // The handshake of a WebSocket is CONNECT over HTTP/2, and GET over HTTP/1.1 (RFC 8441 §5).
  return { method: method === "CONNECT" ? "GET" : method, url, headers: { get } };
}

function createTable(routes: readonly LiveRoute[]): RouteTable {
  const patterns = new PatternMap<LiveRoute>();
  // Of two equal patterns, the first one takes precedence, so add the routes with a condition before those without, and the
  // decoded patterns after all configured ones.
  const ordered = [
    ...routes.filter(({ accepts }) => accepts !== undefined),
    ...routes.filter(({ accepts }) => accepts === undefined),
  ].flatMap((route) =>
    route.settings.match.map((text) => ({ pattern: parsePattern(text), route })),
  );
  for (const { pattern, route } of ordered) patterns.add(pattern, route);
  for (const { pattern, route } of ordered) {
    for (const decoded of decodePattern(pattern)) patterns.add(decoded, route);
  }
  const [first] = ordered;
  const takesAll =
    ordered.length === 1 &&
    first?.pattern.host === undefined &&
    first?.pattern.prefix === "" &&
    first.route.accepts === undefined;
  return { routes, patterns, only: takesAll ? first.route : undefined };
}

/** Returns the counters of each route; none on a runtime that does not count. */
function statsOf(routes: Iterable<LiveRoute>): PoolStats[] {
  return Array.from(routes).flatMap(({ proxy }) => proxy.stats() ?? []);
}

/** Whether a proxy has running or waiting requests or tunnels; false on a runtime that does not count them. */
function isBusy(proxy: Proxy): boolean {
  const { origins = {}, held = 0 } = proxy.stats() ?? {};
  const isInUse = Object.values(origins).some(
    ({ inUse, waiting, tunnels }) => inUse + waiting + tunnels > 0,
  );
  return isInUse || held > 0;
}

type UpstreamStats = NonNullable<PoolStats["upstreams"]>;
type State = UpstreamStats[number]["state"];

/** The states of an upstream, the worst one last. */
const STATES: readonly State[] = ["up", "starting", "half-open", "draining", "ejected", "down"];

/**
 * Adds up the counters of the upstreams of several routes or processes. Each of them has its own state of an upstream; the
 * result has the worst of these states, with its reason and time.
 */
function mergeUpstreams(all: readonly PoolStats[]): Pick<PoolStats, "upstreams" | "waiting"> {
  const merged = new Map<string, UpstreamStats[number]>();
  for (const each of all.flatMap(({ upstreams = [] }) => upstreams)) {
    const other = merged.get(each.name);
    if (other === undefined) {
      merged.set(each.name, each);
      continue;
    }
    const isWorse = STATES.indexOf(each.state) > STATES.indexOf(other.state);
    merged.set(each.name, {
      ...(isWorse ? each : other),
      weight: Math.max(other.weight, each.weight),
      active: other.active + each.active,
      waiting: other.waiting + each.waiting,
      requests: other.requests + each.requests,
      failures: other.failures + each.failures,
    });
  }
  if (merged.size === 0) return {};
  const waiting = all.reduce((sum, each) => sum + (each.waiting ?? 0), 0);
  return { upstreams: [...merged.values()], waiting };
}

/** Returns the final counters of the upstreams of a process or a route that has ended, with the weight 0. */
function endUpstreams({ upstreams }: PoolStats): Pick<PoolStats, "upstreams"> {
  if (upstreams === undefined) return {};
  const ended = { weight: 0, active: 0, waiting: 0, state: "up" } as const;
  const toCounters = ({ name, requests, failures }: UpstreamStats[number]) => {
    return { name, requests, failures, ...ended };
  };
  return { upstreams: upstreams.map(toCounters) };
}

/** Returns the final counters of a process or a route that has ended. */
export function endStats(stats: PoolStats): PoolStats {
  const { waiting, held } = stats;
  const none = { ...(waiting && { waiting: 0 }), ...(held && { held: 0 }) };
  return { ...stats, closed: stats.created, origins: {}, ...endUpstreams(stats), ...none };
}

/** Adds up the requests that wait for upstreams to come back, if any proxy has the option `wait`. */
function mergeHeld(all: readonly PoolStats[]): { held?: number } {
  const known = all.flatMap(({ held }) => held ?? []);
  return known.length === 0 ? {} : { held: sumOf(known) };
}

/** Returns the highest `maxSockets` of several proxies, if any has one. */
function mergeMaxSockets(all: readonly PoolStats[]): { maxSockets?: number } {
  const known = all.flatMap(({ maxSockets }) => maxSockets ?? []);
  return known.length === 0 ? {} : { maxSockets: Math.max(...known) };
}

/** Adds up the counters of several proxies. */
export function mergeStats(all: readonly PoolStats[]): PoolStats | undefined {
  if (all.length < 2) return all[0];
  const sum = (of: (stats: PoolStats) => number): number =>
    all.reduce((n, each) => n + of(each), 0);
  const origins: Record<string, PoolStats["origins"][string]> = {};
  for (const stats of all) {
    for (const [name, { inUse, free, waiting, tunnels }] of Object.entries(stats.origins)) {
      const other = origins[name];
      origins[name] = {
        inUse: inUse + (other?.inUse ?? 0),
        free: free + (other?.free ?? 0),
        waiting: waiting + (other?.waiting ?? 0),
        tunnels: tunnels + (other?.tunnels ?? 0),
      };
    }
  }
  const created = sum((each) => each.created);
  const requests = sum((each) => each.requests);
  return {
    created,
    closed: sum((each) => each.closed),
    failed: sum((each) => each.failed),
    timedOut: sum((each) => each.timedOut),
    requests,
    requestsPerSocket: created === 0 ? 0 : requests / created,
    tunnels: sum((each) => each.tunnels),
    ...mergeMaxSockets(all),
    ...mergeHeld(all),
    version: sum((each) => each.version),
    origins,
    ...mergeUpstreams(all),
  };
}
