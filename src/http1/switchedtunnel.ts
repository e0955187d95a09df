import type { Release } from "../body/memory.ts";
import type { Tunnel, TunnelHandler } from "../transport/tunnel.ts";
import type { Carried, Connection } from "./connection.ts";

/** The members of a connection that a tunnel uses. An HTTP/2 stream may take the place of the connection. */
export type TunnelConnection = Pick<
  Connection,
  "switchTo" | "write" | "onceDrained" | "pause" | "resume" | "end" | "reset"
>;

/** A tunnel through a connection on which the upstream has switched protocols. */
export class SwitchedTunnel implements Tunnel, Carried {
  /** Always true, which turns off the pool's `timeout` for silent connections: a tunnel has `tunnelTimeout` instead. */
  readonly isPaused = true;
  readonly clientKey: string | undefined;
  readonly #connection: TunnelConnection;
  readonly #releases: boolean;
  #handler: TunnelHandler | undefined;
  /** The bytes that arrived before the handler was set: the upstream may send bytes together with its 101. */
  #early: Uint8Array[] = [];
  #hasEnded = false;
  #isClosed = false;
  /** Why the connection was closed; undefined if the upstream had already ended its direction. */
  #error: unknown;
  /** Whether the handler's `onDrain` must still be called. */
  #isWaiting = false;

  /**
   * @param releases whether the memory of written bytes may be released, because only the socket sees it
   * @param clientKey the client that the tunnel belongs to
   */
  constructor(connection: TunnelConnection, releases = false, clientKey?: string) {
    this.#connection = connection;
    this.clientKey = clientKey;
    this.#releases = releases;
    connection.switchTo(this);
  }

  // ── `Tunnel` ──

  attach(handler: TunnelHandler): void {
    this.#handler = handler;
    for (const bytes of this.#early.splice(0)) handler.onData(bytes, true);
    if (this.#hasEnded) handler.onEnd();
    if (this.#isClosed) return handler.onClose(this.#error);
    this.#connection.resume();
  }

  write(bytes: Uint8Array, release?: Release): boolean {
    if (this.#isClosed) return true;
    const hasRoom = this.#connection.write(bytes, this.#releases ? release : undefined);
    if (hasRoom || this.#isWaiting) return hasRoom;
    this.#isWaiting = true;
    this.#connection.onceDrained(() => {
      this.#isWaiting = false;
      if (!this.#isClosed) this.#handler?.onDrain();
    });
    return false;
  }

  pause(): void {
    this.#connection.pause();
  }

  resume(): void {
    this.#connection.resume();
  }

  end(): void {
    this.#connection.end();
  }

  destroy(): void {
    this.#connection.reset();
  }

  // ── `Carried`: called by the connection ──

  fail(thrown: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#error = this.#hasEnded ? undefined : thrown;
    this.#handler?.onClose(this.#error);
  }

  /** No head follows the 101. */
  onHead(): void {}

  onChunk(bytes: Uint8Array): void {
    if (this.#handler === undefined) this.#early.push(bytes);
    else this.#handler.onData(bytes, true);
  }

  onEnd(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#handler?.onEnd();
  }
}
