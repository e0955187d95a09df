import { isApp } from "./request/app.ts";
import { forward, type Respond } from "./forward.ts";
import { assertRequest, type Context, type Incoming } from "./request/incoming.ts";
import { checkPoolOptions } from "./options/check.ts";
import { compile, type Plan } from "./options/plan.ts";
import type { PoolOptions } from "./options/pooloptions.ts";
import { defaults, type ProxyOptions } from "./options/proxyoptions.ts";
import { assertReachable, isAddress, parseTarget, type Target } from "./request/target.ts";
import type { PoolStats, Transport } from "./transport.ts";

/** What a runtime contributes: how to read a request, how to send one, how to build a response. */
export interface Runtime {
  read(request: Request, context: Context): Incoming;
  createTransport(pool?: PoolOptions): Transport;
  respond: Respond;
  /** How apps in process are called, where it is not as on every runtime. */
  inProcess?: Transport;
}

/** Options of `createProxy`. */
export interface CreateProxyOptions extends ProxyOptions {
  /**
   * Where to send requests: a URL, `"unix:/path"`, `{ url, socketPath, tls }`, an app in this process, or a function of the
   * request that returns one of these.
   *
   * An app is any object with a `fetch` method: a Worker's service binding, an h3 or Hono app, another proxy. All options
   * hold for it, but for those of connections, `host` and `changeOrigin: false`. A Durable Object's stub belongs to the
   * request that it was made in: return it from a function, or pass it to `proxyFetch`.
   * @example env.SERVICE
   */
  target: Target;
  /** The proxy's own connections. Not together with `transport`, whose connections are somebody else's. */
  pool?: PoolOptions;
}

/** A proxy with its options compiled and connections of its own. */
export interface Proxy {
  /**
   * Forwards a request. Needs no `this`: it is usable as a default export's
   * `fetch`, as a handler, and in `app.mount()`.
   *
   * It rejects as `proxyFetch` does: for misuse, and with the exception of a hook that `onError` does not answer.
   * @param context what the server passes beside the request
   */
  readonly fetch: (request: Request, context?: Context) => Promise<Response>;
  /**
   * What its connections have been doing; undefined where the runtime does not tell.
   * The same object until something changes, so that asking often costs little.
   */
  readonly stats: () => PoolStats | undefined;
  /**
   * Lets running and waiting requests finish, then closes the proxy's own connections. Later
   * requests get 503 with `Retry-After`, where the runtime lets a proxy have its own.
   * @param timeout milliseconds that they may take, then as `destroy`; `0` for as long as they like
   * @throws TypeError for a timeout that is none
   */
  readonly close: (timeout?: number) => Promise<void>;
  /** Closes the proxy's own connections at once: requests without a response yet get 503, other responses break off. */
  readonly destroy: () => void;
}

/**
 * Forwards a request to a target and resolves to the response to return.
 *
 * What goes wrong on the way is a response too: 502, 504, 400, … The exception of a hook that `onError` does not answer
 * is the app's: the promise rejects with it.
 *
 * @param options read once per object: pass another object to change something
 * @throws TypeError for misuse: a body that was already read, a bad option, a bad target
 */
export type ProxyFetch = (
  request: Request,
  target: Target,
  options?: ProxyOptions,
) => Promise<Response>;

/** A target and the plan for it: what every call of a proxy shares. */
export interface Route {
  readonly target: Target;
  readonly plan: Plan;
}

const NO_OPTIONS: ProxyOptions = {};

const PROXY_FETCH =
  "proxyFetch(request, target, options?) takes the incoming Request first, then the target";

/** `proxyFetch` on a runtime. Its connections are shared by all calls. */
export function bindProxyFetch(runtime: Runtime): ProxyFetch {
  const plans = new WeakMap<ProxyOptions, Plan>();
  const transports = new Map<number, Transport>();

  function transportFor(options: ProxyOptions): Transport {
    const connectTimeout = options.connectTimeout ?? defaults.connectTimeout;
    let transport = transports.get(connectTimeout);
    if (transport === undefined) {
      transport = runtime.createTransport({ connectTimeout });
      transports.set(connectTimeout, transport);
    }
    return transport;
  }

  return function proxyFetch(request, target, options = NO_OPTIONS) {
    try {
      assertRequest(request, PROXY_FETCH);
      if (target === undefined || target === null) {
        throw new TypeError(
          'fetchway: proxyFetch(request, target) needs a target such as "http://127.0.0.1:4000"',
        );
      }
      let plan = plans.get(options);
      if (plan === undefined) {
        plan = compile(options, transportFor, runtime.inProcess);
        plans.set(options, plan);
      }
      const incoming = runtime.read(request, undefined);
      return forward(incoming, target, plan, undefined, runtime.respond);
    } catch (error) {
      // A stub of workerd's has every method that a Request has.
      const isSwapped = isApp(request);
      return Promise.reject(isSwapped ? new TypeError(`fetchway: ${PROXY_FETCH}`) : error);
    }
  };
}

/**
 * Compiles the options of `createProxy`.
 * @throws TypeError that names the option and the fix
 */
export function createRoute(createOptions: CreateProxyOptions, runtime: Runtime): Route {
  const { target, pool, ...options } = createOptions ?? {};
  if (target === undefined) {
    throw new TypeError(
      'fetchway: createProxy({ target }) needs a target such as "http://127.0.0.1:4000"',
    );
  }
  if (pool !== undefined && options.transport !== undefined) {
    throw new TypeError("fetchway: use `pool` or `transport`, not both");
  }
  if (pool !== undefined && options.fetch !== undefined) {
    throw new TypeError("fetchway: leave out `pool`: `fetch` has connections of its own");
  }
  if (pool !== undefined) checkPoolOptions(pool);
  const connectTimeout = options.connectTimeout ?? defaults.connectTimeout;
  const transportFor = (): Transport => runtime.createTransport({ connectTimeout, ...pool });
  const plan = compile(options, transportFor, runtime.inProcess);
  if (isAddress(target)) assertReachable(parseTarget(target), plan.transport, plan.hostOption);
  return { target, plan };
}

/** The calls of a proxy on this route. */
export function bindProxy({ target, plan }: Route, runtime: Runtime): Proxy {
  const { transport, options } = plan;
  return {
    async fetch(request, context) {
      assertRequest(request, "a proxy's fetch(request, context?) takes the incoming Request first");
      return forward(runtime.read(request, context), target, plan, context, runtime.respond);
    },
    stats: () => transport.stats?.(),
    // A transport that was passed in stays its owner's to close.
    close: async (timeout) => {
      if (options.transport === undefined) await transport.close?.(timeout);
    },
    destroy: () => {
      if (options.transport === undefined) transport.destroy?.();
    },
  };
}
