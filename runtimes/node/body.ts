import type { ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import { Exchange } from "../http/exchange.ts";
import { isReusable, recycle } from "../http/read.ts";
import { writesUnseen } from "./unseen.ts";

/** An exchange whose response body writes itself to a response of Node's: srvx asks for that, too. */
export class NodeExchange extends Exchange {
  /** The piece written last, unless another of the same buffer has followed. */
  #written: { piece: Uint8Array | undefined } | undefined;

  /** Writes the body to a response whose head is written, and ends it. */
  pipe(res: ServerResponse): void {
    const whole = this.error === undefined ? this.whole() : undefined;
    if (whole !== undefined) {
      res.end(whole, this.#onWritten(whole, res));
      return;
    }
    res.on("drain", () => this.resume());
    // With data here, head and data leave in one write; without, the client should have the head now.
    if (this.isSilent || this.error !== undefined) res.flushHeaders();
    this.take({
      write: (piece) => res.write(piece, this.#onWritten(piece, res)),
      end: () => res.end(),
      fail: () => breakOff(res),
    });
  }

  /** What is to be done when the piece has been written, if anything. */
  #onWritten(piece: Uint8Array, res: ServerResponse): (() => void) | undefined {
    if (!isReusable(piece) || !writesUnseen(res)) return undefined;
    // Of chunks, one read may bring several: they are written in order.
    if (this.#written?.piece?.buffer === piece.buffer) this.#written.piece = undefined;
    const written: { piece: Uint8Array | undefined } = { piece };
    this.#written = written;
    return () => {
      if (written.piece !== undefined) recycle(written.piece);
    };
  }
}

/** RFC 9113 §7: the stream ends for a fault that is not the client's. */
const INTERNAL_ERROR = 2;

/** Ends a response so that its body cannot seem whole. */
export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) res.stream.close(INTERNAL_ERROR);
  else res.destroy();
}
