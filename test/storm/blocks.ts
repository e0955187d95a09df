/**
 * Bodies of blocks. Each block contains its direction, exchange and number, so that a byte of another exchange
 * or a missing block is detected and can be named. A block has 16 bytes: `q0000002a.00003\n`.
 */

/** `q` marks the body of a request, `s` the body of a response. */
export type Direction = "q" | "s";

const BLOCK = 16;
const DIGITS = Buffer.from("0123456789abcdef");
/** A template of the blocks with their numbers. Direction and exchange are filled in for each body. */
let numbered: Buffer = Buffer.alloc(0);

function numberBlocks(count: number): Buffer {
  if (numbered.length >= count * BLOCK) return numbered;
  numbered = Buffer.alloc(count * 2 * BLOCK);
  for (let block = 0; block < count * 2; block++) {
    numbered.write(`.${block.toString(16).padStart(5, "0")}\n`, block * BLOCK + 9, "latin1");
  }
  return numbered;
}

export function makeBody(direction: Direction, id: number, size: number): Buffer {
  const body = Buffer.allocUnsafe(size);
  numberBlocks(Math.ceil(size / BLOCK)).copy(body, 0, 0, size);
  const first = direction.charCodeAt(0);
  for (let at = 0; at < size; at += BLOCK) {
    body[at] = first;
    // The last block may be incomplete: writes beyond the end of a typed array are ignored.
    for (let digit = 0; digit < 8; digit++) {
      body[at + 1 + digit] = DIGITS[(id >>> (28 - digit * 4)) & 15] as number;
    }
  }
  return body;
}

function firstDifference(a: Buffer, b: Buffer): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) if (a[at] !== b[at]) return at;
  return length;
}

const WHOLE_BLOCK = /([qs])([0-9a-f]{8})\.([0-9a-f]{5})\n/g;

/** Describes the first difference of `got` from the bytes of `expected` that begin at `offset`; undefined if there is none. */
export function explainBytes(expected: Buffer, got: Buffer, offset: number): string | undefined {
  const end = offset + got.length;
  if (end <= expected.length && expected.compare(got, 0, got.length, offset, end) === 0) {
    return undefined;
  }
  const at = firstDifference(expected.subarray(offset), got);
  const around = got.toString("latin1", Math.max(0, at - BLOCK), at + 3 * BLOCK);
  const text = JSON.stringify(around);
  if (offset + at === expected.length) {
    return `${got.length - at} bytes more than the ${expected.length} of the body: ${text}`;
  }
  const where = `byte ${offset + at} of ${expected.length} (block ${Math.floor((offset + at) / BLOCK)})`;
  return `${where} is wrong: ${nameBlock(expected, around)}: ${text}`;
}

/** Names the block that was received in the place of another one. */
function nameBlock(expected: Buffer, text: string): string {
  const own = expected.toString("latin1", 0, 9);
  const blocks = [...text.matchAll(WHOLE_BLOCK)];
  const strange = blocks.find(([block]) => !block.startsWith(own)) ?? blocks.at(-1);
  if (strange === undefined) return "no block at all";
  const [block, direction, id = "", number = ""] = strange;
  if (block.startsWith(own)) {
    return `near block ${Number.parseInt(number, 16)} of the same body, a hole or a repetition`;
  }
  const whose = direction === "q" ? "request" : "response";
  return `a block of the ${whose} body of exchange ${Number.parseInt(id, 16)}`;
}
