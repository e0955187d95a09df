import { concat } from "../body.ts";
import { ProxyError } from "../error.ts";
import type { Connection } from "./connection.ts";

/** Pieces of up to so many bytes are copied, to leave together with what is before and behind them. */
const SMALL = 16_384;

/** Writes a request: its head together with what follows, and the body in its framing. */
export class Writer {
  readonly connection: Connection;
  #head: string;
  readonly #length: number | undefined;
  #written = 0;
  #isOver = false;
  #stop: (() => void) | undefined;
  /** Whether nobody wants the rest. */
  isStopped = false;
  /** Whether the memory of a chunk may be freed when it is sent. */
  readonly freesChunks: boolean;

  /** @param length what was announced; undefined for chunks */
  constructor(
    connection: Connection,
    head: string,
    length: number | undefined,
    freesChunks = false,
  ) {
    this.connection = connection;
    this.#head = head;
    this.#length = length;
    this.freesChunks = freesChunks;
    if (length === 0) connection.sent();
  }

  /** Whether all that was announced has been written. */
  get isComplete(): boolean {
    return this.#written === this.#length;
  }

  /** What lets go of the body where nobody wants the rest of it. */
  onStop(stop: () => void): void {
    this.#stop = stop;
  }

  /** The request has failed, or was answered before it was all here. */
  stop(): void {
    if (this.isStopped || this.#isOver) return;
    this.isStopped = true;
    this.#stop?.();
  }

  /** Sends the head, unless it has gone with a piece of the body. */
  flush(): void {
    if (this.#head !== "") this.#send("", undefined, "");
  }

  /**
   * @param done called when the piece is not needed any more
   * @returns whether there is room for more
   * @throws for more than was announced
   */
  write(piece: Uint8Array, done?: () => void): boolean {
    this.#written += piece.byteLength;
    if (this.#length !== undefined) {
      // What goes beyond it would be the next request on the connection (RFC 9112 §6.3).
      if (this.#written > this.#length) throw badLength();
      if (this.isComplete) {
        this.#isOver = true;
        this.connection.sent();
      }
      return this.#send("", piece, "", done);
    }
    // RFC 9112 §7.1: a chunk of no bytes would be the last.
    if (piece.byteLength === 0) return true;
    return this.#send(`${piece.byteLength.toString(16)}\r\n`, piece, "\r\n", done);
  }

  /**
   * The body has ended.
   * @throws for less than was announced
   */
  end(): void {
    if (this.isComplete) return;
    if (this.#length !== undefined) throw badLength();
    this.#isOver = true;
    this.connection.sent();
    this.#send("0\r\n\r\n", undefined, "");
  }

  #send(before: string, piece: Uint8Array | undefined, after: string, done?: () => void): boolean {
    const { connection } = this;
    const { codec } = connection;
    const prefix = this.#head + before;
    this.#head = "";
    if (piece === undefined || piece.byteLength === 0)
      return connection.write(codec.encode(prefix));
    if (prefix !== "" && piece.byteLength <= SMALL) {
      return connection.write(concat([codec.encode(prefix), piece, codec.encode(after)]), done);
    }
    if (prefix !== "") connection.write(codec.encode(prefix));
    const hasRoom = connection.write(piece, done);
    return after === "" ? hasRoom : connection.write(codec.encode(after));
  }
}

/** The error of a body that is not as long as was announced. */
export function badLength(): ProxyError {
  const message = "the request body was not as long as its Content-Length";
  return new ProxyError("http_request_error", { message });
}
