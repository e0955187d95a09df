/**
 * The types and classes for a transport or an interceptor of your own: `fetchway/transport`.
 * @module
 */
import type { BodySource } from "./body/source.ts";
import type { Choice } from "./upstreams/failover.ts";
import type { Send } from "./exchange/send.ts";
import type { TlsOptions, Upstream } from "./request/target.ts";
import type { HandedSocket, Tunnel } from "./tunnel.ts";
import type { UpstreamState } from "./upstreams/upstreams.ts";

/**
 * Header fields as a flat list, `[name, value, name, value, …]`. It keeps the order, the case and the duplicates, which
 * reading a `Headers` loses.
 */
export type HeaderList = string[];

/**
 * Header fields in two forms: the runtime's own `Headers`, and the list that was read from it. workerd's `Headers` store
 * the case, repeated lines and bytes above 0x7f, but do not show them when they are read, so the list lacks them. To
 * preserve them, changes are made to a copy of the `Headers`.
 */
export interface OriginalFields {
  /** The runtime's own `Headers`, which may store details that `list` lacks, such as the case of names. */
  readonly headers: Headers;
  /** The list that was read from `headers`. */
  readonly list: HeaderList;
}

/**
 * One request to one upstream. The value is immutable: each step takes a request and returns a new one, and the request
 * that a redirect asks for is made from the request before it.
 */
export interface UpstreamRequest {
  /** The upstream that the request goes to. */
  readonly upstream: Upstream;
  /** The method, as it goes into the request line. */
  readonly method: string;
  /** The path and query in origin-form, byte for byte as they go into the request line. */
  readonly path: string;
  /** All header fields except message framing and `Host`, which the transport writes. */
  readonly headers: HeaderList;
  /** The client's fields as the runtime's own `Headers`, where these keep more than a list can. */
  readonly original?: OriginalFields | undefined;
  /** The `Host` to send; undefined for the upstream's own authority. */
  readonly host: string | undefined;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** The length of a streamed body in bytes, where it is known. */
  readonly contentLength: number | undefined;
  /**
   * The protocol to which the connection is to be switched. The transport writes it as `Upgrade`, and resolves to a
   * response with a `tunnel` if the upstream answers 101.
   */
  readonly upgrade?: string | undefined;
  /** Whether the client accepts trailer fields, and the server can send them: the transport then says so in `TE`. */
  readonly acceptsTrailers?: boolean;
  /** The names of the trailer fields that the client announces; the transport writes them as `Trailer`. */
  readonly trailer?: string | undefined;
  /** @internal The choice that has led to `upstream`, where the target stands for several upstreams. */
  readonly choice?: Choice | undefined;
  /** Whether the request needs a new connection, because a reused one has failed already. */
  readonly newConnection?: boolean;
  /** The header fields before hooks and interceptors changed them; set only where redirects are followed. */
  readonly headersBeforeHooks?: HeaderList | undefined;
}

/** A response on its way to the client: the response of an upstream, or one that was made from an error. */
export interface UpstreamResponse {
  /** The status code. */
  readonly status: number;
  /** The reason phrase; `""` for none. */
  readonly statusText: string;
  /** The header fields. */
  readonly headers: HeaderList;
  /** The upstream's fields as the runtime's own `Headers`, where these keep more than a list can. */
  readonly original?: OriginalFields | undefined;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** The connection to the upstream, which has switched protocols. A response with the status 101 has either this or a `webSocket`. */
  readonly tunnel?: Tunnel | undefined;
  /** The names of the trailer fields that the upstream announces. */
  readonly trailer?: string | undefined;
  /** The WebSocket to the upstream, if the client gives one in place of a connection. */
  readonly webSocket?: HandedSocket | undefined;
  /** The request that this response answers, where a redirect was followed; undefined for the first request. */
  readonly request?: UpstreamRequest | undefined;
  /** The upstream that responds, where it is not the one that the request was sent to at first. */
  readonly upstream?: Upstream | undefined;
  /** Whether the body is encoded already as `Content-Encoding` says, so that the runtime must not encode it. */
  readonly isEncoded?: boolean;
}

/** The features that not every transport has. */
export interface Capabilities {
  /** The content codings that the transport decodes although the proxy does not ask for it. */
  readonly decodes: readonly string[];
  /** Whether a `Host` other than the target's can be sent. */
  readonly host: boolean;
  /** Whether Unix domain sockets can be reached. */
  readonly unixSocket: boolean;
  /** Whether TLS options (CA, client certificate) can be set. */
  readonly tls: boolean;
  /** Whether a connection can be switched to another protocol, such as a WebSocket; not if it is left out. */
  readonly upgrade?: boolean;
  /** Whether the IP address to connect to can be chosen; left out for false. */
  readonly address?: boolean;
  /** Whether HTTP/2 can be asked for; left out for false. */
  readonly http2?: boolean;
  /** Whether timers and connections go on between requests; left out for true. */
  readonly background?: boolean;
}

/** Statistics of a transport's connections, counted since the transport was created. */
export interface PoolStats {
  /** The number of connections that were opened. */
  readonly created: number;
  /** The number of connections that were closed, by either side. */
  readonly closed: number;
  /** The number of connections that could not be opened. */
  readonly failed: number;
  /** The number of connections that were closed because they were silent for too long: idle, or in use (`timeout`). */
  readonly timedOut: number;
  /** The number of requests that were sent on an open connection; each attempt counts. */
  readonly requests: number;
  /** The average number of requests per connection: `requests` divided by `created`. */
  readonly requestsPerSocket: number;
  /** The number of connections that have been switched to another protocol, such as a WebSocket. */
  readonly tunnels: number;
  /** A number that increases with every change of the statistics. */
  readonly version: number;
  /** The present state of the connections, by origin. */
  readonly origins: Readonly<Record<string, OriginStats>>;
  /**
   * The state of each upstream, if the proxy's target stands for several, as one of `balance` does. Each call of `stats()` returns a new object,
   * because these states change without a change of `version`.
   */
  readonly upstreams?: readonly UpstreamState[];
}

