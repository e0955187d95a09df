/** A client that sends exact bytes and reads responses with its own strict parser. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect as dial, type Socket } from "node:net";
import {
  BodyReader,
  bytesOf,
  parseHead,
  readFraming,
  valuesOf,
  type Framing,
  type Header,
} from "./wire.ts";
import { patience, within } from "./wait.ts";

/** The size in bytes up to which a body is kept for comparison. Larger bodies are only hashed. */
const kept = 4 * 1024 * 1024;

export class ResponseHead {
  readonly version: string;
  readonly status: number;
  readonly reason: string;
  readonly headers: Header[];
  readonly bytes: Buffer;
  interim: ResponseHead[] = [];

  constructor(bytes: Buffer) {
    const { start, headers } = parseHead(bytes.toString("latin1"));
    const match = /^HTTP\/(1\.[01]) (\d{3})(?: (.*))?$/.exec(start);
    if (!match) throw new Error(`malformed status line ${JSON.stringify(start)}`);
    this.version = match[1] ?? "";
    this.status = Number(match[2]);
    this.reason = match[3] ?? "";
    this.headers = headers;
    this.bytes = bytes;
  }

  all(name: string): string[] {
    return valuesOf(this.headers, name);
  }

  get(name: string): string | undefined {
    return this.all(name)[0];
  }
}

export interface Answer extends ResponseHead {
  body: Buffer;
  text: string;
  length: number;
  sha256: string;
  trailers: Header[];
  /** Whether the connection ended before the body was complete according to its framing. */
  cut: boolean;
}

export class Client {
  readonly socket: Socket;
  readonly closed: Promise<void>;
  isClosed = false;
  /** The number of interim responses (1xx except 101) to the last request that got any. */
  interim = 0;
  #buffer: Buffer = Buffer.alloc(0);
  #ended = false;

  constructor(socket: Socket) {
    this.socket = socket;
    // A reset is an outcome to observe, not an error to throw.
    socket.on("error", () => {});
    socket.on("end", () => (this.#ended = true));
    this.closed = new Promise((resolve) => {
      socket.on("close", () => {
        this.isClosed = this.#ended = true;
        resolve();
      });
    });
  }

  send(...parts: (string | Uint8Array)[]): void {
    this.socket.write(Buffer.concat(parts.map(bytesOf)));
  }

  /** Closes the client's sending side: the server receives a FIN. */
  finish(): void {
    this.socket.end();
  }

  leave(how: "FIN" | "RST"): void {
    if (how === "RST") this.socket.resetAndDestroy();
    else this.socket.destroy();
  }

  /** No other method reads from the socket. So while a test reads nothing, the client exerts backpressure. */
  async #more(): Promise<boolean> {
    for (;;) {
      const data = this.socket.read() as Buffer | null;
      if (data) {
        this.#buffer = this.#buffer.length > 0 ? Buffer.concat([this.#buffer, data]) : data;
        return true;
      }
      if (this.#ended) return false;
      await new Promise<void>((resolve) => {
        const settle = (): void => {
          this.socket.off("readable", settle).off("end", settle).off("close", settle);
          resolve();
        };
        this.socket.on("readable", settle).on("end", settle).on("close", settle);
      });
    }
  }

  async #head(): Promise<ResponseHead> {
    let end: number;
    while ((end = this.#buffer.indexOf("\r\n\r\n")) === -1) {
      if (this.#buffer.length > 1024 * 1024) throw new Error("response head without an end");
      if (!(await this.#more())) {
        const got = JSON.stringify(this.#buffer.toString("latin1"));
        throw new Error(`connection closed before a response head, after ${got}`);
      }
    }
    const head = new ResponseHead(this.#buffer.subarray(0, end));
    this.#buffer = this.#buffer.subarray(end + 4);
    return head;
  }

  /**
   * Reads the next final response head. Its member `interim` lists the interim heads (1xx except 101) that arrived
   * before it.
   */
  async readHead(limit: number = patience): Promise<ResponseHead> {
    const interim: ResponseHead[] = [];
    for (;;) {
      const head = await within(this.#head(), "a response head", limit);
      if (head.status >= 200 || head.status === 101) return Object.assign(head, { interim });
      this.interim = interim.push(head);
    }
  }

  /** Yields a body's chunks as they arrive; the return value says how the body ended. */
  async *pieces(
    head: ResponseHead,
    method = "GET",
  ): AsyncGenerator<Buffer, { cut: boolean; trailers: Header[] }> {
    const framing = framingOf(head, method);
    const reader = new BodyReader(framing);
    const pending: Buffer[] = [];
    for (;;) {
      this.#buffer = reader.feed(this.#buffer, (piece) => pending.push(piece));
      yield* pending.splice(0);
      if (reader.done) return { cut: false, trailers: reader.trailers };
      if (!(await this.#more())) {
        return { cut: framing.kind !== "close", trailers: reader.trailers };
      }
    }
  }

  readBody(head: ResponseHead, method = "GET", limit: number = patience): Promise<Answer> {
    return within(this.#body(head, method), "a response body", limit);
  }

  async #body(head: ResponseHead, method: string): Promise<Answer> {
    const hash = createHash("sha256");
    const parts: Buffer[] = [];
    let length = 0;
    const pieces = this.pieces(head, method);
    let next = await pieces.next();
    for (; !next.done; next = await pieces.next()) {
      length += next.value.length;
      hash.update(next.value);
      if (length <= kept) parts.push(next.value);
    }
    const body = Buffer.concat(parts);
    return Object.assign(head, {
      body,
      text: body.toString("latin1"),
      length,
      sha256: hash.digest("hex"),
      ...next.value,
    });
  }

  /** Reads the next response with its body. */
  async read(method = "GET"): Promise<Answer> {
    return this.readBody(await this.readHead(), method);
  }

  /** Reads all bytes until the connection ends. */
  async rest(): Promise<Buffer> {
    while (await within(this.#more(), "the end of the connection"));
    return this.#buffer;
  }
}

function framingOf(head: ResponseHead, method: string): Framing {
  const { status, headers } = head;
  if (
    status === 204 &&
    headers.some(([name]) => /^(content-length|transfer-encoding)$/i.test(name))
  ) {
    throw new Error("malformed: a 204 with framing headers (RFC 9110 §8.6, RFC 9112 §6.1)");
  }
  const framing = readFraming(headers, "close");
  return method === "HEAD" || status === 204 || status === 304 ? { kind: "none" } : framing;
}

export async function connect(port: number): Promise<Client> {
  const socket = dial({ port, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
  const client = new Client(socket);
  await within(once(socket, "connect"), `a connection to port ${port}`);
  return client;
}
