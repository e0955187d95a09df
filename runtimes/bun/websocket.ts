import { clientGone, ProxyError } from "../../src/error.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import type { Tunnel } from "../../src/transport/tunnel.ts";
import {
  type ClientSocket,
  readRelayLimits,
  Relay,
  relayLimits,
  type RelayLimits,
} from "../../src/websocket/relay.ts";

/** The part of Bun's WebSocket that the proxy uses. It is declared here, so that no types package is needed. */
export interface BunSocket {
  /** The value that was passed to `upgrade` with the handshake. */
  readonly data: unknown;
  /** Sends a message. */
  send(data: string | Uint8Array<ArrayBuffer>): number;
  /** Sends a close frame. */
  close(code?: number, reason?: string): void;
  /** Closes the connection without a close frame. */
  terminate(): void;
  /** Returns the number of bytes that were passed to `send` and are still buffered in this process. */
  getBufferedAmount(): number;
  /** Stops reading from the client. */
  pause?(): void;
  /** Continues reading from the client. */
  resume?(): void;
}

/** The option `websocket` of Bun's server. */
export interface WebSocketHandlers {
  /** Called when the server has answered the handshake. */
  open(socket: BunSocket): void;
  /** Called when the client has sent a message. */
  message(socket: BunSocket, data: string | Uint8Array): void;
  /** Called when the client has taken all bytes that waited for it. */
  drain(socket: BunSocket): void;
  /** Called when the client has sent a ping, which the server answers. */
  ping(socket: BunSocket): void;
  /** Called when the client has sent a pong. */
  pong(socket: BunSocket): void;
  /** Called when the WebSocket is closed. */
  close(socket: BunSocket, code: number, reason: string): void;
  /** The maximum size of a client's message in bytes. If a message is larger, Bun closes the WebSocket with the code 1009. */
  readonly maxPayloadLength: number;
  /**
   * The number of bytes that may wait for a client. Bun drops messages beyond it, so the proxy stops reading from the upstream
   * earlier.
   */
  readonly backpressureLimit: number;
  /** Whether Bun closes a WebSocket after it has dropped a message. Otherwise the client would not notice the loss. */
  readonly closeOnBackpressureLimit: boolean;
  /**
   * Seconds without traffic after which Bun closes a WebSocket. It is 0 (never), because the option `tunnelTimeout` limits this
   * time.
   */
  readonly idleTimeout: number;
}

/** The method of Bun's server that upgrades a request to a WebSocket. */
export interface BunUpgrader {
  upgrade(request: Request, options: { data: unknown; headers: Headers }): boolean;
}

/** A client's WebSocket, from the answer to its handshake until it is closed. */
class BunClient implements ClientSocket {
  readonly #tunnel: Tunnel;
  readonly #limits: RelayLimits;
  #socket: BunSocket | undefined;
  relay: Relay | undefined;

  constructor(tunnel: Tunnel, limits: RelayLimits) {
    this.#tunnel = tunnel;
    this.#limits = limits;
  }

