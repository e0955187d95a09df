import type { Respond } from "./pipeline/exchange.ts";
import { forward, isFixed, isUpstreams } from "./pipeline/pipeline.ts";
import { badOption } from "./misuse.ts";
import { checkOptions } from "./options/check.ts";
import type { Context } from "./options/forwardingoptions.ts";
import type { PoolOptions } from "./options/pooloptions.ts";
import type { ProxyOptions } from "./options/proxyoptions.ts";
import { compile, type Plan, type RuntimeParts } from "./plan.ts";
import type { ClientRules } from "./request/clientkey.ts";
import type { Incoming } from "./request/incoming.ts";
import { isRecord } from "./schema/schema.ts";
import { isApp } from "./target/app.ts";
import type { UpstreamRequest } from "./transport/message.ts";
import type { Transport } from "./transport/port.ts";
import type { PoolStats } from "./transport/stats.ts";
import { closeUpstreams, startUpstreams } from "./upstreams/startupstreams.ts";
import { type Target } from "./upstreams/upstreams.ts";

/** The parts of a proxy that differ between runtimes: how to read a request, how to send it, how to make a response. */
export interface Runtime extends RuntimeParts {
  /**
   * Reads a web `Request` into the form that the core uses.
   * @param rules the options that identify the client of a waiting request
   */
  read(request: Request, context: Context, rules: ClientRules): Incoming;
  /** Makes the runtime's own transport. */
  createTransport(pool?: PoolOptions): Transport;
  /** Makes the `Response` that the server sends to the client. */
  respond: Respond;
  /** Explains how to proxy a value that is not a `Request`, if the runtime recognizes the value. */
  explainRequest?(passed: unknown): string | undefined;
}

/** Options of `createProxy`. */
export interface CreateProxyOptions extends ProxyOptions {
  /**
   * Where to send requests: a URL, `"unix:/path"`, `{ url, socketPath, tls, http2 }`, an app in this process, several upstreams
   * (`fetchway/upstreams`), or a function of the request that returns one of these.
   *
   * An app is any object with a `fetch` method: a Worker's service binding, an h3 or Hono app, another proxy. All options apply
   * to it except `host`, `changeOrigin: false`, and the options of connections. A Durable Object's stub belongs to the request
   * in which it was made: return it from a function, or pass it to `proxyFetch`.
   * @example env.SERVICE
   */
  target: Target;
  /**
   * Options of the proxy's own connections. It cannot be set together with `transport` or `fetch`, which have their own
   * connections.
   */
  pool?: PoolOptions;
}

/** The part of the third argument of a Worker's handler that a proxy uses. */
export interface ExecutionContext {
  /** Keeps the Worker running until the promise is settled. */
  waitUntil?(promise: Promise<unknown>): void;
}

/** A proxy with compiled options and its own connections. */
export interface Proxy {
  /**
   * Forwards a request. It does not use `this`, so that it works as the `fetch` of a default export, as a handler, and in
   * `app.mount()`.
   *
   * The promise rejects in the same cases as that of `proxyFetch`: for misuse, and with the exception of a hook if
   * `onError` returns no response.
   * @param context the second argument that the server passes with the request, such as a Worker's `env`
   * @param execution the third argument that Workers pass; `mirror` uses its `waitUntil`
   */
  readonly fetch: (
    request: Request,
    context?: Context,
    execution?: ExecutionContext,
  ) => Promise<Response>;
  /**
   * Returns statistics of the proxy's connections, or undefined where the runtime has none. It returns the same object until
   * something changes, so that frequent calls cost little; with `wait` or several upstreams, it returns a new object each time.
   */
  readonly stats: () => PoolStats | undefined;
  /**
   * Lets the requests finish that have begun, also those that wait or are sent again, then closes the proxy's own connections.
   * Later requests get 503 with `Retry-After`, on the runtimes where a proxy has its own connections. Tunnels, such as
   * WebSockets, are closed after the timeout; without a timeout, when the requests have finished. Requests that wait for an
   * upstream to come back (`wait`) get 503 immediately.
   * @param timeout milliseconds after which the remaining requests fail, as with `destroy`; `0` for no limit
   * @throws TypeError for a timeout that is not a number of milliseconds
   */
  readonly close: (timeout?: number) => Promise<void>;
  /** Closes the proxy's own connections immediately: requests without a response get 503, and incomplete responses fail. */
  readonly destroy: () => void;
}

/**
 * Forwards a request to a target and resolves to the response to return from the handler.
 *
 * Network failures become responses as well: 502, 504, 400, … The promise rejects for misuse, and with the exception of
 * a hook if `onError` returns no response.
 *
 * @param options compiled once per object: pass a new object to change an option
 * @throws TypeError for misuse: a body that was already read, a bad option, a bad target
 */
export type ProxyFetch = (
  request: Request,
  target: Target,
  options?: ProxyOptions,
) => Promise<Response>;

/**
 * Creates a proxy, which compiles its options once and has its own connections.
 * @throws TypeError that names a bad option and the fix
 */
