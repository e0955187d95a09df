import type { Socket } from "node:net";
import { ProxyError } from "../error.ts";
import { drained } from "../../runtimes/node/drained.ts";
import type { Idle } from "./idle.ts";
import type { ResponseHead } from "./head.ts";
import { copyOf } from "../../runtimes/sockets/buffercodec.ts";
import { type ResponseHandler, ResponseParser } from "./parser.ts";
import type { Job } from "./job.ts";

/** Who is told what becomes of a connection. */
export interface Owner {
  /** Its request is over, and it can take another. */
  onFree(connection: Connection): void;
  /** It has been silent for as long as it may. */
  onSilence(connection: Connection): void;
  /** It is gone. */
  onClose(connection: Connection): void;
}

/** One connection, with one request on it at a time. */
export class Connection implements ResponseHandler, Idle {
  readonly keepAlive: boolean;
  readonly openedAt: number = performance.now();
  /** Until when it may be idle, as `performance.now()` has it; `Infinity` while it is in use. */
  expiry: number = Infinity;
  /** Whether it has been made, */
  isOpen = false;
  /** and the address that it leads to. */
  address: string | undefined;
  /** Its neighbours among the idle connections of all origins. */
  before: Idle | undefined;
  after: Idle | undefined;
  /** What uses it for now. */
  job: Job | undefined;
  /** Milliseconds that the upstream said it keeps the connection. */
  hint: number = Infinity;
  readonly socket: Socket;
  readonly #owner: Owner;
  readonly #parser: ResponseParser = new ResponseParser(this);
  #requests = 0;
  #heard = false;
  /** How often bytes have come, or gone. */
  #moves = 0;
  /** Whether all of the present request has been handed to the socket. */
  #sent = false;
  /** What the socket has read, while it is parsed. */
  #read: Uint8Array | undefined;
  /** Whether the last chunk of a read may keep the memory of the read. */
  #mayTake = false;

  /** @param silence ms that it may be silent while it is used; 0 for no limit */
  constructor(socket: Socket, keepAlive: boolean, silence: number, owner: Owner) {
    this.socket = socket;
    this.#owner = owner;
    this.keepAlive = keepAlive;
    socket.on("end", () => this.#onFinish());
    // Where nobody uses it, nobody is to crash over it.
    socket.on("error", (error) => this.job?.fail(error));
    socket.on("close", () => {
      this.job?.fail(new ProxyError("connection_terminated"));
      owner.onClose(this);
    });
    if (silence === 0) return;
    socket.setTimeout(silence);
    socket.on("timeout", () => {
      socket.setTimeout(silence);
      const moves = this.#moves;
      // A process that was busy for so long has yet to read what has come meanwhile.
      setTimeout(() => {
        if (this.#moves === moves) owner.onSilence(this);
      }, 1);
    });
  }

  opened(address: string | undefined): void {
    this.isOpen = true;
    this.address = address;
  }

  // ── the request ──

  /** It is a job's until its response is over. */
  begin(job: Job, method: string): void {
    this.job = job;
    this.hint = Infinity;
    this.expiry = Infinity;
    this.#requests++;
    this.#heard = false;
    this.#sent = false;
    this.#parser.begin(method);
    this.socket.ref();
  }

  /**
   * @param done called when the bytes are not needed any more
   * @returns whether there is room for more
   */
  write(bytes: Uint8Array, done?: () => void): boolean {
    this.#moves++;
    return this.socket.write(bytes, done);
  }

  /** Resolves when there is room for more, or never will be. */
  drained(): Promise<void> {
    return drained(this.socket);
  }

  /** All of the request has been written. */
  sent(): void {
    this.#sent = true;
  }

  /** Lets bytes wait at the upstream. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  // ── the response ──

  /**
   * Parses what the socket has read.
   * @param mayTake whether a chunk may keep the memory: nothing else is in it, and nothing is read into it again
   * @returns whether a chunk has kept it
   */
  onData(read: Uint8Array, mayTake: boolean): boolean {
    this.#heard = true;
    this.#moves++;
    if (this.job === undefined) {
      // The next request would take unsolicited bytes for its response.
      this.destroy();
      return false;
    }
    this.#read = read;
    this.#mayTake = mayTake;
    try {
      this.#parser.feed(read);
    } catch (error) {
      this.job?.fail(error);
      this.destroy();
    }
    this.#read = undefined;
    return mayTake && !this.#mayTake;
  }

  /** @internal */
  onHead(head: ResponseHead): void {
    this.hint = head.keptFor;
    this.job?.onHead(head);
  }

  /** @internal */
  onPiece(piece: Uint8Array): void {
    this.job?.onPiece(this.#toOwned(piece));
  }

  /**
   * A chunk of the body belongs to its receiver, who may transfer its ArrayBuffer. The last chunk of a
   * read takes the read's memory with it; earlier ones are copied, so that no two share an ArrayBuffer.
   */
  #toOwned(piece: Uint8Array): Uint8Array {
    const { byteOffset, byteLength } = this.#read as Uint8Array;
    const isLast = piece.byteOffset + piece.byteLength === byteOffset + byteLength;
    if (!isLast || !this.#mayTake) return copyOf(piece);
    this.#mayTake = false;
    return piece;
  }

  /** @internal */
  onEnd(clean: boolean): void {
    this.job?.onEnd();
    this.job = undefined;
    // Answered before all was sent: the rest is not wanted, and the connection not in step.
    const inStep = this.#sent && !this.socket.writableNeedDrain;
    if (clean && inStep && this.keepAlive && this.usable) this.#owner.onFree(this);
    else this.destroy();
  }

  // ── its own life ──

  get destroyed(): boolean {
    return this.socket.destroyed;
  }

  /** Whether a request can be sent on it. */
  get usable(): boolean {
    const { destroyed, writable, readableEnded } = this.socket;
    return !destroyed && writable && !readableEnded;
  }

  /** Whether it has carried a request before the present one, of which no byte has come back. */
  get stale(): boolean {
    return this.#requests > 1 && !this.#heard;
  }

  /** Nobody uses it until then at most: it does not hold the process. */
  rest(expiry: number): void {
    this.expiry = expiry;
    this.socket.unref();
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** The upstream has ended the connection. */
  #onFinish(): void {
    const { socket } = this;
    if (!socket.allowHalfOpen || !this.#parser.isUntilClose) return this.#finish();
    // Node 22 reports some resets as an orderly end, which would be the end of this body. On a connection that
    // was reset, a write of no bytes fails all the same.
    socket.write("", (error) => {
      if (!error) this.#finish();
    });
  }

  #finish(): void {
    if (!this.#parser.finish()) this.job?.fail(new ProxyError("connection_terminated"));
    if (this.socket.allowHalfOpen) this.destroy();
  }
}
