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
 * One connection, which carries one request at a time. The first request may begin while the connection is still being
 * established: the connection holds the bytes that are written until then.
 */
export class Connection implements ResponseHandler, SocketHandler, Idle {
  readonly keepAlive: boolean;
  readonly openedAt: number = performance.now();
  /** The time until which it may be idle, on the clock of `performance.now()`; `Infinity` while it is in use. */
  expiry: number = Infinity;
  /** The state of the connection until it is established. */
  readonly opening: Opening = new Opening();
  /** The socket, once the connection is established. */
  socket: Socket | undefined;
  /** The upstream's IP address, once the connection is established. */
  address: string | undefined;
  /** The connection in front of this one in the list of idle connections. */
  before: Idle | undefined;
  /** The connection behind this one in the list of idle connections. */
  after: Idle | undefined;
  /** The request that uses the connection at present. */
  job: Job | undefined;
  /** Milliseconds for which the upstream keeps an idle connection, according to its `Keep-Alive` field. */
  hint: number = Infinity;
  readonly codec: Codec;
  readonly #owner: Owner;
  readonly #timeout: number;
  readonly #parser: ResponseParser;
  /** Whether the socket has no room for more bytes: a write has returned false, and `onDrain` has not followed. */
  #isFull = false;
  /** The callbacks that wait for room. */
  #waiting: (() => void)[] = [];
  /** The number of requests that the connection has carried, including the present one. */
  #requests = 0;
  /** Whether any byte has been received since the present request began. */
  #heard = false;
  /** The number of reads and writes, which shows whether the connection is silent. */
  #moves = 0;
  /** Whether all of the present request has been handed to the socket. */
  #sent = false;
  /** The bytes that the socket has read, while they are parsed. */
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

  /** Takes the socket of the established connection, and sends the bytes that were held. */
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

  /** Fails the request that waits for this connection, which cannot be established. */
  abandon(error: unknown): void {
    this.opening.isCancelled = true;
    this.onError(error);
    this.onClose();
  }

  // ── the request ──

  /** Begins a request: the connection belongs to the job until the response has ended. */
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
   * Sends bytes, or holds them until the connection is established.
   * @param done called when the bytes are no longer needed
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

  /** Calls back once when there is room for more bytes, or when the connection is closed. */
  onceDrained(callback: () => void): void {
    if (this.destroyed) callback();
    else this.#waiting.push(callback);
  }

  /** Marks the present request as written to its end. */
  sent(): void {
    this.#sent = true;
  }

  /** Stops reading, so that further bytes wait at the upstream. */
  pause(): void {
    this.socket?.pause();
  }

  /** Continues reading. */
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
   * @param mayTake whether a chunk may keep the memory of the read
   * @returns whether a chunk has kept the memory
   */
  onData(read: Uint8Array, mayTake: boolean): boolean {
    this.#heard = true;
    this.#moves++;
    if (this.job === undefined) {
      // These bytes answer no request, and the next request would take them for its response.
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
   * Returns a chunk of the body whose ArrayBuffer belongs to the receiver, which may transfer it. The last chunk of a
   * read keeps the memory of the read; earlier chunks are copied, so that no two chunks share an ArrayBuffer.
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
    // If the upstream answers before the whole request was sent, the rest is never sent: do not reuse the connection.
    const inStep = this.#sent && !this.#isFull;
    if (clean && inStep && this.keepAlive && this.socket?.usable === true) this.#owner.onFree(this);
    else this.destroy();
  }

  // ── its own life ──

  get destroyed(): boolean {
    return this.socket?.destroyed ?? this.opening.isCancelled;
  }

  /** Whether the connection has carried an earlier request, and no byte has been received for the present one. */
  get stale(): boolean {
    return this.#requests > 1 && !this.#heard;
  }

  /** Makes the connection idle, until `expiry` at most. An idle connection does not keep the process alive. */
  rest(expiry: number): void {
    this.expiry = expiry;
    this.socket?.unref();
  }

  /** Closes the connection, or stops connecting. */
  destroy(): void {
    if (this.socket === undefined) this.opening.cancel();
    else this.socket.destroy();
  }

  /** The upstream has closed its direction, which may be the end of the body. */
  onHalfClose(): void {
    if (this.#parser.isUntilClose) this.socket?.confirmEnd(() => this.#finish());
    else this.#finish();
  }

  /** Fails the present request. An error of an idle connection is not reported: the connection closes anyway. */
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
    // The event loop may have been blocked: let pending reads run before the connection counts as silent.
    setTimeout(() => {
      if (this.#moves === moves) this.#owner.onSilence(this);
    }, 1);
  }

  #finish(): void {
    if (!this.#parser.finish()) this.job?.fail(new ProxyError("connection_terminated"));
    if (this.socket?.allowHalfOpen === true) this.destroy();
  }
}
