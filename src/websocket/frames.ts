/**
 * Reads and writes WebSocket frames (RFC 6455 §5) as the client of an upstream. Only the frames to the upstream are
 * masked. No extension is negotiated, so the reserved bits are always zero.
 */

/** The frame types (RFC 6455 §5.2). */
export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** The status codes of a close frame that this file uses (RFC 6455 §7.4.1). */
export const CloseCode = { protocolError: 1002, invalidData: 1007, tooLarge: 1009 } as const;

/** The largest payload of a control frame in bytes (RFC 6455 §5.5). */
const MAX_CONTROL = 125;

/** The object to which a `FrameReader` passes messages and control frames. */
export interface FrameHandler {
  /** Called with each whole message: a string for text, bytes for binary. The bytes belong to the handler. */
  onMessage(data: string | Uint8Array<ArrayBuffer>): void;
  /** Called with each ping, which must be answered with a pong of the same payload. */
  onPing(payload: Uint8Array<ArrayBuffer>): void;
  /** Called with each pong. */
  onPong(payload: Uint8Array<ArrayBuffer>): void;
  /**
   * Called with a close frame; `code` is undefined if the frame has none. The reader reads nothing after a close frame.
   */
  onCloseFrame(code: number | undefined, reason: string): void;
  /**
   * Called when the upstream violates the protocol; the connection must be closed with this code. The reader reads
   * nothing after a violation.
   */
  onViolation(code: number, message: string): void;
}

/** Carries a violation from the code that detects it to `onViolation`. */
class Violation extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The decoded first bytes of a frame. */
interface FrameHead {
  readonly isFinal: boolean;
  readonly opcode: number;
  readonly length: number;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const EMPTY = new Uint8Array(0);

/**
 * Collects the payload of a message or of a control frame. The memory grows only with the bytes that arrive, because a sender
 * can announce any length at no cost.
 */
class Content {
  length = 0;
  #bytes: Uint8Array<ArrayBuffer> = EMPTY;

  /** @param total the number of bytes that the content will have; `Infinity` if it is not known */
  append(part: Uint8Array, total: number): void {
    const needed = this.length + part.byteLength;
    const capacity = this.#bytes.byteLength;
    if (needed > capacity) {
      const bytes = new Uint8Array(Math.min(total, Math.max(needed, 2 * capacity)));
      bytes.set(this.#bytes.subarray(0, this.length));
      this.#bytes = bytes;
    }
    this.#bytes.set(part, this.length);
    this.length = needed;
  }

  /** Removes and returns the bytes, in memory that belongs to the caller. */
  take(): Uint8Array<ArrayBuffer> {
    const bytes = this.#bytes;
    const isExact = bytes.byteLength === this.length;
    const content = isExact ? bytes : bytes.slice(0, this.length);
    this.#bytes = EMPTY;
    this.length = 0;
    return content;
  }
}

/** Reads frames from chunks, whose borders may be anywhere, and joins fragments into messages. */
export class FrameReader {
  readonly #handler: FrameHandler;
  readonly #maxMessage: number;
  /** The first bytes of a frame whose head has not arrived completely. */
  #partialHead: Uint8Array = EMPTY;
  #head: FrameHead | undefined;
  /** The number of bytes of the present frame's payload that are still to come. */
  #left = 0;
  /** The type of the message that is being read; undefined between two messages. */
  #messageType: number | undefined;
  /** The payloads of the message's frames so far. */
  readonly #message: Content = new Content();
  /** The payload of the control frame that is being read, which may come between two frames of a message. */
  readonly #control: Content = new Content();
  #isOver = false;

  /** @param maxMessage the largest message in bytes; a larger one is a violation with code 1009 */
  constructor(handler: FrameHandler, maxMessage: number) {
    this.#handler = handler;
    this.#maxMessage = maxMessage;
  }

