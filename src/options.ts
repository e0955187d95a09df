import type { Context } from "./incoming.ts";
import type { ProxyError } from "./error.ts";
import type { Transport } from "./transport.ts";

/** A request about to be sent. `onRequest` may change every field of it. */
export interface RequestDraft {
  /** Method, as it goes into the request line. */
  method: string;
  /** Path and query in origin-form, the target's already joined. */
  path: string;
  /** Fields without hop-by-hop ones, forwarding fields and `headers` already set. `host` overrides `Host`. */
  headers: Headers;
  /** `undefined` sends the request's own body, `null` none. */
  body: string | Uint8Array | ReadableStream<Uint8Array> | null | undefined;
}

/** What a hook may answer with: a response of its own, or nothing. */
export type MaybeResponse = Response | void | Promise<Response | void>;

/** Options of `proxyFetch` and `createProxy`. */
export interface ProxyOptions {
  /**
   * Fields to set on the upstream request; `null` deletes one.
   *
   * The client's own copy of each, and its `_` alias, never reaches the
   * upstream, even where the value is `null`. They win over everything but `onRequest`.
   * Framing and hop-by-hop fields are refused; `host` has its own option.
   * @example { authorization: "Bearer …", cookie: null }
   */
  headers?: Readonly<Record<string, string | null>>;
  /**
   * Names of fields to drop from the request, those that the proxy adds included.
   * It wins over `forwardHeaders`; `headers` wins over it.
   * @example ["cookie", "x-internal-token"]
   */
  filterHeaders?: readonly string[];
  /**
   * Names of fields to forward although they are dropped by default:
   * `forwarded`, `x-forwarded-*`, `proxy-authorization`.
   *
   * With it the client may assert these to the upstream as it likes. Hop-by-hop and framing
   * fields are refused.
   * @example ["proxy-authorization"]
   */
  forwardHeaders?: readonly string[];
  /**
   * Whether `Host` is the target's; `false` sends the client's.
   *
   * An upstream that trusts `Host` then trusts the client. `host` wins over it.
   * `false` is refused where the runtime's client cannot set `Host`.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.2
   */
  changeOrigin?: boolean;
  /**
   * An explicit `Host` for the upstream. It wins over `changeOrigin`.
   * Refused where the runtime's client cannot set `Host`.
   */
  host?: string;
  /**
   * Tells the upstream about the client: `true` sets `X-Forwarded-For`,
   * `-Proto`, `-Host` and `-Port`, `"forwarded"` the `Forwarded` field, `false` neither.
   *
   * What the client sent in them is dropped first, unless `trustProxy` says otherwise.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc7239
   */
  xfwd?: boolean | "forwarded";
  /**
   * Whether the peer is a proxy of yours whose forwarding fields are kept and
   * continued: all peers, none, or those whose address the predicate accepts.
   *
   * `true` where clients connect directly lets them forge their address.
   * @default false
   * @example (address) => address === "10.0.0.1"
   */
  trustProxy?: boolean | ((address: string) => boolean);
  /**
   * Tells the client's address, where the runtime cannot or should not:
   * `undefined` for unknown. `context` is what the server passed to `fetch`.
   * @example (request) => request.headers.get("cf-connecting-ip") ?? undefined
   */
  clientAddress?: (request: Request, context: Context) => string | undefined;
  /**
   * A pseudonym to append to `Via`; `false` adds none, for some upstreams
   * (nginx) stop compressing for requests that carry it.
   * @default false
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.6.3
   */
  via?: string | false;
  /**
   * A path prefix to take off before the target's base path goes in front.
   * A request outside it is forwarded as it is. `pathRewrite` comes after it.
   * @example "/api"
   */
  stripPrefix?: string;
  /**
   * Rewrites path and query before the target's base path goes in front: a map
   * of regular expressions to replacements, all applied in order, or a function.
   *
   * The result cannot leave the target's base path: such a request gets 400.
   * @example { "^/old/": "/new/" }
   */
  pathRewrite?:
    | Readonly<Record<string, string>>
    | ((path: string, request: Request) => string | Promise<string>);
  /**
   * Milliseconds until the response headers, counted anew from each piece of
   * the request body that is sent; then 504. `0` waits for ever. It never cuts a body.
   * @default 60000
   */
  timeout?: number;
  /**
   * Milliseconds to connect to the upstream, then 504. `0` leaves it to the
   * system. Only on Node; elsewhere `timeout` covers it.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Milliseconds between two pieces of the response body, then the body fails.
   * `0` waits for ever. Not applied to `text/event-stream`, nor while the
   * client does not read.
   * @default 300000
   */
  idleTimeout?: number;
  /**
   * Bytes that a request body may have, then 413 and the upstream request is
   * broken off. No limit if undefined.
   */
  bodyLimit?: number;
  /**
   * Called before the request is sent, with what will be sent. A `Response`
   * that it returns is the answer, and nothing is sent.
   * @example (draft) => { draft.headers.set("x-request-id", crypto.randomUUID()); }
   */
  onRequest?: (draft: RequestDraft, request: Request) => MaybeResponse;
  /**
   * Called with the upstream's response, its headers already cleaned. A
   * `Response` that it returns is the answer instead. Not called for gateway errors.
   * @example (response) => { response.headers.delete("server"); }
   */
  onResponse?: (response: Response, request: Request) => MaybeResponse;
  /**
   * Called when no response can be had: a `Response` that it returns is the
   * answer instead of the gateway error. `error.cause` may name addresses: log it, do not send it.
   * @example (error) => new Response("back soon", { status: error.status })
   */
  onError?: (error: ProxyError, request: Request) => MaybeResponse;
  /** Aborts the upstream request when it fires, as the client's leaving does. */
  signal?: AbortSignal;
  /**
   * A `fetch`-shaped function to send requests with, instead of the runtime's
   * own client. It must hand through `redirect: "manual"`; codings that it decodes are the caller's to know.
   * @example (request, init) => app.request(request, init)
   */
  fetch?: (url: string, init: RequestInit) => Response | Promise<Response>;
  /** Connections to use, made by `createTransport`. They stay the caller's to close. */
  transport?: Transport;
}

