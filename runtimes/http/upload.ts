import { concat, lengthOf, toStream } from "../../src/body.ts";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import type { Body } from "../../src/transport.ts";
import { RequestBody } from "./body.ts";
import type { Connection } from "./connection.ts";
import { encode } from "./latin1.ts";
import { PieceReader } from "./pieces.ts";

/** Pieces of up to so many bytes are copied, to leave together with what is before and behind them. */
const SMALL = 16_384;

/** Sends a request whose body is here. */
export function sendWhole(connection: Connection, head: string, body: Uint8Array | null): void {
  connection.sent();
  void new Writer(connection, head).write(body ?? undefined);
}

/**
 * Sends a body piece by piece, each as soon as the one before has gone, and ends the request.
 * @param contentLength what was announced; undefined if nothing
 * @throws ProxyError for a body that broke off, or was not as long
 */
export async function upload(
  connection: Connection,
  head: string,
  body: Exclude<Body, Uint8Array>,
  contentLength: number | undefined,
  lifetime: Lifetime,
): Promise<void> {
  const reader = new PieceReader(toStream(body), contentLength);
  const writer = new Writer(connection, head);
  // A small body follows its head so closely that one write takes both.
  const flush = setTimeout(() => void writer.write(), 1);
  let sent = 0;
  try {
    for (;;) {
      const { value = [], done } = await reader.read();
      clearTimeout(flush);
      if (connection.destroyed) break;
      if (sent === 0 && body instanceof RequestBody && lengthOf(value) === contentLength) {
        body.kept = concat(value);
      }
      for (const piece of value) {
        lifetime.touch();
        sent += piece.byteLength;
        // What goes beyond it would be the next request on the connection (RFC 9112 §6.3).
        if (contentLength !== undefined && sent > contentLength) throw badLength();
        if (sent === contentLength) connection.sent();
        const lent = reader.lends && sent !== contentLength;
        const gone =
          contentLength === undefined ? writer.writeChunk(piece, lent) : writer.write(piece, lent);
        if (sent === contentLength) {
          // Deno closes the client's connection if nobody has seen the end.
          const more = await reader.read().catch(() => undefined);
          if (more?.value !== undefined && lengthOf(more.value) > 0) throw badLength();
          return;
        }
        await gone;
        reader.release(piece);
      }
      if (!done) continue;
      if (contentLength !== undefined) throw badLength();
      connection.sent();
      writer.end();
      return;
    }
    void reader.cancel().catch(() => {});
  } catch (cause) {
    const message = "the client broke off its request body";
    throw new ProxyError("http_request_error", { message, cause });
  } finally {
    clearTimeout(flush);
  }
}

/** Writes a request, its head together with what follows. */
class Writer {
  readonly #connection: Connection;
  #head: string;

  constructor(connection: Connection, head: string) {
    this.#connection = connection;
    this.#head = head;
  }

  /**
   * Resolves when there is room for more; undefined if there is now.
   * @param lent whether to wait until the piece itself is not needed any more
   */
  write(piece?: Uint8Array, lent = false): Promise<void> | undefined {
    return this.#write("", piece, "", lent);
  }

  /** RFC 9112 §7.1: one of no bytes would be the last. */
  writeChunk(piece: Uint8Array, lent: boolean): Promise<void> | undefined {
    if (piece.byteLength === 0) return undefined;
    return this.#write(`${piece.byteLength.toString(16)}\r\n`, piece, "\r\n", lent);
  }

  /** The last chunk. */
  end(): void {
    void this.#write("0\r\n\r\n", undefined, "", false);
  }

  #write(
    before: string,
    piece: Uint8Array | undefined,
    after: string,
    lent: boolean,
  ): Promise<void> | undefined {
    const connection = this.#connection;
    const prefix = this.#head + before;
    this.#head = "";
    if (piece === undefined || piece.byteLength === 0) return connection.write(encode(prefix));
    if (prefix !== "" && piece.byteLength <= SMALL) {
      return connection.write(concat([encode(prefix), piece, encode(after)]));
    }
    if (prefix !== "") void connection.write(encode(prefix));
    const gone = connection.write(piece, lent);
    if (after !== "") void connection.write(encode(after));
    return gone;
  }
}

function badLength(): Error {
  return new Error("the request body was not as long as its Content-Length");
}