  /** Whether nothing more is read, because of a close frame or a violation. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Reads a chunk. The memory of the chunk is free for other use afterwards. */
  feed(chunk: Uint8Array): void {
    try {
      let at = 0;
      while (!this.#isOver && at < chunk.byteLength) at = this.#read(chunk, at);
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      this.#isOver = true;
      this.#handler.onViolation(error.code, error.message);
    }
  }

  /**
   * Reads the head of a frame, unless it was read before, and the part of the payload that has arrived. Returns the
   * index in the chunk at which to continue.
   */
  #read(chunk: Uint8Array, at: number): number {
    if (this.#head === undefined) {
      const before = this.#partialHead.byteLength;
      const bytes = before === 0 ? chunk.subarray(at) : join(this.#partialHead, chunk.subarray(at));
      const size = headSize(bytes);
      if (size === undefined) {
        this.#partialHead = bytes.slice();
        return chunk.byteLength;
      }
      this.#partialHead = EMPTY;
      this.#begin(parseFrameHead(bytes, size));
      at += size - before;
    }
    const part = chunk.subarray(at, at + this.#left);
    const { isFinal, opcode } = this.#head as FrameHead;
    const content = opcode < Opcode.close ? this.#message : this.#control;
    content.append(part, isFinal ? content.length + this.#left : Infinity);
    this.#left -= part.byteLength;
    if (this.#left === 0) this.#finish();
    return at + part.byteLength;
  }

  #begin(head: FrameHead): void {
    const { opcode, length } = head;
    if (opcode === Opcode.continuation && this.#messageType === undefined) {
      throw new Violation(CloseCode.protocolError, "a continuation frame continues nothing");
    }
    if (isData(opcode)) {
      if (this.#messageType !== undefined) {
        throw new Violation(CloseCode.protocolError, "a message begins inside of another message");
      }
      this.#messageType = opcode;
    }
    // The limit does not apply to control frames, which are short and may come between the fragments of a message.
    if (opcode < Opcode.close && this.#message.length + length > this.#maxMessage) {
      throw new Violation(CloseCode.tooLarge, `a message exceeds ${this.#maxMessage} bytes`);
    }
    this.#head = head;
    this.#left = length;
  }

  #finish(): void {
    const { opcode, isFinal } = this.#head as FrameHead;
    this.#head = undefined;
    if (opcode === Opcode.ping) this.#handler.onPing(this.#control.take());
    else if (opcode === Opcode.pong) this.#handler.onPong(this.#control.take());
    else if (opcode === Opcode.close) this.#close(this.#control.take());
    else if (isFinal) this.#deliver();
  }

  #deliver(): void {
    const isText = this.#messageType === Opcode.text;
    this.#messageType = undefined;
    const bytes = this.#message.take();
    this.#handler.onMessage(isText ? decode(bytes, "a text message") : bytes);
  }

  #close(payload: Uint8Array): void {
    this.#isOver = true;
    if (payload.byteLength === 0) return this.#handler.onCloseFrame(undefined, "");
    const [high = 0, low] = payload;
    if (low === undefined) {
      throw new Violation(CloseCode.protocolError, "a close frame has half a code");
    }
    const code = high * 256 + low;
    if (!isCloseCode(code)) {
      throw new Violation(CloseCode.protocolError, `a close frame has the code ${code}`);
    }
    this.#handler.onCloseFrame(code, decode(payload.subarray(2), "the reason of a close frame"));
  }
}

/**
 * Whether an endpoint may send this code in a close frame (RFC 6455 §7.4). 1004 is reserved; 1005, 1006 and 1015 are never
 * sent, because they report a close without a code; codes from 3000 to 4999 are for applications.
 */
export function isCloseCode(code: number): boolean {
  if (code >= 3000) return code <= 4999;
  return code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006;
}

/** Returns a masked frame that is not a fragment of a longer message (RFC 6455 §5.3). */
export function writeFrame(opcode: number, payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const { byteLength: length } = payload;
  const extended = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const at = 2 + extended;
  // The payload begins at a multiple of four bytes, so that it can be masked in words of four bytes.
  const pad = -at & 3;
  const frame = new Uint8Array(new ArrayBuffer(pad + at + 4 + length), pad);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extended === 0 ? length : extended === 2 ? 126 : 127);
  const view = new DataView(frame.buffer, pad);
  if (extended === 2) view.setUint16(2, length);
  if (extended === 8) view.setBigUint64(2, BigInt(length));
  const mask = crypto.getRandomValues(frame.subarray(at, at + 4));
  frame.set(payload, at + 4);
  const words = new Uint32Array(frame.buffer, pad + at, 1 + (length >> 2));
  const key = words[0] as number;
  for (let i = 1; i < words.length; i++) words[i] = (words[i] as number) ^ key;
  for (let i = length & ~3; i < length; i++) {
    frame[at + 4 + i] = (payload[i] as number) ^ (mask[i & 3] as number);
  }
  return frame;
}

/** Returns a close frame. A reason that does not fit is shortened at the end of a character. */
export function writeClose(code: number | undefined, reason = ""): Uint8Array<ArrayBuffer> {
  if (code === undefined) return writeFrame(Opcode.close, EMPTY);
  const payload = new Uint8Array(MAX_CONTROL);
  payload[0] = code >> 8;
  payload[1] = code & 0xff;
  // `encodeInto` writes no character that does not fit as a whole.
  const { written } = new TextEncoder().encodeInto(reason, payload.subarray(2));
  return writeFrame(Opcode.close, payload.subarray(0, 2 + written));
}

/** Returns the length of a frame's head in bytes; undefined if the whole head has not arrived. */
function headSize(bytes: Uint8Array): number | undefined {
  if (bytes.byteLength < 2) return undefined;
  const short = (bytes[1] as number) & 0x7f;
  const size = short < 126 ? 2 : short === 126 ? 4 : 10;
  return bytes.byteLength < size ? undefined : size;
}

function parseFrameHead(bytes: Uint8Array, size: number): FrameHead {
  const [first = 0, second = 0] = bytes;
  const opcode = first & 0x0f;
  const isFinal = (first & 0x80) !== 0;
  if ((first & 0x70) !== 0) {
    throw new Violation(CloseCode.protocolError, "a frame has a reserved bit set");
  }
  if ((second & 0x80) !== 0) {
    throw new Violation(CloseCode.protocolError, "the upstream sent a masked frame");
  }
  if (opcode > Opcode.pong || (opcode > Opcode.binary && opcode < Opcode.close)) {
    throw new Violation(CloseCode.protocolError, `a frame has the reserved opcode ${opcode}`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  // A length of 2^53 and more loses digits as a number, but every limit on lengths is below that.
  const length =
    size === 2 ? second & 0x7f : size === 4 ? view.getUint16(2) : Number(view.getBigUint64(2));
  if (opcode >= Opcode.close && (!isFinal || length > MAX_CONTROL)) {
    throw new Violation(CloseCode.protocolError, "a control frame is fragmented or too long");
  }
  return { isFinal, opcode, length };
}

function isData(opcode: number): boolean {
  return opcode === Opcode.text || opcode === Opcode.binary;
}

function decode(bytes: Uint8Array, what: string): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Violation(CloseCode.invalidData, `${what} is not UTF-8`);
  }
}

function join(first: Uint8Array, second: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(first.byteLength + second.byteLength);
  bytes.set(first);
  bytes.set(second, first.byteLength);
  return bytes;
}
