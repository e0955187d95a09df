/**
 * The upstream of the WebSocket benchmark: it echoes each message. It uses as little CPU time as Node allows, so that it
 * does not limit the proxies: a part of a message is sent back when it arrives, in the memory in which it has arrived.
 */
import { createHash } from "node:crypto";
import { createServer, type Socket } from "node:net";
import { headSizeOf, KEY_SIZE, SOCKET_PATH } from "./frames.ts";

/** The text that the key of a handshake is hashed with (RFC 6455 §1.3). */
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const EMPTY: Buffer = Buffer.alloc(0);
const CLOSE = 0x08;

/** One connection: a handshake, and then frames. */
class Echo {
  readonly #socket: Socket;
  #isOpen = false;
  /** The first bytes of a head that is not complete. */
  #rest: Buffer = EMPTY;
  /** The number of bytes of the present message that are still to come. */
  #left = 0;
  /** The number of bytes of the present message that have arrived: they choose the byte of the masking key. */
  #at = 0;
  readonly #key: Buffer = Buffer.alloc(KEY_SIZE);
  #isMasked = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  take(data: Buffer): void {
    let input = this.#rest.length > 0 ? Buffer.concat([this.#rest, data]) : data;
    this.#rest = EMPTY;
    // Several messages of one read leave in one write.
    this.#socket.cork();
    while (input.length > 0) {
      const taken = this.#isOpen ? this.#takeFrame(input) : this.#takeHandshake(input);
      if (taken === 0) {
        this.#rest = input;
        break;
      }
      input = input.subarray(taken);
    }
    this.#socket.uncork();
  }

  #takeHandshake(input: Buffer): number {
    const end = input.indexOf("\r\n\r\n");
    if (end < 0) return 0;
    const head = input.toString("latin1", 0, end);
    const key = /^sec-websocket-key: *(\S+)/im.exec(head)?.[1];
    if (head.startsWith(`GET ${SOCKET_PATH} `) && key !== undefined) {
      const accept = createHash("sha1")
        .update(key + GUID)
        .digest("base64");
      this.#socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
      );
      this.#isOpen = true;
    } else this.#socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready");
    return end + 4;
  }

  /** Sends back a part of a message, and returns its size with the head; 0 if the head is not complete. */
  #takeFrame(input: Buffer): number {
    let at = 0;
    let from = 0;
    if (this.#left === 0) {
      const [first = 0, second] = input;
      if (second === undefined) return 0;
      const size = headSizeOf(second);
      at = size + KEY_SIZE;
      if (input.length < at) return 0;
      // A proxy that closes a WebSocket needs no answer here.
      if ((first & 0x0f) === CLOSE) return this.#close(input);
      this.#left =
        size === 2
          ? second & 0x7f
          : size === 4
            ? input.readUInt16BE(2)
            : Number(input.readBigUInt64BE(2));
      input.copy(this.#key, 0, size, at);
      this.#isMasked = this.#key.readUInt32LE() !== 0;
      this.#at = 0;
      // The head moves to where the masking key was: an upstream's frame has none.
      from = KEY_SIZE;
      input.copyWithin(from, 0, size);
      input[from + 1] = second & 0x7f;
    }
    const end = Math.min(input.length, at + this.#left);
    if (this.#isMasked) this.#unmask(input.subarray(at, end));
    this.#at += end - at;
    this.#left -= end - at;
    this.#socket.write(input.subarray(from, end));
    return end;
  }

  #unmask(part: Buffer): void {
    for (let i = 0; i < part.length; i++) {
      part[i] = (part[i] as number) ^ (this.#key[(this.#at + i) & 3] as number);
    }
  }

  #close(input: Buffer): number {
    this.#socket.end();
    return input.length;
  }
}

const server = createServer({ noDelay: true }, (socket) => {
  const echo = new Echo(socket);
  socket.on("data", (data: Buffer) => echo.take(data));
  // Proxies may reset connections at any time, so errors are ignored.
  socket.on("error", () => socket.destroy());
});
server.listen(Number(process.env["PORT"]), "127.0.0.1", 4096);
process.stdin.resume().on("end", () => process.exit());