export type CreateProxy<OwnProxy extends Proxy = Proxy> = (options: CreateProxyOptions) => OwnProxy;

/** A header field on which `explain` reports. */
export interface ExplainedField {
  /** The name: in `fields` as the proxy sends it, in `dropped` as the client has sent it. */
  readonly name: string;
  /** The value. It may be a secret that an option sets. */
  readonly value: string;
  /** The reason, such as "the client's" or "belongs to one connection (RFC 9110 §7.6.1)". */
  readonly reason: string;
  /**
   * The option that causes the outcome: without it, the outcome would be different. Undefined if no single option does so, and
   * for `Host`; the reason then names the options, if there are any.
   */
  readonly option?: string | undefined;
}

/** The result of `explain`: how a request would be forwarded. */
export interface Explanation {
  /** The request that an upstream would get; undefined if no request would be sent. */
  readonly request: UpstreamRequest | undefined;
  /** The response that the client would get without a request to an upstream; undefined if a request would be sent. */
  readonly response: Response | undefined;
  /**
   * Why no request would be sent: a `ProxyError`, or an exception that `onError` answers; undefined if a request would
   * be sent, or a hook responds.
   */
  readonly error: unknown;
  /** The steps that change the client's path into the path of the upstream request; empty if it is not changed. */
  readonly path: readonly string[];
  /** The header fields of `request` in order, including those that Fetchway's own HTTP client writes. */
  readonly fields: readonly ExplainedField[];
  /** The client's fields that are not forwarded, or are forwarded with another value. */
  readonly dropped: readonly ExplainedField[];
}

/** The method `explain`, which proxies have on the runtimes where Fetchway's own HTTP client writes the requests. */
export interface ExplainingProxy {
  /**
   * Explains how a request would be forwarded, field by field, without sending it. The request passes the same steps as on
   * its way to the upstream: routes of a target, rewrites, `onRequest` and interceptors, but not `onResponse`, `onRequestEnd`
   * and mirrors. Nothing is counted, and the request's body is cancelled. The promise rejects in the same cases as that of
   * `fetch`.
   * @param context the second argument that the server passes with the request
   * @example
   * ```ts
   * const { request, fields, dropped } = await proxy.explain(new Request("http://shop.example/api/x"));
   * ```
   */
  readonly explain: (request: Request, context?: Context) => Promise<Explanation>;
}

/** The method `moveWaiting`, which proxies have on the runtimes where requests can wait for an upstream (`wait`). */
export interface WaitingProxy {
  /**
   * Moves the requests that wait for an upstream, and those that would begin to wait later, to other proxies, for example
   * because the target has changed. The other proxy treats them like new requests, but `onRequestEnd` of this proxy reports
   * them. Requests that an upstream may have processed in part are not moved, nor are requests with `followRedirects`: they
   * wait until their time ends. Without `wait`, the call has no effect.
   * @param choose returns the proxy that takes a request
   * @example before.moveWaiting(() => after);
   */
  readonly moveWaiting: (choose: (request: Request) => WaitingProxy) => void;
}

/** A target and its compiled options, which all calls of a proxy share. */
export interface Route {
  readonly target: Target;
  readonly plan: Plan;
  /** The options of the proxy's own connections. */
  readonly pool: PoolOptions | undefined;
}

const NO_OPTIONS: ProxyOptions = {};

const PROXY_FETCH =
  "proxyFetch(request, target, options?) takes the incoming Request first, then the target";

const PROXY = "a proxy's fetch(request, context?) takes the incoming Request first";

/** Makes the `proxyFetch` of a runtime. All calls share one transport. */
export function bindProxyFetch(runtime: Runtime): ProxyFetch {
  const plans = new WeakMap<ProxyOptions, Plan>();
  let shared: Transport | undefined;
  const transportFor = (): Transport => (shared ??= runtime.createTransport());

  return function proxyFetch(request, target, options = NO_OPTIONS) {
    try {
      assertRequest(request, PROXY_FETCH, runtime);
      let plan = plans.get(options);
      if (plan === undefined) {
        plan = compile(options, transportFor, runtime);
        plans.set(options, plan);
      }
      const incoming = runtime.read(request, undefined, plan);
      return forward(incoming, target, plan, undefined, runtime.respond);
    } catch (error) {
      // If the arguments were swapped, say so. `assertRequest` accepts a stub of workerd as a `Request`, because the
      // stub has a property of every name, and a later step then fails with a misleading error.
      const isSwapped = isApp(request);
      return Promise.reject(isSwapped ? new TypeError(`fetchway: ${PROXY_FETCH}`) : error);
    }
  };
}

/**
 * Makes the `createProxy` of a runtime. It is separate from `bindProxyFetch`, so that a bundle contains only the function that
 * the app imports.
 * @param extend makes the members that proxies have only on this runtime, such as a handler for its servers
 */
