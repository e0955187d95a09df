import { clientGone } from "../error.ts";
import { fillTunnelOptions, limitSchema, type TunnelOptions } from "../options/limitoptions.ts";
import { isPoolClosed } from "../transport/closing.ts";
import { type Tunnel, type TunnelHandler, unreadEnd } from "../transport/tunnel.ts";
import {
  CloseCode,
  type FrameHandler,
  FrameReader,
  isCloseCode,
  Opcode,
  writeClose,
  writeFrame,
} from "./frames.ts";

/** The client's WebSocket on a server that exposes messages instead of bytes. */
export interface ClientSocket {
  /** Sends a message. */
  send(data: string | Uint8Array<ArrayBuffer>): void;
  /** Returns the number of bytes that were passed to `send` and are still buffered in this process. */
  bufferedAmount(): number;
  /** Sends a close frame. */
  close(code: number | undefined, reason: string): void;
  /** Closes the connection; without a close frame, if the server can do that. */
  terminate(): void;
  /** Stops reading, so that the client has to wait; left out where the server cannot. */
  pause?(): void;
  /** Continues reading. */
  resume?(): void;
}

/** The bounds of a relay. */
export interface RelayLimits {
  /** The largest message of either side in bytes. */
  readonly maxMessage: number;
  /** The number of bytes for the client that may be buffered before the relay pauses the upstream. */
  readonly highWaterMark: number;
  /**
   * The number of bytes of one client that may wait for the upstream, above which the WebSocket is closed with 1013. A server
   * that can pause the client seldom reaches this limit.
   */
  readonly maxWaiting: number;
  /** Milliseconds that a WebSocket stays open after one side has closed it; 0 for no limit. */
  readonly closeTimeout: number;
  /** Milliseconds that both sides may be silent; 0 for no limit. */
  readonly idleTimeout: number;
}

/** Returns the limits of a relay, as the options of the proxy set them. */
export function readRelayLimits(options: TunnelOptions): RelayLimits {
  const { tunnelTimeout, tunnelCloseTimeout } = fillTunnelOptions(options);
  return { ...relayLimits, idleTimeout: tunnelTimeout, closeTimeout: tunnelCloseTimeout };
}

/** The default limits of a relay. */
export const relayLimits: RelayLimits = {
  maxMessage: 16 * 1024 * 1024,
  highWaterMark: 1024 * 1024,
  maxWaiting: 16 * 1024 * 1024,
  closeTimeout: limitSchema.tunnelCloseTimeout.default,
  idleTimeout: 0,
};

/**
 * The close code ("Going Away") for a client when the proxy stops, for an upstream whose client has sent too large a
 * message, and for both sides when they were silent for too long.
 */
const GOING_AWAY = 1001;
/** The close code for a client whose upstream has violated the protocol (registered with IANA as "Bad Gateway"). */
const BAD_GATEWAY = 1014;
/**
 * The close code ("Try Again Later") for both sides when more than `maxWaiting` bytes of the client wait for the
 * upstream.
 */
const TRY_AGAIN_LATER = 1013;
/** Milliseconds between two reads of `bufferedAmount`, because some servers do not report when it has fallen. */
const POLL_INTERVAL = 10;

/**
 * Relays messages between a client's WebSocket and an upstream's connection, for servers that hand out no raw socket.
 *
 * Messages, subprotocols and close codes pass through. Pings do not: the server answers those of the client, and the
 * relay those of the upstream. A slow client pauses the upstream, and a slow upstream pauses the client if the server
 * can stop reading.
 */
export class Relay implements TunnelHandler, FrameHandler {
  readonly #client: ClientSocket;
  readonly #upstream: Tunnel;
  readonly #limits: RelayLimits;
  readonly #onEnd: () => void;
  readonly #reader: FrameReader;
  /** The number of bytes in the client's messages since the upstream's connection became full. */
  #waiting = 0;
  #isFull = false;
  /** The payload of the upstream's last ping while its pong waits for room; otherwise undefined. */
  #ping: Uint8Array | undefined;
  #isClientClosed = false;
  #isUpstreamClosed = false;
  /** Whether a close frame was sent to the upstream; nothing may follow it. */
  #hasSentClose = false;
  #isOver = false;
  #poll: ReturnType<typeof setTimeout> | undefined;
  #closing: ReturnType<typeof setTimeout> | undefined;
  #idle: ReturnType<typeof setTimeout> | undefined;
  /** The time of the last bytes of either side, on the clock of `performance.now()`. */
  #lastActivity = 0;

