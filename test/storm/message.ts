/** Builds the bytes of a plan's messages, and writes them. */
import type { Socket } from "node:net";
import { pause } from "../helpers/wait.ts";
import { bytesOf, chunk, lastChunk } from "../helpers/wire.ts";
import { makeBody } from "./blocks.ts";
import type { Exchange, Message, Place, Wait } from "./plan.ts";

export interface Wire {
  bytes: Buffer;
  /** The length of the head, including an interim response before it. */
  head: number;
  body: Buffer;
}

/** Returns a field value of the given length that differs between exchanges. */
export function padding(id: number, length: number): string {
  return `${id}-`.repeat(Math.ceil(length / 2)).slice(0, length);
}

function encode(body: Buffer, size: number): Buffer {
  const chunks: Buffer[] = [];
  const step = size || body.length;
  for (let at = 0; at < body.length; at += step) chunks.push(chunk(body.subarray(at, at + step)));
  return Buffer.concat([...chunks, lastChunk]);
}

function build(start: string, id: number, message: Message, body: Buffer, bare: boolean): Wire {
  const lines = [start, `X-Storm: ${id}`];
  if (message.pad > 0) lines.push(`X-Pad: ${padding(id, message.pad)}`);
  if (message.framing === "sized") lines.push(`Content-Length: ${body.length}`);
  if (message.framing === "chunked") lines.push("Transfer-Encoding: chunked");
  const head = bytesOf(`${lines.join("\r\n")}\r\n\r\n`);
  if (bare) return { bytes: head, head: head.length, body: body.subarray(0, 0) };
  const encoded = message.framing === "chunked" ? encode(body, message.chunk) : body;
  return { bytes: Buffer.concat([head, encoded]), head: head.length, body };
}

export function makeRequest({ id, method, version, request, intrusion }: Exchange): Wire {
  const body = makeBody("q", id, request.size);
  const intruded =
    intrusion === undefined ? "" : `\r\nX-Intrusion: ${intrusion}\r\nX-Size: ${request.size}`;
  const start = `${method} /storm/${id} HTTP/${version}\r\nHost: proxy.test${intruded}`;
  return build(start, id, request, body, false);
}

const HINTS = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";

export function makeResponse(exchange: Exchange): Wire {
  const { id, method, status, response, upstreamVersion, hints, ending } = exchange;
  const body = makeBody("s", id, response.size);
  const closes = ending.kind === "whole" && ending.after === "close" ? "\r\nConnection: close" : "";
  const start = `${hints ? HINTS : ""}HTTP/${upstreamVersion} ${status} Storm${closes}`;
  return build(start, id, response, body, method === "HEAD" || response.framing === "none");
}

/** Returns the offset of a place in a message. A message that is cut there always lacks its last byte. */
export function locate({ edge, by }: Place, { bytes, head }: Wire): number {
  const last = bytes.length - 1;
  const at = {
    start: by,
    head: head - 4 + by,
    end: last - by,
    any: Math.floor((by * last) / 1000),
  }[edge];
  return Math.max(0, Math.min(last, at));
}

export async function waitFor({ turns, ms }: Wait): Promise<void> {
  if (ms > 0) await pause(ms);
  for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
}

/**
 * Writes the bytes up to `end` in several writes, as planned.
 * @param onLast called before the last write
 */
export async function writeCut(
  socket: Socket,
  wire: Wire,
  cuts: Message["cuts"],
  end: number,
  onLast?: () => void,
): Promise<void> {
  const places = cuts
    .map(({ at, wait }) => ({ at: locate(at, wire), wait }))
    .filter(({ at }) => at > 0 && at < end)
    .toSorted((a, b) => a.at - b.at);
  let from = 0;
  for (const { at, wait } of places) {
    if (!socket.writable) return;
    socket.write(wire.bytes.subarray(from, at));
    from = at;
    await waitFor(wait);
  }
  if (!socket.writable) return;
  onLast?.();
  if (end > from) socket.write(wire.bytes.subarray(from, end));
}
