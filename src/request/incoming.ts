import type { BodySource } from "../body/source.ts";
import { StreamBody } from "../body/stream.ts";
import { UnframedBody } from "../body/unframed.ts";
import { getHeader, toHeaderList, type HeaderList } from "../fields/headers.ts";
import type { TunnelOptions } from "../options/limitoptions.ts";
import type { Hints } from "../transport/message.ts";
import type { Tunnel, WatchedTunnel } from "../transport/tunnel.ts";

import type { Client, Listener, RunningExchanges } from "../transport/scope.ts";
import type { ProxyError } from "../error.ts";
import { findRoutePrefix } from "./mount.ts";
import { authorityOf, pathOf } from "../target/target.ts";

/** Keeps the process running until a promise is settled, on runtimes where work ends with the response (Workers). */
export type WaitUntil = (promise: Promise<unknown>) => void;

/** An incoming request in the form that the core reads. Some runtimes create it at a lower cost than from a `Request`. */
export interface Incoming extends Client {
  readonly method: string;
  /** The path and query in origin-form, byte for byte. */
  readonly path: string;
  /** The authority of the request's URL; `""` if it has none. It is used only without `named` and without a `Host` field. */
  readonly authority: string;
  /**
   * The authority that the client has written in the request target (absolute-form, or `:authority` in HTTP/2), to compare it
   * with `Host`; undefined if there is none, or the server does not show it.
   */
  readonly named?: string | undefined;
  /**
   * The reason why the request must not be forwarded, although the server has accepted it; undefined if it may be
   * forwarded.
   */
  readonly fault?: ProxyError | undefined;
  /** Whether the scheme is `https`. */
  readonly secure: boolean;
  readonly headers: HeaderList;
  /** Details of the upstream request that only one runtime needs. */
  readonly hints?: Hints;
  /** The IP address of the client's connection, where it is known. */
  readonly address: string | undefined;
  /** The body; `null` for none. After a call of its `measure`, the result of that call replaces it. */
  body: BodySource | null;
  /** Keeps the process running for work that outlasts the response; set where the server passes such a function. */
  waitUntil?: WaitUntil | undefined;
  /**
   * The prefix that a framework has removed from the path before it passed the request on, such as `/api`; `""` for none. It
   * is a getter, because only a response that refers to a path needs it.
   */
  readonly mount?: string;
  /** The protocol to which the server can switch the connection of this request; undefined where it cannot. */
  readonly upgrade?: string | undefined;
  /** Whether the server can send trailer fields to this client. */
  readonly carriesTrailers?: boolean;
  /**
   * Changes the header fields of an upgrade, in place, before they are forwarded. A server that does not hand out the
   * client's connection needs it, because the proxy then makes its own handshake with the upstream.
   */
  prepareUpgrade?(headers: HeaderList): void;
  /**
   * Switches the client's connection by the server's own means, and connects the client with the tunnel. Called after all
   * hooks. A server that reads the tunnel from the response does not need this.
   * @param response the 101 response after `onResponse`
   * @param options the options that limit the tunnel
   * @returns what the handler returns to the server
   * @throws ProxyError if the server does not switch the connection; the caller closes the tunnel
   */
  completeUpgrade?(
    response: Response,
    tunnel: Tunnel,
    options: TunnelOptions,
  ): Response | Promise<Response>;
  /**
   * Wraps a tunnel so that it reports when it is closed, and how many bytes go through it. Left out by servers that connect
   * no client with a tunnel, so that their bundles leave out the code.
   */
  watchTunnel?(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel;
  /** Whether the server shows no body of a GET or HEAD, although the client may have sent one. */
  readonly hidesGetBody?: boolean;
  /**
   * Returns a promise that resolves when the earlier requests on the same connection are finished, if this request must
   * wait for them (RFC 9112 §9.3.2); undefined if it may be sent immediately. Called once, when the request arrives.
   */
  turn?(): Promise<void> | undefined;
  /** Returns the HTTP version of the request; `1.1` where the server does not show it. */
  version(): string;
  /** Returns the request as a `Request`, for hooks. It is made at the first call. */
  request(): Request;
}

/**
 * Returns the error of a request whose body was read before. An attempt to forward that request would hang, or send an
 * empty body.
 */
export function bodyWasRead(): TypeError {
  return new TypeError(
    "fetchway: the request's body has already been read; proxy before reading it, " +
      "read request.clone() instead, or pass new Request(request.url, { method, headers, body }) " +
      "without the old content-length",
  );
}

/** Reads a request only through the standard interface `Request`. */
export class WebIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly secure: boolean;
  readonly headers: HeaderList;
  readonly address: string | undefined;
  readonly body: BodySource | null;
  running: RunningExchanges | undefined;
  readonly #request: Request;
  readonly #version: string;

  /**
   * @param headers the header fields, where they differ from those of `request.headers`
   * @param body the body; undefined for the request's own
   * @throws TypeError if the request's body was read before
   */
  constructor(
    request: Request,
    address: string | undefined,
    version = "1.1",
    headers: HeaderList = toHeaderList(request.headers),
    body?: BodySource | null,
  ) {
    if (request.bodyUsed) throw bodyWasRead();
    const { url, method } = request;
    this.#request = request;
    this.#version = version;
    this.method = method;
    this.path = pathOf(url);
    this.authority = authorityOf(url);
    this.secure = url.startsWith("https:");
    this.headers = headers;
    this.address = address;
    this.body = body === undefined ? this.#readBody() : body;
  }

  #readBody(): BodySource | null {
    // A `Request` with one of these methods has no body. Do not read `body` then, because that creates a stream on some
    // servers.
    const stream = this.method === "GET" || this.method === "HEAD" ? null : this.#request.body;
    if (stream === null) return null;
    const length = getHeader(this.headers, "content-length");
    if (length !== undefined) return new StreamBody(stream, Number(length));
    const isChunked = getHeader(this.headers, "transfer-encoding") !== undefined;
    return isChunked ? new StreamBody(stream) : new UnframedBody(stream);
  }

  get mount(): string {
    return findRoutePrefix(this.#request, this.path);
  }

  get hidesGetBody(): boolean {
    return true;
  }

  version(): string {
    return this.#version;
  }

  request(): Request {
    return this.#request;
  }

  listen(listener: Listener): void {
    const { signal } = this.#request;
    if (signal.aborted) listener.handleEvent();
    else signal.addEventListener("abort", listener);
  }

  unlisten(listener: Listener): void {
    this.#request.signal.removeEventListener("abort", listener);
  }
}
