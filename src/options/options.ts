import type { Context } from "../request/incoming.ts";
import type { ProxyError } from "../error.ts";
import type { MaybeResponse, RequestDraft } from "../exchange/hooks.ts";
import type { Interceptor, RetryOptions } from "../exchange/send.ts";
import type { Transport } from "../transport.ts";

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
   * `forwarded`, `x-forwarded-*`, `x-real-ip`, `x-client-ip`, `x-cluster-client-ip`, `proxy-authorization`.
   *
   * With it the client may assert these to the upstream as it likes. Hop-by-hop and framing fields are refused.
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
  /** An explicit `Host` for the upstream. It wins over `changeOrigin`. Refused where the runtime's client cannot set it. */
  host?: string;
  /**
   * Tells the upstream about the client: `true` sets `X-Forwarded-For`,
   * `-Proto`, `-Host` and `-Port`, `"forwarded"` the `Forwarded` field, `false` neither.
   *
   * What the client sent in them is dropped first, unless `trustProxy` says otherwise; fields of the other kind
   * are dropped even then, so that the two never contradict. `by` in `Forwarded` is the pseudonym of `via`.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc7239
   */
  xfwd?: boolean | "forwarded";
  /**
   * Which peers are proxies of yours, whose forwarding fields are kept and continued: all, none,
   * those at these addresses and CIDR ranges, or those whose address the predicate accepts.
   *
   * `"loopback"`, `"linklocal"` and `"uniquelocal"` name ranges, as in Express. The chain of addresses is walked from right
   * to left, and what stands left of the first that is not trusted is dropped: the client wrote it. A trusted proxy must
   * set or drop all forwarding fields itself: what it lets through is believed. `true` keeps the entire chain, so where
   * clients connect directly they can forge their address; it alone trusts a peer whose address is not known.
   * @default false
   * @example ["10.0.0.0/8", "fd00::/8", "loopback"]
   * @see https://www.rfc-editor.org/rfc/rfc7239#section-8.1
   */
  trustProxy?: boolean | readonly string[] | ((address: string) => boolean);
  /**
   * Tells the client's address, where the runtime cannot or should not: `undefined` for unknown, as is what is
   * not one address. `context` is what the server passed to `fetch`.
   *
   * Taken from a field that clients can send, it is what they like. `trustProxy` asks it only where the runtime knows none.
   * @example (request) => request.headers.get("cf-connecting-ip") ?? undefined
   */
  clientAddress?: (request: Request, context: Context) => string | undefined;
  /**
   * A pseudonym to append to `Via`; `false` adds none, for some upstreams (nginx) stop compressing for requests that carry it.
   *
   * A request that has passed a proxy of this name already goes in circles: it gets 508. Responses get no `Via`.
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
   * Milliseconds until the response headers, counted anew from each chunk of
   * the request body that is sent; then 504. `0` waits for ever. It never cuts a body. On Workers, the runtime moves
   * bodies of up to 64 KiB whose length is known, and their chunks do not count.
   * @default 60000
   */
  timeout?: number;
  /**
   * Milliseconds to connect to the upstream, then 504. `0` leaves it to the
   * system. Where connections are not the proxy's (Workers, `fetch`, `fetchway/undici`), `timeout` covers it.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Milliseconds between two chunks of the response body, then the body fails; Workers, where the runtime moves bodies
   * itself, have no default. `0` waits for ever. Not applied to `text/event-stream`, nor while the client does not read.
   *
   * Where it or `signal` is set on Workers, return the response as it is, its `clone()`, or `new Response(body, response)`.
   * A response made of `headers` alone has an encoded body encoded twice.
   * @default 300000
   */
  idleTimeout?: number;
  /**
   * Follows redirects instead of handing them to the client: `true` up to 5, or a number.
   *
   * Methods change as by the Fetch standard. `authorization`, `cookie`, `proxy-authorization` and
   * the fields of `headers` are left out from the first change of origin on. What may not be followed goes to the client:
   * too many hops, a target that `redirectTargets` refuses, a body that was not kept.
   * @default false
   * @see https://fetch.spec.whatwg.org/#http-redirect-fetch
   */
  followRedirects?: boolean | number;
  /**
   * Where following may go: the origin of the hop before, `"any"`, or where the predicate says yes.
   *
   * `"any"` lets the upstream send this proxy anywhere it can reach, metadata services and private networks
   * included, but never from `https:` to `http:`. A predicate sees every hop and alone decides. Without
   * `followRedirects` it would do nothing and is refused; with `false` it may stand.
   * @default "same-origin"
   * @example (url) => url.protocol === "https:" && url.hostname.endsWith(".example.com")
   */
  redirectTargets?: "same-origin" | "any" | ((url: URL) => boolean);
  /**
   * Bytes of a request body that are kept while it streams, to be sent again by a 307 or 308 that is
   * followed or a `retry` that is set. A longer body is sent once. Nothing is kept where neither is set.
   * @default 1048576
   */
  replayLimit?: number;
  /**
   * Sends a request once more when nothing of a response has come (a kept connection was closed, or a new one refused),
   * or when its status is in `statusCodes`. Only safe methods, and bodies that are still there. `false` never.
   *
   * A response that is discarded for another attempt does not come back. A `POST` in `methods` may be carried out twice.
   * @default { "attempts": 1, "methods": ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"], "statusCodes": [], "delay": 0 }
   * @example { attempts: 2, statusCodes: [503], delay: 100 }
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
   */
  retry?: false | RetryOptions;
  /**
   * Rewrites the domain in `Set-Cookie`: one for all, or a map of domains, `"*"` for any other; `""` takes it
   * off, so that the cookie is the proxy's own. Case and a leading dot do not count. A cookie without one stays so.
   * @example { "internal.example": "shop.example", "*": "" }
   */
  cookieDomainRewrite?: string | Readonly<Record<string, string>>;
  /**
   * Rewrites the path in `Set-Cookie`: one for all, or a map of paths, `"*"` for any other; `""` takes it off.
   * Paths are compared as a whole: `"/internal"` is not `"/internal/x"`. A cookie without one stays so.
   * @example { "/internal": "/" }
   */
  cookiePathRewrite?: string | Readonly<Record<string, string>>;
  /**
   * Rewrites `Location`, `Content-Location` and `Refresh`: `true` makes URLs into the target paths of the proxy;
   * a map replaces prefixes of URLs, the longest first, and does the same for the rest; `false` leaves all.
   *
   * Into the target is what has its origin, or the `Host` it was sent, and its base path. That and its query come
   * off, what `stripPrefix` took goes on again. All else stays, as does what is relative to the request's path.
   * What `pathRewrite` changed, or the app before it called the proxy (`mount`), is not changed back: use a map.
   * @default true
   * @example { "http://internal:4000/": "https://shop.example/" }
   */
  locationRewrite?: boolean | Readonly<Record<string, string>>;
  /** Bytes that a request body may have, then 413 and the upstream request is broken off. No limit if undefined. */
  bodyLimit?: number;
  /**
   * Called before the request is sent, with what will be sent. A `Response` that it returns is the answer instead.
   * @example (draft) => { draft.headers.set("x-request-id", crypto.randomUUID()); }
   */
  onRequest?: (draft: RequestDraft, request: Request) => MaybeResponse;
  /**
   * Runs for each interim response of the upstream (1xx, except 101), such as 103 (Early Hints), whose headers are cleaned
   * already. It cannot change them. Afterwards the response goes to the client, where the server can send it (Node); 100
   * (Continue) does not, because the proxy itself uses it.
   *
   * It runs before `onResponse`, for each attempt and each redirect that is followed. It does nothing where the client is
   * `fetch`, which hides interim responses.
   * @example (status, headers) => console.log(status, headers.get("link"))
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-15.2
   */
  onInformational?: (status: number, headers: Headers, request: Request) => void | Promise<void>;
  /**
   * Called with the upstream's response, its headers already cleaned. A
   * `Response` that it returns is the answer instead. Not called for gateway errors.
   *
   * Where it has a `content-encoding`, `text()` gives compressed bytes; for a changed body, delete that and `content-length`.
   * @example (response) => { response.headers.delete("server"); }
   */
  onResponse?: (response: Response, request: Request) => MaybeResponse;
  /**
   * Called when no response can be had: a `Response` that it returns is the
   * answer instead of the gateway error. `error.cause` may name addresses: log it, do not send it.
   *
   * The exception of a hook is its `cause`: where that is not answered, or `onError` itself throws, the call rejects with it.
   * @example (error) => new Response("back soon", { status: error.status })
   */
  onError?: (error: ProxyError, request: Request) => MaybeResponse;
  /**
   * Steps around sending, the first of them outermost: `request` around the whole request, redirects and retries
   * included; `attempt` around each attempt, on its way to one upstream.
   *
   * An interceptor runs after all that the proxy does to the request, so it can undo that, send a request twice, or
   * keep its chunks. `attempt` also runs for the origins that redirects lead to: check `request.upstream` before
   * adding a credential. An exception goes to `onError`, as a hook's does.
   * @example { attempt: [(next) => (request, scope) => next(sign(request), scope)] }
   */
  interceptors?: {
    readonly request?: readonly Interceptor[];
    readonly attempt?: readonly Interceptor[];
  };
  /**
   * The protocols of `Upgrade` that are tunnelled: the connection carries their bytes once the upstream has
   * answered 101. An `Upgrade` to any other protocol is ignored, and the request forwarded without it; `[]` ignores all.
   *
   * The upstream must speak such a protocol or refuse it: what the client sends after a 101 is neither parsed nor limited.
   * Where the server does not hand upgrades over (on Node: `proxy.attach(server)`), the answer is 501.
   * @default ["websocket"]
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.8
   */
  upgrades?: readonly string[];
  /**
   * Milliseconds that a tunnel may be silent in both directions; then it is closed. `0` waits for ever: a WebSocket may
   * be silent for hours, unless its application sends pings. `timeout` and `idleTimeout` do not apply to tunnels.
   * @default 0
   */
  tunnelTimeout?: number;
  /** Aborts the upstream request when it fires, as the client's leaving does. */
  signal?: AbortSignal;
  /**
   * A `fetch`-shaped function to send requests with, instead of the runtime's own client. An app is a `target` instead, and wins.
   * It must hand through `redirect: "manual"`, is told to accept no coding, and taken to decode only the network's answers. Bind methods.
   * @example (url, init) => fetch(url, { ...init, dispatcher })
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
      | "changeOrigin"
      | "xfwd"
      | "trustProxy"
      | "via"
      | "timeout"
      | "connectTimeout"
      | "idleTimeout"
      | "followRedirects"
      | "redirectTargets"
      | "replayLimit"
      | "locationRewrite"
      | "upgrades"
      | "tunnelTimeout"
    >
  > & { retry: Required<RetryOptions> }
> = {
  changeOrigin: true,
  xfwd: true,
  trustProxy: false,
  via: false,
  timeout: 60_000,
  connectTimeout: 10_000,
  idleTimeout: 300_000,
  followRedirects: false,
  redirectTargets: "same-origin",
  replayLimit: 1_048_576,
  retry: {
    attempts: 1,
    methods: ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"],
    statusCodes: [],
    delay: 0,
  },
  locationRewrite: true,
  upgrades: ["websocket"],
  tunnelTimeout: 0,
};
