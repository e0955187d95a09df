/**
 * What a transport or an interceptor of an app's own is made of: `fetchway/transport`.
 * @module
 */
import type { BodySource } from "./body/source.ts";
import type { Send } from "./send.ts";
import type { Upstream } from "./target.ts";

/**
 * Header fields as a flat list, `[name, value, name, value, …]`: it keeps the
 * order, the case and the duplicates that `Headers` loses.
 */
export type HeaderList = string[];

/**
 * Fields as a runtime's own object holds them, and as the list read from it.
 * What that list has lost (workerd's: case, repeated lines, bytes above 0x7f) is kept by changing a copy.
 */
export interface OriginalFields {
  /** The runtime's own `Headers`, with all that it keeps of them. */
  readonly headers: Headers;
  /** What they say, as a list. */
  readonly list: HeaderList;
}

/**
 * One request to one upstream. An immutable value: every step takes a hop and
 * returns a new one, and the next hop of a redirect comes from the previous one.
 */
export interface UpstreamRequest {
  /** Where it goes. */
  readonly upstream: Upstream;
  /** Method, as it goes into the request line. */
  readonly method: string;
  /** Path and query in origin-form, byte for byte what goes into the request line. */
  readonly path: string;
  /** Complete but for framing and `Host`, which the transport writes. */
  readonly headers: HeaderList;
  /** What the client's own fields were, where that is more than a list can say. */
  readonly original?: OriginalFields | undefined;
  /** The `Host` to send; the upstream's own authority if undefined. */
  readonly host: string | undefined;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** Length of a streamed body in bytes where it is known. */
  readonly contentLength: number | undefined;
  /** Whether only a new connection will do: a kept one has failed already. */
  readonly fresh?: boolean;
  /** The fields before hooks and interceptors changed them, where redirects are followed: see `redirect.ts`. */
  readonly given?: HeaderList | undefined;
}

/** A response on its way: what an upstream answered, or what an error becomes. */
export interface UpstreamResponse {
  /** Status code. */
  readonly status: number;
  /** Reason phrase; `""` for none. */
  readonly statusText: string;
  /** Its fields. */
  readonly headers: HeaderList;
  /** What the upstream's own fields were, where that is more than a list can say. */
  readonly original?: OriginalFields | undefined;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** The request that it answers, where that is another than the one that was sent first: a redirect was followed. */
  readonly request?: UpstreamRequest | undefined;
  /** Whether the body is encoded as `Content-Encoding` says, where a runtime would encode a script's body itself. */
  readonly isEncoded?: boolean;
}

/** What a runtime's client can do that not every one can. */
export interface Capabilities {
  /** Content codings that the client undoes although nobody asked it to. */
  readonly decodes: readonly string[];
  /** A `Host` other than the target's can be sent. */
  readonly host: boolean;
  /** Unix domain sockets can be reached. */
  readonly unixSocket: boolean;
  /** TLS options (CA, client certificate) can be set. */
  readonly tls: boolean;
}

/** Counters of a transport's connections; all of them count from its creation. */
export interface PoolStats {
  /** Connections that were opened. */
  readonly created: number;
  /** Connections that were closed, by either side. */
  readonly closed: number;
  /** Connections that could not be opened. */
  readonly failed: number;
  /** Connections that were closed because they were silent for too long: idle ones, and those in use by `timeout`. */
  readonly timedOut: number;
  /** Requests that were sent on an open connection; each attempt counts. */
  readonly requests: number;
  /** `requests` divided by `created`: how often a connection was used, on average. */
  readonly requestsPerSocket: number;
  /** A number that grows with everything that changes here. */
  readonly version: number;
  /** By origin, what is there right now. */
  readonly origins: Readonly<Record<string, OriginStats>>;
}

/** The connections to one origin at this moment. */
export interface OriginStats {
  /** Connections with a request on them. */
  readonly inUse: number;
  /** Idle connections, kept for reuse. */
  readonly free: number;
  /** Requests that wait for a connection. */
  readonly waiting: number;
}

/** A client that sends requests for the proxy. */
export interface Transport {
  /** Its name in messages, such as `node`, `bun`, `deno`, `workerd` or `fetch`. */
  readonly name: string;
  /** What it can do that not every one can. */
  readonly capabilities: Capabilities;
  /**
   * Whether response bodies go from the client to the server without being seen here, as long as
   * `idleTimeout` and `signal` are not set: `idleTimeout` has no default then.
   */
  readonly handsBodiesThrough?: boolean;
  /**
   * Sends one request; never follows a redirect, retries or decodes.
   *
   * Resolves when the response headers have arrived, and rejects with a `ProxyError` where the network fails. Of the
   * scope, a transport calls at most three methods:
   *
   * - `onAbort` at the start, with what stops the request: the client has left, or a deadline has passed.
   * - `touch` for each chunk of the request's body that it sends, so that a slow upload is not cut by `timeout`.
   * - `end` when the response's body has ended, unless that is a `ResponseBody`, which does so itself.
   *
   * The request's body takes its shortest way with `pipeTo(sink)`, or as bytes with `whole()`; a `ResponseBody` into
   * which the transport pushes chunks takes the shortest way to every server.
   * @example
   * ```ts
   * // examples/transport.ts has all of it.
   * import { request } from "node:http";
   * import { ProxyError, ResponseBody, type Transport } from "fetchway/transport";
   *
   * const send: Transport["send"] = ({ upstream, method, path, headers }, scope) =>
   *   new Promise((resolve, reject) => {
   *     const outgoing = request(upstream.origin, { method, path, headers: [...headers] });
   *     const stop = (error: Error) => (outgoing.destroy(), reject(error));
   *     scope.onAbort({ fail: stop });
   *     outgoing.on("error", (cause) => stop(new ProxyError("connection_terminated", { cause })));
   *     outgoing.on("response", (message) => {
   *       const inlet = { pause: () => message.pause(), resume: () => message.resume(), fail: stop };
   *       const body = new ResponseBody(scope, inlet);
   *       message.on("data", (chunk) => body.push(chunk)).on("end", () => body.end());
   *       resolve({ status: message.statusCode, statusText: "", headers: message.rawHeaders, body });
   *     });
   *     outgoing.end();
   *   });
   * ```
   */
  readonly send: Send;
  /** What the connections have been doing, where the runtime tells: the same object until something changes. */
  stats?(): PoolStats;
  /**
   * Lets running and waiting requests finish, then closes every connection. Later requests fail.
   * @param timeout milliseconds that they may take, then as `destroy`; `0` for as long as they like
   */
  close?(timeout?: number): Promise<void>;
  /** Closes every connection at once; running and waiting requests fail. */
  destroy?(): void;
}

export { BytesBody } from "./body/bytes.ts";
export { type Inlet, type Recycler, ResponseBody } from "./body/response.ts";
export type { BodySource, Sink, StreamOptions } from "./body/source.ts";
export { StreamBody } from "./body/stream.ts";
export { toWebStream } from "./body/web.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export { getHeader } from "./headers.ts";
export type { AbortTarget, Client, Listener, Scope } from "./scope.ts";
export type { Interceptor, Send } from "./send.ts";
export type { TlsOptions, Upstream } from "./target.ts";