  start(socket: BunSocket): void {
    this.#socket = socket;
    this.relay = new Relay(this, this.#tunnel, () => (this.relay = undefined), this.#limits);
    this.relay.start();
  }

  /** Whether the server has called the handler `open` of this file. */
  get isStarted(): boolean {
    return this.#socket !== undefined;
  }

  send(data: string | Uint8Array<ArrayBuffer>): void {
    this.#socket?.send(data);
  }

  bufferedAmount(): number {
    return this.#socket?.getBufferedAmount() ?? 0;
  }

  close(code: number | undefined, reason: string): void {
    // Given 1005, Bun sends a close frame without a code. Given no code, it sends 1000.
    this.#socket?.close(code ?? 1005, reason);
  }

  terminate(): void {
    this.#socket?.terminate();
  }

  pause(): void {
    this.#socket?.pause?.();
  }

  resume(): void {
    this.#socket?.resume?.();
  }
}

/** Returns the client of a WebSocket; undefined if the app itself has accepted the WebSocket. */
function clientOf({ data }: BunSocket): BunClient | undefined {
  return data instanceof BunClient ? data : undefined;
}

const handlers: WebSocketHandlers = {
  open: (socket) => clientOf(socket)?.start(socket),
  message: (socket, data) => clientOf(socket)?.relay?.onClientMessage(data),
  drain: (socket) => clientOf(socket)?.relay?.onClientDrain(),
  ping: (socket) => clientOf(socket)?.relay?.onActivity(),
  pong: (socket) => clientOf(socket)?.relay?.onActivity(),
  close: (socket, code, reason) => clientOf(socket)?.relay?.onClientClose(code, reason),
  maxPayloadLength: relayLimits.maxMessage,
  // Leave room: while up to `highWaterMark` bytes wait, the upstream's next chunk may complete a message of the maximum size.
  backpressureLimit: 2 * relayLimits.maxMessage,
  closeOnBackpressureLimit: true,
  idleTimeout: 0,
};

/**
 * Whether any code of this process has read `handlers`. Bun's server does not show which handlers it has. If no code has read
 * `handlers`, the server has none, or those of the app or of a framework. Such handlers do not know the proxy's WebSockets, and
 * an exception that they throw would end the process.
 */
let isRead = false;

/** Returns whether a server of this process can have the proxy's handlers. */
export function areHandlersRead(): boolean {
  return isRead;
}

/** Returns the handlers for `proxy.websocket`. */
export function readHandlers(): WebSocketHandlers {
  isRead = true;
  return websocket;
}

/**
 * Handles the WebSockets of proxies on Bun's server, as the server's option `websocket`. All proxies share this object. Without
 * the option, a WebSocket handshake gets 501. The handlers ignore the WebSockets that the app itself has accepted, so that the
 * app's own handlers can call them for every WebSocket.
 * @example
 * ```ts
 * Bun.serve({ fetch: proxy.fetch, websocket: proxy.websocket });
 * ```
 */
export const websocket: WebSocketHandlers = /* @__PURE__ */ new Proxy(handlers, {
  get(target, name) {
    isRead = true;
    return Reflect.get(target, name) as unknown;
  },
});

/** Advice for error messages: how to make Bun's server call the proxy's handlers. */
export const WEBSOCKET_HINT: string =
  "give Bun's server `websocket: proxy.websocket` (under srvx and h3 in the option `bun`), " +
  "or handlers of the app that begin with `...proxy.websocket` and call its handlers";

/**
 * Answers a handshake, and connects the client with the upstream.
 * @throws ProxyError if the client has disconnected, or Bun's server does not call the proxy's handlers
 */
export function relayWebSocket(
  request: Request,
  server: BunUpgrader,
  response: Response,
  tunnel: Tunnel,
  options: TunnelOptions,
): Response {
  const client = new BunClient(tunnel, readRelayLimits(options));
  const headers = new Headers(response.headers);
  // Without this field, Bun chooses the client's first subprotocol, although the upstream has chosen none (RFC 6455 §4.2.2).
  // Bun does not write the field if its value is empty.
  if (!headers.has("sec-websocket-protocol")) headers.set("sec-websocket-protocol", "");
  let isUpgraded = false;
  let cause: unknown;
  try {
    isUpgraded = server.upgrade(request, { data: client, headers });
  } catch (thrown) {
    cause = thrown;
  }
  // Bun calls the handler `open` before `upgrade` returns, and then ignores the response that this function returns.
  if (client.isStarted) return new Response(null, { status: 101 });
  if (!isUpgraded && cause === undefined) throw clientGone();
  throw new ProxyError("http_request_error", {
    status: 501,
    message: `Bun's server does not call the proxy's handlers for WebSockets: ${WEBSOCKET_HINT}`,
    cause,
  });
}
