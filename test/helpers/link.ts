/** The upstream's side of a connection, and of each request on it. */
import { createHash, type Hash } from "node:crypto";
import type { Socket } from "node:net";
import { pour } from "./large.ts";
import {
  BodyReader,
  bytesOf,
  parseHead,
  readFraming,
  response,
  valuesOf,
  type Framing,
  type Header,
} from "./wire.ts";

/** The size in bytes up to which a body is kept for comparison. Larger bodies are only hashed. */
const kept = 4 * 1024 * 1024;

/** A request as it arrived at the upstream, with methods to answer it. */
export class Call {
  readonly link: Link;
  readonly head: string;
  readonly method: string;
  readonly target: string;
  readonly headers: Header[];
  readonly framing: Framing;
  readonly done: Promise<void>;
  state: "reading" | "complete" | "cut" = "reading";
  length = 0;
  trailers: Header[] = [];
  /** Called with each chunk of the body as it arrives. */
  onData: ((piece: Buffer) => void) | undefined;
  readonly #parts: Buffer[] = [];
  readonly #hash: Hash = createHash("sha256");
  #settle: () => void = () => {};

  constructor(link: Link, head: string) {
    const { start, headers } = parseHead(head);
    const match = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/.exec(
      start,
    );
    if (!match || !link.version.test(match[3] ?? ""))
      throw new Error(`malformed request line ${JSON.stringify(start)}`);
    const hosts = valuesOf(headers, "host").length;
    if (hosts > 1 || (hosts === 0 && match[3] === "1.1"))
      throw new Error(`malformed: not one Host: ${head}`);
    this.link = link;
    this.head = head;
    this.method = match[1] ?? "";
    this.target = match[2] ?? "";
    this.headers = headers;
    this.framing = readFraming(headers, "none");
    this.done = new Promise((resolve) => (this.#settle = resolve));
  }

  all(name: string): string[] {
    return valuesOf(this.headers, name);
  }

  get(name: string): string | undefined {
    return this.all(name)[0];
  }

  get names(): string[] {
    return this.headers.map(([name]) => name.toLowerCase());
  }

  get body(): Buffer {
    return Buffer.concat(this.#parts);
  }

  get text(): string {
    return this.body.toString("latin1");
  }

  get sha256(): string {
    return this.#hash.copy().digest("hex");
  }

  write(...parts: (string | Uint8Array)[]): void {
    if (this.link.socket.writable) this.link.socket.write(Buffer.concat(parts.map(bytesOf)));
  }

  reply(status: number | string, headers: Header[] = [], body?: string | Uint8Array | null): void {
    this.write(response(status, headers, body));
  }

  pour(size: number, options: { chunked?: boolean } = {}): Promise<void> {
    return pour(this.link.socket, size, options);
  }

  /** Sends FIN after the bytes that were written. */
  close(): void {
    this.link.socket.end();
  }

  reset(): void {
    this.link.socket.resetAndDestroy();
  }

  take(piece: Buffer): void {
    this.length += piece.length;
    this.#hash.update(piece);
    if (this.length <= kept) this.#parts.push(piece);
    this.onData?.(piece);
  }

  finish(state: "complete" | "cut"): void {
    if (this.state !== "reading") return;
    this.state = state;
    this.#settle();
  }
}

/** A connection from the proxy. */
export class Link {
  readonly id: number;
  readonly socket: Socket;
  /** The HTTP versions that a request may have. Any other version is a fault. */
  readonly version: RegExp;
  readonly closed: Promise<void>;
  isClosed = false;
  readonly calls: Call[] = [];
  #buffer: Buffer = Buffer.alloc(0);
  #call: Call | undefined;
  #reader: BodyReader = new BodyReader({ kind: "none" });

  constructor(
    id: number,
    socket: Socket,
    version: RegExp,
    onCall: (call: Call) => void,
    onFault: (fault: string) => void,
  ) {
    this.id = id;
    this.socket = socket;
    this.version = version;
    socket.on("error", () => {});
    socket.on("data", (data: Buffer) => {
      try {
        this.#feed(data, onCall);
      } catch (error) {
        // After a parse error the following bytes have no meaning: report the first error and drop the connection.
        onFault(
          `${String(error)}\n${Buffer.concat([this.#buffer, data]).toString("latin1", 0, 2000)}`,
        );
        socket.destroy();
      }
    });
    socket.on("end", () => {
      this.#call?.finish("cut");
      socket.end();
    });
    this.closed = new Promise((resolve) => {
      socket.on("close", () => {
        this.isClosed = true;
        this.#call?.finish("cut");
        resolve();
      });
    });
  }

  /**
   * Stops reading HTTP, for a connection that switches to another protocol.
   * @returns the socket, and the bytes that arrived after the request
   */
  takeOver(): { socket: Socket; rest: Buffer } {
    const { socket } = this;
    const rest = this.#buffer;
    this.#buffer = Buffer.alloc(0);
    socket.removeAllListeners("data");
    // Pause, so that no bytes are lost before the caller adds a listener.
    socket.pause();
    return { socket, rest };
  }

  get idle(): boolean {
    return this.#call === undefined && this.#buffer.length === 0;
  }

  #feed(data: Buffer, onCall: (call: Call) => void): void {
    let rest = data;
    while (rest.length > 0) {
      if (!this.#call) {
        const joined = Buffer.concat([this.#buffer, rest]);
        const end = joined.indexOf("\r\n\r\n");
        this.#buffer = end === -1 ? joined : Buffer.alloc(0);
        if (end === -1) return;
        rest = joined.subarray(end + 4);
        this.#call = new Call(this, joined.toString("latin1", 0, end));
        this.#reader = new BodyReader(this.#call.framing);
        this.calls.push(this.#call);
        // `onCall` runs after the body bytes that arrived with the head are read, so that the script can use them.
        rest = this.#body(this.#call, rest, onCall);
      } else rest = this.#body(this.#call, rest);
    }
  }

  #body(call: Call, data: Buffer, onCall?: (call: Call) => void): Buffer {
    const rest = this.#reader.feed(data, (piece) => call.take(piece));
    if (this.#reader.done) {
      call.trailers = this.#reader.trailers;
      this.#call = undefined;
      call.finish("complete");
    }
    onCall?.(call);
    return rest;
  }
}