/** The connections to one origin at this moment. */
export interface OriginStats {
  /** The number of connections that carry a request. */
  readonly inUse: number;
  /** The number of idle connections that are kept for reuse. */
  readonly free: number;
  /** The number of requests that wait for a connection. */
  readonly waiting: number;
  /** The number of connections that carry a tunnel; they do not count as `inUse`. */
  readonly tunnels: number;
}

/** Sends the proxy's requests to upstreams: an HTTP implementation and its connections. */
export interface Transport {
  /** The name of the transport in error messages, such as `node`, `bun`, `deno`, `workerd` or `fetch`. */
  readonly name: string;
  /** The features that not every transport has. */
  readonly capabilities: Capabilities;
  /**
   * Whether the runtime moves response bodies to the server, and the proxy does not read them, as long as `idleTimeout`
   * and `signal` are not set. With such a transport, `idleTimeout` has no default.
   */
  readonly handsBodiesThrough?: boolean;
  /**
   * Sends one request. It does not follow redirects, send the request again, or decode the response body.
   *
   * Resolves when the response headers have arrived, and rejects with a `ProxyError` if the network fails. A transport must
   * call three methods of the scope:
   *
   * - `onAbort` at the start, with an object that stops the request if the client disconnects or a deadline passes.
   * - `touch` for each chunk of the request body that it sends, so that `timeout` does not abort a slow upload.
   * - `end` when the response body has ended; a `ResponseBody` calls it itself.
   *
   * It may call two more: `interimReceived` passes an interim response (1xx, except 101) on to the client, and the transport
   * must limit their number; `connectionAssigned` tells `onRequestEnd` which connection carries the request.
   *
   * To read the request body, `whole()` and `pipeTo(sink)` cost less than `stream()`. For the response body, a
   * `ResponseBody` into which the transport pushes chunks costs the least on every server.
   *
   * If the attempt ends before the whole request body was read, call `body.cancel()`; otherwise, the client cannot send
   * its next request on the same connection.
   * @example
   * ```ts
   * // examples/transport/index.ts has all of it.
   * import { request } from "node:http";
   * import { ProxyError, ResponseBody, type Transport } from "fetchway/transport";
   *
   * const send: Transport["send"] = ({ upstream, method, path, headers }, scope) =>
   *   new Promise((resolve, reject) => {
   *     const fields = ["Host", upstream.host, ...headers];
   *     const outgoing = request(upstream.origin, { method, path, headers: fields });
   *     let body: ResponseBody | undefined;
   *     const fail = (error: ProxyError) => (outgoing.destroy(), reject(error), body?.fail(error));
   *     scope.onAbort({ fail });
   *     outgoing.on("error", (cause) => fail(new ProxyError("connection_terminated", { cause })));
   *     outgoing.on("response", (message) => {
   *       const inlet = { pause: () => message.pause(), resume: () => message.resume(), cancel: fail };
   *       body = new ResponseBody(scope, inlet);
   *       message.on("data", (chunk) => body.push(chunk)).on("end", () => body.end());
   *       message.on("error", (cause) => fail(new ProxyError("http_response_incomplete", { cause })));
   *       const { statusCode = 0, rawHeaders } = message;
   *       resolve({ status: statusCode, statusText: "", headers: rawHeaders, body });
   *     });
   *     outgoing.end();
   *   });
   * ```
   */
  readonly send: Send;
  /**
   * Looks up a host name, where the transport can connect to an address of the caller's choice. `balance` makes one upstream
   * of each address.
   */
  resolve?(hostname: string): Promise<readonly string[]>;
  /**
   * Checks the TLS options of a target before it is used; left out by a transport that takes any.
   * @throws TypeError that names an option that it does not know
   */
  checkTls?(tls: TlsOptions): void;
  /** Returns the connection statistics, where the transport has them. It returns the same object until they change. */
  stats?(): PoolStats;
  /**
   * Lets running and waiting requests finish, then closes every connection. Later requests fail. Tunnels, which have no
   * end of their own, are closed after the timeout; without a timeout, when the requests have finished.
   * @param timeout milliseconds after which the remaining requests fail, as with `destroy`; `0` for no limit
   */
  close?(timeout?: number): Promise<void>;
  /** Closes every connection immediately; running and waiting requests fail. */
  destroy?(): void;
}

export { BytesBody } from "./body/bytes.ts";
export { type Ownership, type ReadMemory, type Release, sharedMemory } from "./body/memory.ts";
export { type Inlet, ResponseBody } from "./body/responsebody.ts";
export type { BodySource, Sink, StreamOptions, WholeOptions } from "./body/source.ts";
export { StreamBody } from "./body/stream.ts";
export { toWebStream } from "./body/web.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export { deleteHeader, getHeader, setHeader } from "./fields/headers.ts";
export type { ObservedConnection } from "./exchange/observation.ts";
export type { AbortTarget, Client, Listener, Scope } from "./exchange/scope.ts";
export type { Interceptor, Send } from "./exchange/send.ts";
export type { HandedSocket, Tunnel, TunnelHandler } from "./tunnel.ts";
export {
  parseTarget,
  type TargetAddress,
  type TargetOptions,
  type TlsOptions,
  type Upstream,
} from "./request/target.ts";