  /** @param onEnd called once, when both sides are closed */
  constructor(
    client: ClientSocket,
    upstream: Tunnel,
    onEnd: () => void,
    limits: RelayLimits = relayLimits,
  ) {
    this.#client = client;
    this.#upstream = upstream;
    this.#limits = limits;
    this.#onEnd = onEnd;
    this.#reader = new FrameReader(this, limits.maxMessage);
  }

  /**
   * Begins to relay. The upstream's first bytes may close the client's WebSocket before this method returns, so the caller must
   * be ready to call `onClientClose`.
   */
  start(): void {
    const { idleTimeout } = this.#limits;
    if (idleTimeout > 0) this.#waitForSilence(idleTimeout);
    this.onActivity();
    this.#upstream.attach(this);
  }

  // ── from the client ──

  /** Restarts the idle timeout. Called when either side has sent something. */
  onActivity(): void {
    if (this.#idle !== undefined) this.#lastActivity = performance.now();
  }

  /** Called with each message of the client. */
  onClientMessage(data: string | Uint8Array): void {
    this.onActivity();
    if (this.#hasSentClose || this.#isUpstreamClosed) return;
    const isText = typeof data === "string";
    const payload = isText ? new TextEncoder().encode(data) : data;
    // The runtime's server may accept larger messages than the relay.
    if (payload.byteLength > this.#limits.maxMessage) {
      this.#closeUpstream(GOING_AWAY, "a client message is too large");
      this.#closeClient(CloseCode.tooLarge, `a message exceeds ${this.#limits.maxMessage} bytes`);
      return;
    }
    if (this.#write(writeFrame(isText ? Opcode.text : Opcode.binary, payload))) return;
    this.#waiting += payload.byteLength;
    if (this.#waiting <= this.#limits.maxWaiting) return;
    this.#closeUpstream(TRY_AGAIN_LATER, "the client sends faster than the upstream reads");
    this.#closeClient(TRY_AGAIN_LATER, "the upstream reads too slowly");
  }

  /** Called when the client has closed the WebSocket; `code` is 1005 without a code, 1006 without a close frame. */
  onClientClose(code: number, reason: string): void {
    this.#isClientClosed = true;
    clearTimeout(this.#poll);
    if (isCloseCode(code)) this.#closeUpstream(code, reason);
    else if (code === 1005) this.#closeUpstream(undefined, "");
    // After a close frame was sent, send no reset, which could overtake the frame. A closed tunnel itself reports why it closed.
    else if (!this.#hasSentClose && !this.#isUpstreamClosed) this.#upstream.destroy();
    // Continue reading, because the upstream's close frame may follow other messages.
    if (!this.#isUpstreamClosed) this.#upstream.resume();
    this.#finish();
  }

  /** Called when bytes for the client have left the buffer of the server. */
  onClientDrain(): void {
    if (this.#isUpstreamClosed || this.#client.bufferedAmount() > 0) return;
    this.#upstream.resume();
  }

  // ── from the upstream's connection ──

  /** @internal */
  onData(bytes: Uint8Array): void {
    this.onActivity();
    this.#reader.feed(bytes);
    const { highWaterMark } = this.#limits;
    if (this.#isClientClosed || this.#client.bufferedAmount() <= highWaterMark) return;
    this.#upstream.pause();
    this.#poll ??= setTimeout(() => this.#resumeDrained(), POLL_INTERVAL);
  }

  /** @internal */
  onDrain(): void {
    this.#waiting = 0;
    if (this.#isFull && !this.#isClientClosed) this.#client.resume?.();
    this.#isFull = false;
    const ping = this.#ping;
    this.#ping = undefined;
    if (ping !== undefined) this.onPing(ping);
  }

  /** @internal */
  onEnd(): void {
    this.#upstream.end();
    this.#limitEnd();
  }

  /** @internal */
  onClose(error?: unknown): void {
    this.#isUpstreamClosed = true;
    clearTimeout(this.#poll);
    // After a close frame or a violation of the upstream, the client's WebSocket has been closed already.
    if (!this.#isClientClosed && !this.#reader.isOver) {
      if (isPoolClosed(error)) this.#client.close(GOING_AWAY, "");
      else if (error !== undefined) this.#client.terminate();
      else this.#terminateDrained(performance.now() + (this.#limits.closeTimeout || Infinity));
    }
    this.#finish();
  }

  // ── from the upstream's frames ──

  /** @internal */
  onMessage(data: string | Uint8Array<ArrayBuffer>): void {
    if (!this.#isClientClosed) this.#client.send(data);
  }

  /**
   * @internal While the upstream does not read, its pings are not answered, because the answers would fill the memory. Only
   * the last ping needs an answer (RFC 6455 §5.5.3).
   */
  onPing(payload: Uint8Array): void {
    if (this.#hasSentClose) return;
    if (this.#isFull) this.#ping = payload;
    else this.#write(writeFrame(Opcode.pong, payload));
  }

  /**
   * @internal Does nothing: the relay sends no pings, so a pong answers none, and RFC 6455 §5.5.3 expects no response to a
   * pong.
   */
  onPong(): void {}

  /** @internal */
  onCloseFrame(code: number | undefined, reason: string): void {
    this.#closeUpstream(code, "");
    this.#closeClient(code, reason);
  }

  /** @internal */
  onViolation(code: number, message: string): void {
    this.#closeUpstream(code, message);
    this.#closeClient(BAD_GATEWAY, "");
  }

  /**
   * Writes a frame to the upstream, and pauses the client if there is no room for more. Returns whether there is room.
   */
  #write(frame: Uint8Array): boolean {
    const hasRoom = this.#upstream.write(frame);
    if (!hasRoom && !this.#isFull) this.#client.pause?.();
    this.#isFull ||= !hasRoom;
    return hasRoom;
  }

  /** Continues reading from the upstream when no bytes for the client are buffered in this process. */
  #resumeDrained(): void {
    this.#poll = undefined;
    if (this.#isClientClosed || this.#isUpstreamClosed) return;
    if (this.#client.bufferedAmount() === 0) this.#upstream.resume();
    else this.#poll = setTimeout(() => this.#resumeDrained(), POLL_INTERVAL);
  }

  /** Closes the client's connection when no bytes for the client are buffered in this process, or at the time `end`. */
  #terminateDrained(end: number): void {
    if (this.#isClientClosed) return;
    if (this.#client.bufferedAmount() === 0 || performance.now() >= end) {
      return this.#client.terminate();
    }
    this.#poll = setTimeout(() => this.#terminateDrained(end), POLL_INTERVAL);
  }

  /** Closes both sides when they are silent for too long. Activity only records its time: restarting a timer costs more. */
  #waitForSilence(wait: number): void {
    this.#idle = setTimeout(() => {
      const left = this.#lastActivity + this.#limits.idleTimeout - performance.now();
      if (left > 1) return this.#waitForSilence(left);
      this.#closeUpstream(GOING_AWAY, "silent for too long");
      this.#closeClient(GOING_AWAY, "silent for too long");
      // Without `closeTimeout`, a side that does not answer either may stay silent once more for the same time.
      this.#limitEnd(this.#limits.closeTimeout || this.#limits.idleTimeout);
    }, wait);
  }

  #closeClient(code: number | undefined, reason: string): void {
    if (!this.#isClientClosed) this.#client.close(code, reason);
  }

  /** Sends a close frame, and closes the connection when the upstream has answered, or after `closeTimeout`. */
  #closeUpstream(code: number | undefined, reason: string): void {
    if (this.#isUpstreamClosed) return;
    if (!this.#hasSentClose) this.#upstream.write(writeClose(code, reason));
    this.#hasSentClose = true;
    if (this.#reader.isOver) this.#upstream.end();
    this.#limitEnd();
  }

  /**
   * Closes the upstream's connection after `closeTimeout`, because the upstream may never read the remaining bytes. If the
   * upstream has closed it by then, closes that of the client, which may never answer the close frame.
   */
  #limitEnd(closeTimeout: number = this.#limits.closeTimeout): void {
    if (closeTimeout === 0) return;
    this.#closing ??= setTimeout(() => {
      if (this.#isUpstreamClosed) return this.#client.terminate();
      // While the client does not read, the upstream is paused, and its end cannot arrive.
      const isClients = !this.#isClientClosed && this.#client.bufferedAmount() > 0;
      this.#upstream.destroy(isClients ? clientGone() : unreadEnd(closeTimeout));
    }, closeTimeout);
  }

  #finish(): void {
    if (!this.#isClientClosed || !this.#isUpstreamClosed || this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#idle);
    clearTimeout(this.#closing);
    this.#onEnd();
  }
}
