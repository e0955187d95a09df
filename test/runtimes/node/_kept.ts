/** Bodies for tests of pooled memory. The proxy forwards them while other code keeps some of their chunks. */
import { createServer, type RequestListener, type Server } from "node:http";
import { expect } from "vitest";
import { listen } from "../../helpers/serve.ts";

/** Creates bytes that depend on the seed, so that bytes of another body or from another place are noticed. */
export function bodyOf(seed: number, length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  let state = seed * 2_654_435_761 + 1;
  for (let i = 0; i < words.length; i++)
    words[i] = state = Math.imul(state, 1_664_525) + 1_013_904_223;
  return Buffer.from(words.buffer, 0, length);
}

export async function startHttp(
  handler: RequestListener,
): Promise<{ server: Server; url: string }> {
  const server = createServer(handler);
  return { server, url: `http://127.0.0.1:${await listen(server)}` };
}

/** Answers `/seed/length/framing` with `bodyOf(seed, length)`. The framing is `sized` or `chunks`. */
export const sendSeeded: RequestListener = (req, res) => {
  const [, seed, length, framing] = (req.url ?? "").split("/");
  const body = bodyOf(Number(seed), Number(length));
  if (framing === "sized") res.writeHead(200, { "content-length": length });
  if (framing === "chunks") {
    for (let at = 0; at < body.length; at += 40_000) res.write(body.subarray(at, at + 40_000));
    res.end();
  } else res.end(body);
};

/** Starts an upstream that answers with `sendSeeded`. */
export function startSeeded(): Promise<{ server: Server; url: string }> {
  return startHttp(sendSeeded);
}

/** Keeps chunks as other code could, each with a copy of the bytes that the chunk has when it is kept. */
export class Keeper {
  readonly kept: { piece: Uint8Array; copy: Buffer }[] = [];

  keep(piece: unknown): void {
    if (piece instanceof Uint8Array) this.kept.push({ piece, copy: Buffer.from(piece) });
  }

  /** Expects that no chunk has changed or been detached. */
  expectUnchanged(): void {
    expect(this.kept.filter(({ piece, copy }) => !copy.equals(piece)).length).toBe(0);
  }
}
