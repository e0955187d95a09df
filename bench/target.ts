/**
 * The upstream in most benches. It uses as little CPU time as Node allows, so that it does not limit the proxies.
 *
 * It implements only the part of HTTP/1.1 that the workloads need, on sockets instead of `node:http`. It builds each response
 * to a GET only once, and reads only the header fields that it needs.
 */
import { readFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { createServer as createSecureServer } from "node:tls";
import { crc32 } from "node:zlib";
import { EVENT, EVENTS, receiptOf, workloads } from "./workloads.ts";

const EMPTY = Buffer.alloc(0);
const HEAD_END = Buffer.from("\r\n\r\n");
/** The time between two events in milliseconds, long enough that no proxy receives two events at once. */
const EVENT_INTERVAL = 5;

/** The path on which the upstream closes the connection without a response. */
const DROPPED = "/drop";

function headOf(type: string, framing: string): string {
  return `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\n${framing}\r\nCache-Control: max-age=60\r\nETag: "bench"\r\n\r\n`;
}

function respond(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(headOf(type, `Content-Length: ${body.length}`)), body]);
}

/** The responses by path. Each response is built only once. */
const answers = new Map(
  workloads
    .filter(({ method, path }) => method === "GET" && path !== "/events")
    .map(({ path, type, answer }) => [path, respond(type, answer)]),
);
const ready = respond("text/plain", Buffer.from("ready"));
const streamHead = headOf("text/event-stream", "Transfer-Encoding: chunked");
const eventChunk = Buffer.concat([
  Buffer.from(`${EVENT.length.toString(16)}\r\n`),
  EVENT,
  Buffer.from("\r\n"),
]);
const lastChunk = "0\r\n\r\n";

/** The open event streams, each with the number of events that are still to be sent. */
const streams = new Map<Socket, number>();
setInterval(() => {
  for (const [socket, left] of streams) {
    if (left > 0) {
      socket.write(eventChunk);
      streams.set(socket, left - 1);
    } else {
      socket.write(lastChunk);
      streams.delete(socket);
    }
  }
}, EVENT_INTERVAL);

/** A connection. It reads and answers one request after the other. */
class Connection {
  readonly #socket: Socket;
  #rest: Buffer = EMPTY;
  #path = "";
  /** The number of body bytes that have not arrived: -1 before the header section is complete, Infinity for a chunked body. */
  #left = -1;
  #length = 0;
  #checksum = 0;
  #kept: Buffer[] = [];

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  take(data: Buffer): void {
    let input = this.#rest.length > 0 ? Buffer.concat([this.#rest, data]) : data;
    this.#rest = EMPTY;
    while (input.length > 0) {
      const before = input.length;
      if (this.#left < 0) input = this.#takeHead(input);
      else if (this.#left === Infinity) input = this.#takeChunk(input);
      else input = this.#takeBody(input);
      if (input.length === before) {
        this.#rest = input;
        return;
      }
    }
  }

  #takeHead(input: Buffer): Buffer {
    const end = input.indexOf(HEAD_END);
    if (end < 0) return input;
    const head = input.toString("latin1", 0, end);
    const start = head.indexOf(" ") + 1;
    this.#path = head.slice(start, head.indexOf(" ", start));
    const length = head.startsWith("GET") ? undefined : /\r\ncontent-length: *(\d+)/i.exec(head);
    if (length) this.#left = Number(length[1]);
    else if (/\r\ntransfer-encoding: *chunked/i.test(head)) this.#left = Infinity;
    else this.#left = 0;
    if (this.#left === 0) this.#finish();
    return input.subarray(end + 4);
  }

  #takeBody(input: Buffer): Buffer {
    const piece = input.subarray(0, this.#left);
    this.#add(piece);
    this.#left -= piece.length;
    if (this.#left === 0) this.#finish();
    return input.subarray(piece.length);
  }

  /** Takes one complete chunk from the input. An incomplete chunk is kept until its other bytes arrive. */
  #takeChunk(input: Buffer): Buffer {
    const line = input.indexOf("\r\n");
    if (line < 0) return input;
    const size = Number.parseInt(input.toString("latin1", 0, line), 16);
    if (input.length < line + 4 + size) return input;
    this.#add(input.subarray(line + 2, line + 2 + size));
    if (size === 0) this.#finish();
    return input.subarray(line + 4 + size);
  }

  #add(piece: Buffer): void {
    this.#length += piece.length;
    if (this.#path === "/echo") this.#kept.push(piece);
    else this.#checksum = crc32(piece, this.#checksum);
  }

  #finish(): void {
    const socket = this.#socket;
    if (this.#path === "/echo") socket.write(respond("application/json", this.#take()));
    else if (this.#path === "/sink") {
      const receipt = Buffer.from(receiptOf(this.#length, this.#checksum));
      socket.write(respond("text/plain; charset=utf-8", receipt));
    } else if (this.#path === "/events") {
      socket.write(streamHead);
      streams.set(socket, EVENTS);
    } else if (this.#path === DROPPED) socket.destroy();
    else socket.write(answers.get(this.#path) ?? ready);
    this.#left = -1;
    this.#length = 0;
    this.#checksum = 0;
  }

  #take(): Buffer {
    const body = this.#kept.length === 1 ? (this.#kept[0] as Buffer) : Buffer.concat(this.#kept);
    this.#kept = [];
    return body;
  }
}

/** The file of a certificate with its key; undefined for an upstream without TLS. */
const certificate = process.env["CERTIFICATE"];

function serveConnection(socket: Socket): void {
  const connection = new Connection(socket);
  socket.on("data", (data) => connection.take(data));
  // Proxies may reset connections at any time, so errors are ignored.
  socket.on("error", () => socket.destroy());
  socket.on("close", () => streams.delete(socket));
}

function createSecure(file: string): Server {
  const pem = readFileSync(file);
  return createSecureServer({ cert: pem, key: pem, noDelay: true }, serveConnection);
}

const server = certificate
  ? createSecure(certificate)
  : createServer({ noDelay: true }, serveConnection);
// Listen on all addresses: on Linux, each address in 127.0.0.0/8 then serves as a separate origin.
server.listen(Number(process.env["PORT"]), "0.0.0.0", 4096);
process.stdin.resume().on("end", () => process.exit());