export function bindCreateProxy<OwnProxy extends Proxy>(
  runtime: Runtime,
  extend?: (route: Route) => Omit<OwnProxy, keyof Proxy>,
): CreateProxy<OwnProxy> {
  return function createProxy(options) {
    const route = createRoute(options, runtime);
    // The members that `extend` makes come first, because `assign` would replace the getters in a later argument by
    // their values.
    return Object.assign(extend?.(route) ?? {}, toProxy(route, runtime)) as OwnProxy;
  };
}

/**
 * Compiles the options of `createProxy`.
 * @throws TypeError that names the option and the fix
 */
function createRoute(createOptions: CreateProxyOptions, runtime: Runtime): Route {
  const given = isRecord(createOptions) ? createOptions : ({} as CreateProxyOptions);
  const { target, pool, ...options } = given;
  if (pool !== undefined) {
    if (!isRecord(pool)) throw badOption("pool", "use an object");
    if ((options.transport ?? options.fetch) !== undefined) {
      throw badOption("pool", "leave it out: `transport` and `fetch` have their own connections");
    }
  }
  // Health checks use the transport's own `connectTimeout`, so set the proxy's option for the transport as well.
  const connectTimeout = options.connectTimeout ?? pool?.connectTimeout;
  const ownPool = connectTimeout === undefined ? pool : { ...pool, connectTimeout };
  const transportFor = (): Transport => runtime.createTransport(ownPool);
  const plan = compile(options, transportFor, runtime);
  // Check this after the names of the options, because one of them may be a wrong name for `target`.
  if (!("target" in given)) {
    throw new TypeError(
      'fetchway: createProxy(options) takes one object such as { target: "http://127.0.0.1:4000" }',
    );
  }
  if (isFixed(target)) {
    if (isUpstreams(target)) startUpstreams(target, plan.transport);
    else {
      const upstream = plan.reach(target);
      plan.held?.setFixedUpstream(upstream);
    }
  }
  return { target, plan, pool };
}

/** Makes a proxy with the members that it has on every runtime. */
function toProxy({ target, plan }: Route, runtime: Runtime): Proxy {
  const { transport, options } = plan;
  // Do not close a transport that the app has passed: the app may use it elsewhere, and closes it itself.
  const ownTransport = options.transport === undefined ? transport : undefined;
  const endUpstreams = (): void => {
    plan.held?.close();
    if (isFixed(target) && isUpstreams(target)) closeUpstreams(target, ownTransport);
  };
  return {
    // This is not an async function, which would add three promises and a turn of the microtask queue to each request.
    fetch(request, context, execution) {
      try {
        assertRequest(request, PROXY, runtime);
        const incoming = runtime.read(request, context, plan);
        if (plan.mirror !== undefined) outlastResponse(incoming, execution);
        return forward(incoming, target, plan, context, runtime.respond);
      } catch (error) {
        return Promise.reject(error);
      }
    },
    stats: () => addStates(transport.stats?.(), target, plan),
    close: async (timeout = 0) => {
      // Before anything ends: a refused call must change nothing.
      checkOptions({ timeout });
      endUpstreams();
      await ownTransport?.close?.(timeout);
    },
    destroy: () => {
      endUpstreams();
      ownTransport?.destroy?.();
    },
  };
}

/** Lets the work for a request continue after its response, if the server passes `waitUntil`. */
function outlastResponse(incoming: Incoming, execution: ExecutionContext | undefined): void {
  if (typeof execution?.waitUntil !== "function") return;
  incoming.waitUntil = (promise) => execution.waitUntil?.(promise);
}

/** Adds the states of several upstreams, and the number of requests that wait for upstreams, to the statistics. */
function addStates(
  stats: PoolStats | undefined,
  target: Target,
  { held }: Plan,
): PoolStats | undefined {
  if (stats && held) stats = { ...stats, held: held.size };
  return stats && isFixed(target) && isUpstreams(target) && target.states
    ? { ...stats, upstreams: target.states(), waiting: target.waiting }
    : stats;
}

/**
 * Makes sure that a call was given a web `Request`, of any class.
 * @param call how to call the function, for the message
 * @throws TypeError that says what to pass instead of a framework's event or context
 */
function assertRequest(request: unknown, call: string, runtime: Runtime): void {
  // To save time, look for one property only: the events of frameworks and Node's messages have no `clone`.
  if (typeof request === "object" && request !== null && "clone" in request) return;
  const fix = findRequest(request) ?? runtime.explainRequest?.(request);
  throw new TypeError(`fetchway: ${call}${fix === undefined ? "" : `; ${fix}`}`);
}

/** Explains how to get the web `Request` from the value that a framework passes to its handlers. */
export function findRequest(passed: unknown): string | undefined {
  const { req, request, raw } = (passed ?? {}) as Record<string, unknown>;
  if (isRequest(req)) return "pass event.req";
  if (isRequest((req as { raw?: unknown } | undefined)?.raw) || isRequest(raw)) {
    return "pass c.req.raw";
  }
  return isRequest(request) ? "pass its `request`" : undefined;
}

/** Whether a value is a web `Request`, of any class. */
export function isRequest(value: unknown): boolean {
  return typeof value === "object" && value !== null && "clone" in value && "headers" in value;
}
