import { ProxyError } from "../error.ts";
import type { Codec } from "./codec.ts";
import type { Socket, SocketHandler } from "./connector.ts";
import type { Idle } from "./idle.ts";
import type { ResponseHead } from "./head.ts";
import type { Job } from "./job.ts";
import { Opening } from "./opening.ts";
import type { ConnectionOptions, Owner } from "./owner.ts";
import { type ResponseHandler, ResponseParser } from "./parser.ts";

/**
 * One connection, with one request on it at a time. Its first request may begin while it is still being
 * established: the connection holds what is written until then.
 */
export class Connection implements ResponseHandler, SocketHandler, Idle {
  readonly keepAlive: boolean;
  readonly openedAt: number = performance.now();
  /** Until when it may be idle, as `performance.now()` has it; `Infinity` while it is in use. */
  expiry: number = Infinity;
  /** What becomes of it until it is established. */
  readonly opening: Opening = new Opening();
  /** Its socket, once it is established. */
  socket: Socket | undefined;
  /** The upstream's address, once it is established. */
  address: string | undefined;
  /** Its neighbours among the idle connections of all origins. */
  before: Idle | undefined;
  after: Idle | undefined;
  /** What uses it for now. */
  job: Job | undefined;
  /** Milliseconds that the upstream said it keeps the connection. */
  hint: number = Infinity;
  readonly codec: Codec;
  readonly #owner: Owner;
  readonly #timeout: number;
  readonly #parser: ResponseParser;
  /** Whether its socket has refused more bytes, and has not had room since. */
  #isFull = false;
  /** What waits for room. */
  #waiting: (() => void)[] = [];
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

  constructor({ keepAlive, timeout }: ConnectionOptions, codec: Codec, owner: Owner) {
    this.keepAlive = keepAlive;
    this.codec = codec;
    this.#timeout = timeout;
    this.#owner = owner;
    this.#parser = new ResponseParser(this, codec);
  }

  /** Takes the socket of the established connection, and sends what was written before. */
  open(socket: Socket): void {
    if (this.opening.isCancelled) {
      socket.destroy();
      return this.onClose();
    }
    this.socket = socket;
    this.address = socket.remoteAddress;
    socket.attach(this);
    if (this.#timeout > 0) socket.setTimeout(this.#timeout);
    this.#owner.onOpen(this);
    for (const { bytes, done } of this.opening.take()) this.write(bytes, done);
    if (!this.#isFull) this.onDrain();
  }

  /** Fails the request that waits for a connection that cannot be established. */
  abandon(error: unknown): void {
    this.opening.isCancelled = true;
    this.onError(error);
    this.onClose();
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
    this.socket?.ref();
  }

  /**
   * @param done called when the bytes are not needed any more
   * @returns whether there is room for more
   */
  write(bytes: Uint8Array, done?: () => void): boolean {
    this.#moves++;
    const { socket } = this;
    if (socket === undefined) return this.opening.hold(bytes, done);
    const hasRoom = socket.write(bytes, done);
    if (!hasRoom) this.#isFull = true;
    return hasRoom;
  }

  /** Calls back once when there is room for more, or never will be. */
  onceDrained(callback: () => void): void {
    if (this.destroyed) callback();
    else this.#waiting.push(callback);
  }

  /** All of the request has been written. */
  sent(): void {
    this.#sent = true;
  }

  /** Lets bytes wait at the upstream. */
  pause(): void {
    this.socket?.pause();
  }

  resume(): void {
    this.socket?.resume();
  }

  /** The socket has room for more. */
  onDrain(): void {
    this.#isFull = false;
    for (const resolve of this.#waiting.splice(0)) resolve();
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
    this.job?.onChunk(this.#toOwned(piece));
  }

  /**
   * A chunk of the body belongs to its receiver, who may transfer its ArrayBuffer. The last chunk of a
   * read takes the read's memory with it; earlier ones are copied, so that no two share an ArrayBuffer.
   */
  #toOwned(piece: Uint8Array): Uint8Array {
    const { byteOffset, byteLength } = this.#read as Uint8Array;
    const isLast = piece.byteOffset + piece.byteLength === byteOffset + byteLength;
    if (!isLast || !this.#mayTake) return this.codec.copy(piece);
    this.#mayTake = false;
    return piece;
  }

  /** @internal */
  onEnd(clean: boolean): void {
    this.job?.onEnd();
    this.job = undefined;
    // Answered before all was sent: the rest is not wanted, and the connection not in step.
    const inStep = this.#sent && !this.#isFull;
    if (clean && inStep && this.keepAlive && this.socket?.usable === true) this.#owner.onFree(this);
    else this.destroy();
  }

  // ── its own life ──

  get destroyed(): boolean {
    return this.socket?.destroyed ?? this.opening.isCancelled;
  }

  /** Whether it has carried a request before the present one, of which no byte has come back. */
  get stale(): boolean {
    return this.#requests > 1 && !this.#heard;
  }

  /** Nobody uses it until then at most: it does not hold the process. */
  rest(expiry: number): void {
    this.expiry = expiry;
    this.socket?.unref();
  }

  destroy(): void {
    if (this.socket === undefined) this.opening.cancel();
    else this.socket.destroy();
  }

  /** The upstream has ended its direction, which may be the end of the body. */
  onHalfClose(): void {
    if (this.#parser.isUntilClose) this.socket?.confirmEnd(() => this.#finish());
    else this.#finish();
  }

  /** An error on a connection without a request is not reported: the connection closes, and no request uses it again. */
  onError(error: unknown): void {
    this.job?.fail(error);
  }

  onClose(): void {
    this.job?.fail(new ProxyError("connection_terminated"));
    this.opening.drop();
    this.onDrain();
    this.#owner.onClose(this);
  }

  onTimeout(): void {
    this.socket?.setTimeout(this.#timeout);
    const moves = this.#moves;
    // The event loop may have been blocked: what has come meanwhile is read before the connection counts as silent.
    setTimeout(() => {
      if (this.#moves === moves) this.#owner.onSilence(this);
    }, 1);
  }

  #finish(): void {
    if (!this.#parser.finish()) this.job?.fail(new ProxyError("connection_terminated"));
    if (this.socket?.allowHalfOpen === true) this.destroy();
  }
}
