import type { ClientHttp2Stream } from "node:http2";
import type { TunnelConnection } from "../../../src/http1/switchedtunnel.ts";

/** The error code of a stream that is no longer needed (RFC 9113 §7), or whose WebSocket has broken off (RFC 8441 §5). */
const CANCEL = 8;

/** The members of an attempt that its tunnel calls. */
export interface TunnelOwner {
  /** Called before a chunk is sent. */
  recordSent(): void;
  /** Called before this side of the stream is ended. */
  markUploaded(): void;
}

/** An HTTP/2 stream to the upstream that carries a WebSocket (RFC 8441), with the interface of an HTTP/1.1 connection. */
export class TunnelStream implements TunnelConnection {
  readonly #stream: ClientHttp2Stream;
  readonly #owner: TunnelOwner;

  constructor(stream: ClientHttp2Stream, owner: TunnelOwner) {
    this.#stream = stream;
    this.#owner = owner;
  }

  switchTo(): void {
    this.pause();
  }

  write(bytes: Uint8Array): boolean {
    const { destroyed, writableEnded } = this.#stream;
    this.#owner.recordSent();
    return destroyed || writableEnded || this.#stream.write(bytes);
  }

  onceDrained(callback: () => void): void {
    this.#stream.once("drain", callback);
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  end(): void {
    this.#owner.markUploaded();
    this.#stream.end();
  }

  reset(): void {
    resetLater(this.#stream);
  }
}

/**
 * Resets a stream in a later task. If a stream is cancelled while Node reads frames, Node sends END_STREAM instead of
 * RST_STREAM, and an incomplete request would look complete.
 */
export function resetLater(stream: ClientHttp2Stream): void {
  setTimeout(resetStream, 0, stream);
}

/** Resets a stream that is no longer needed. */
export function resetStream(stream: ClientHttp2Stream): void {
  if (stream.destroyed) return;
  stream.close(CANCEL);
  // Resume the stream, because a paused stream closes only after its data is read.
  stream.resume();
}
