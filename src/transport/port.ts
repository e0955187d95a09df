import type { Upstream } from "../target/target.ts";
import type { RunningExchanges, Send } from "./scope.ts";
import type { PoolStats } from "./stats.ts";

/**
 * A function that wraps the sending of a request. It may change the request and the response, send another request, or
 * send none and return its own response.
 * @example
 * ```ts
 * const log: Interceptor = (next) => async (request, scope) => {
 *   const response = await next(request, scope);
 *   console.log(request.method, request.path, response.status);
 *   return response;
 * };
 * ```
 */
export type Interceptor = (next: Send) => Send;

/** The features that not every transport has. */
export interface Capabilities {
  /** The content codings that the transport always decodes, although the proxy wants the encoded bytes. */
  readonly decodes: readonly string[];
  /** Whether a `Host` other than the target's can be sent. */
  readonly host: boolean;
  /** Whether Unix domain sockets can be reached. */
  readonly unixSocket: boolean;
  /** Whether TLS options (CA, client certificate) can be set. */
  readonly tls: boolean;
  /** Whether a connection can be switched to another protocol, such as a WebSocket; false if omitted. */
  readonly upgrade?: boolean;
  /** Whether the IP address to connect to can be chosen; false if omitted. */
  readonly address?: boolean;
  /** Whether HTTP/2 can be asked for; false if omitted. */
  readonly http2?: boolean;
  /** Whether timers and connections continue between requests; true if omitted. */
  readonly background?: boolean;
}

/** An HTTP implementation with its connections, which sends the proxy's requests to upstreams. */
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
  /** @internal Counts the exchanges, where `close` waits for them. */
  readonly running?: RunningExchanges;
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
   * must limit their number; `connectionAssigned` reports the connection that carries the request, for `onRequestEnd`.
   *
   * To read the request body, `whole()` and `pipeTo(sink)` cost less than `stream()`. For the response body, a
   * `ResponseBody` into which the transport pushes chunks costs the least on every server.
   *
   * If the attempt ends before the whole request body was read, call `body.cancel()`; otherwise, the client cannot send
   * its next request on the same connection. But do not cancel a body that you have not begun to read: another attempt may
   * send it.
   * @example
   * ```ts
   * // The complete transport is in examples/transport/index.ts.
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
   * Returns the addresses of a host name, so that `balance` can make an upstream for each address. Left out by a transport
   * that cannot connect to an address of the caller's choice.
   */
  resolve?(hostname: string): Promise<readonly string[]>;
  /**
   * Checks `tls`, `socketPath` and `http2` of a target before the target is used. A transport that accepts all values leaves
   * this method out.
   * @throws TypeError that names what the transport cannot use
   */
  checkTarget?(upstream: Upstream): void;
  /** Returns the connection statistics, where the transport has them. It returns the same object until they change. */
  stats?(): PoolStats;
  /**
   * Lets running and waiting requests finish, then closes every connection. Later requests fail. A tunnel may stay open
   * for any time, so tunnels are closed after the timeout; without a timeout, they are closed when the requests have
   * finished.
   * @param timeout milliseconds after which the remaining requests fail, as with `destroy`; `0` for no limit
   */
  close?(timeout?: number): Promise<void>;
  /** Closes every connection immediately; running and waiting requests fail. */
  destroy?(): void;
}

/**
 * The transports of this package that contain no code of the app. If the app passes one as the option `transport`, its
 * errors need no conversion.
 */
export const ownTransports: WeakSet<Transport> = new WeakSet();
