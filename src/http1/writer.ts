import { concat } from "../body/memory.ts";
import type { Sink } from "../body/source.ts";
import type { Scope } from "../exchange/scope.ts";
import { toRequestBodyError, ProxyError } from "../error.ts";
import type { Memory } from "./attempt.ts";
import type { Connection } from "./connection.ts";

/** Chunks up to this number of bytes are copied, so that they are sent in one write with the framing around them. */
const SMALL = 16_384;

/** Writes a request that has no body, or whose body has arrived as a whole. */
export function sendWhole(
  connection: Connection,
  head: string,
  body: Uint8Array | undefined,
): void {
  connection.sent();
  if (body === undefined) connection.write(connection.codec.encode(head));
  else writeFramed(connection, head, body, "");
}

/** Writes a request chunk by chunk: the head with the first chunk, and the body in its message framing. */
export class Writer implements Sink {
  /** Whether all of the body has been written. */
  isOver = false;
  readonly #connection: Connection;
  readonly #length: number | undefined;
  readonly #scope: Scope;
  readonly #attempt: { fail(error: ProxyError): void };
  readonly #memory: Memory;
  #head: string;
  #written = 0;
  /** Whether the source has told of the end: what it writes behind that is not sent. */
  #isEnded = false;

  /**
   * @param length the length that was announced; undefined for chunked coding
   * @param attempt the attempt, which fails if the body cannot be sent as announced
   */
  constructor(
    connection: Connection,
    head: string,
    length: number | undefined,
    scope: Scope,
    attempt: { fail(error: ProxyError): void },
    memory: Memory,
  ) {
    this.#connection = connection;
    this.#head = head;
    this.#length = length;
    this.#scope = scope;
    this.#attempt = attempt;
    this.#memory = memory;
  }

  get memory(): "borrowed" | "returned" {
    return this.#memory.ofRequests?.(this.#connection) ?? "borrowed";
  }

  flush(): void {
    if (this.#head !== "") this.#writeText(this.#takeHead());
  }

  write(chunk: Uint8Array, release?: () => void): boolean {
    // In chunked coding, an empty chunk would end the body (RFC 9112 §7.1), and bytes behind its end are the next request.
    if (chunk.byteLength === 0 || this.#isEnded) {
      release?.();
      return true;
    }
    this.#scope.touch();
    this.#written += chunk.byteLength;
    let before = this.#takeHead();
    let after = "";
    if (this.#length === undefined) {
      before += `${chunk.byteLength.toString(16)}\r\n`;
      after = "\r\n";
    } else if (this.#written > this.#length) {
      // The upstream would take the excess for the next request on the connection (RFC 9112 §6.3).
      this.#attempt.fail(badLength());
      release?.();
      return true;
    } else if (this.#written === this.#length) this.#finish();
    return writeFramed(this.#connection, before, chunk, after, release);
  }

  onDrain(callback: () => void): void {
    this.#connection.onceDrained(callback);
  }

  end(): void {
    if (this.isOver) return;
    this.#isEnded = true;
    if (this.#length !== undefined) return this.#attempt.fail(badLength());
    this.#finish();
    this.#writeText(`${this.#takeHead()}0\r\n\r\n`);
  }

  fail(reason: unknown): void {
    if (!this.isOver) this.#attempt.fail(toRequestBodyError(reason));
  }

  #writeText(text: string): void {
    this.#connection.write(this.#connection.codec.encode(text));
  }

  #takeHead(): string {
    const head = this.#head;
    this.#head = "";
    return head;
  }

  #finish(): void {
    this.isOver = true;
    this.#connection.sent();
  }
}

/** Writes bytes between two texts; few bytes are sent together with the texts in one write. */
function writeFramed(
  connection: Connection,
  before: string,
  bytes: Uint8Array,
  after: string,
  release?: () => void,
): boolean {
  const { codec } = connection;
  if (before !== "" && bytes.byteLength <= SMALL) {
    return connection.write(concat([codec.encode(before), bytes, codec.encode(after)]), release);
  }
  if (before !== "") connection.write(codec.encode(before));
  const hasRoom = connection.write(bytes, release);
  return after === "" ? hasRoom : connection.write(codec.encode(after));
}

/** The error of a request body whose length differs from its Content-Length. */
export function badLength(): ProxyError {
  const message = "the request body was not as long as its Content-Length";
  return new ProxyError("http_request_error", { message });
}
