import type { Release } from "../body/memory.ts";
import type { TlsOptions, Upstream } from "../target/target.ts";

/** The destination of all connections of one pool. The pool's `socketPath` and `tls` apply where the target sets none. */
export interface Destination {
  readonly origin: string;
  readonly hostname: string;
  /** Whether the connections use TLS. */
  readonly secure: boolean;
  readonly socketPath: string | undefined;
  /** The IP address to connect to instead of looking up `hostname`. */
  readonly address?: string | undefined;
  readonly tls: TlsOptions | undefined;
  /**
   * Whether the connections may carry HTTP/2. TLS then offers `h2` and `http/1.1` (ALPN), and the runtime's own socket is
   * opened without the socket options of the HTTP/1.1 client, because an HTTP/2 session reads from the socket.
   */
  readonly http2?: boolean;
}

/** An IP address of a host name. */
export interface ResolvedAddress {
  readonly address: string;
  /** 4 or 6. */
  readonly family: number;
}

/** The result of a lookup of a host name. */
export interface FoundAddresses {
  /**
   * The addresses to which no connection has failed lately. Each result begins with another one of them, unless `isOrder` is
   * true, or `dns: false` keeps the order of the system.
   */
  readonly good: readonly ResolvedAddress[];
  /** The addresses to which a connection has failed lately. They are tried last. */
  readonly down: readonly ResolvedAddress[];
  /**
   * Whether an address is used only if connections to all earlier addresses fail. Otherwise, requests are balanced over
   * the addresses. It is true for `localhost`, because different programs may listen on its addresses.
   */
  readonly isOrder: boolean;
}

/** The members of a pool that a connector uses while it watches the addresses of the pool's host name. */
export interface NameUser {
  /**
   * Returns whether the pool has connections, or has opened one since the last call. If not, its host name is not looked
   * up again.
   */
  checkUsed(): boolean;
  /** Called with the addresses that a later lookup has found. It is not called for a lookup that fails. */
  onAddresses(found: FoundAddresses): void;
}

/**
 * The object whose methods a socket calls. The socket calls them instead of emitting events, so that no request adds or
 * removes a listener.
 */
export interface SocketHandler {
  /**
   * Called with the bytes of each read.
   * @param mayKeep whether the handler may keep the memory of the bytes, if the ArrayBuffer is as long as the bytes. It
   * is false if the socket will read into the same memory again, or if other code sees the memory. True by default
   */
  onData(bytes: Uint8Array, mayKeep?: boolean): void;
  /** Called when the upstream has closed its direction of the connection. */
  onHalfClose(): void;
  /** Called when the socket has room again after a `write` that returned false. */
  onDrain(): void;
  /** Called when the connection has failed; `onClose` follows. */
  onError(error: unknown): void;
  /** Called last, when the connection is closed. */
  onClose(): void;
  /** Called when no byte was sent or received for the time that was set by `setTimeout`. */
  onTimeout(): void;
}

/** An established connection to an upstream, including TLS. It has the members that the HTTP/1.1 transport needs. */
export interface Socket {
  /** The upstream's IP address; undefined where the runtime does not expose it. */
  readonly remoteAddress: string | undefined;
  /** The protocol that TLS has negotiated (ALPN), such as `h2`; undefined if it has negotiated none. */
  readonly protocol?: string | undefined;
  /** Whether the connection is closed. */
  readonly destroyed: boolean;
  /** Whether both directions are open, so that a request can be sent and its response read. */
  readonly usable: boolean;
  /** Whether our direction stays open after the upstream has closed its own. */
  readonly allowHalfOpen: boolean;
  /** Sets the handler; called once. Bytes that arrive earlier wait for the handler, or make the socket close. */
  attach(handler: SocketHandler): void;
  /**
   * Sends bytes in the order of the calls. The bytes must not change before `done` is called.
   * @param done called when the bytes were sent, or will not be sent
   * @returns whether there is room for more; otherwise `onDrain` follows
   */
  write(bytes: Uint8Array, done?: Release): boolean;
  /** Stops reading, so that the upstream must wait. */
  pause(): void;
  /** Continues reading. */
  resume(): void;
  /** Makes the connection keep the process alive. */
  ref(): void;
  /** Lets the process end although the connection is open. */
  unref(): void;
  /** Makes the socket call `onTimeout` after this number of milliseconds in which no byte was sent or received. */
  setTimeout(ms: number): void;
  /**
   * Calls `done` if the upstream has ended its direction with a FIN. After a reset, `onError` is called instead.
   * @param isTunnel whether `done` is called even if bytes still wait to be sent, because the upstream may never take
   * them
   */
  confirmEnd(done: () => void, isTunnel?: boolean): void;
  /** Closes our direction once everything is written. */
  end(): void;
  /**
   * Closes the connection immediately, with a reset where the runtime can send one, so that the upstream does not see a
   * regular end.
   */
  reset(): void;
  /** Closes the connection immediately, in both directions. */
  destroy(): void;
}

/** The callbacks and the values that a connector may use while it opens a connection. */
export interface ConnectScope {
  /** Returns the working addresses of a host name, in the order in which to try them. */
  order(found: FoundAddresses): readonly ResolvedAddress[];
  /** Sets the callback that stops connecting. The callback is called at most once, when the connection is no longer wanted. */
  onCancel(cancel: () => void): void;
  /** The time limit in milliseconds for opening this connection, instead of the pool's own limit; 0 for no limit. */
  readonly connectTimeout?: number | undefined;
  /** The client that the connection names to the upstream (`proxyProtocol`); undefined if it is not known. */
  readonly clientAddress?: string | undefined;
}

/** Opens the connections of `HttpTransport`. Each runtime has its own connector. */
export interface Connector {
  /**
   * Opens a connection, and resolves when it is established. Rejects with a `ProxyError`, or with the runtime's own
   * error, whose `code` the caller reads. Also rejects after the callback of `onCancel` was called. The connector itself
   * applies the time limits of connecting.
   */
  connect(destination: Destination, scope: ConnectScope): Promise<Socket>;
  /**
   * Looks up the host name of a destination in the background whenever its addresses expire, as long as
   * `user.checkUsed()` returns true. Does nothing if the connector has not looked up the name itself. A pool calls this
   * method for each connection that it has opened.
   */
  watch?(destination: Destination, user: NameUser): void;
  /**
   * Looks up a host name. A connector that does not look up names itself leaves this method out.
   * @throws ProxyError `dns_error` or `dns_timeout`
   */
  resolve?(hostname: string): Promise<readonly ResolvedAddress[]>;
  /**
   * Checks `tls`, `socketPath` and `http2` of a target. A connector that accepts all values leaves this method out.
   * @throws TypeError that names the option that the connector cannot use
   */
  checkTarget?(upstream: Upstream): void;
}