/** Every default there is. */
export const defaults: Readonly<
  Required<
    Pick<
      ProxyOptions,
      "changeOrigin" | "xfwd" | "trustProxy" | "via" | "timeout" | "connectTimeout" | "idleTimeout"
    >
  >
> = {
  changeOrigin: true,
  xfwd: true,
  trustProxy: false,
  via: false,
  timeout: 60_000,
  connectTimeout: 10_000,
  idleTimeout: 300_000,
};

/** Options of a pool of connections, for `createTransport` and for `createProxy`'s `pool`. */
export interface PoolOptions {
  /**
   * Connections to one origin at the same time; requests beyond it wait.
   * @default 256
   */
  maxSockets?: number;
  /**
   * Idle connections kept to one origin; those beyond it are closed.
   * @default 64
   */
  maxFreeSockets?: number;
  /**
   * Milliseconds that an idle connection is kept. Below the 5 s of usual
   * upstreams, so that it is not the upstream that closes first; a shorter
   * `Keep-Alive: timeout` of the upstream wins.
   * @default 4000
   */
  freeSocketTimeout?: number;
  /**
   * Milliseconds to connect; `0` leaves it to the system.
   * @default 10000
   */
  connectTimeout?: number;
}

/** Pool options with every default in its place. */
export function fillPoolOptions(options: PoolOptions): Required<PoolOptions> {
  return {
    maxSockets: options.maxSockets ?? poolDefaults.maxSockets,
    maxFreeSockets: options.maxFreeSockets ?? poolDefaults.maxFreeSockets,
    freeSocketTimeout: options.freeSocketTimeout ?? poolDefaults.freeSocketTimeout,
    connectTimeout: options.connectTimeout ?? poolDefaults.connectTimeout,
  };
}

/** Every default of a pool. */
export const poolDefaults: Readonly<Required<PoolOptions>> = {
  maxSockets: 256,
  maxFreeSockets: 64,
  freeSocketTimeout: 4_000,
  connectTimeout: 10_000,
};
