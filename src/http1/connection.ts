import type { Release } from "../body/memory.ts";
import { HIGH_WATER_MARK } from "../body/source.ts";
import { ProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Account, Claim, Holder } from "../transport/claim.ts";
import type { Codec } from "./codec.ts";
import type { Socket, SocketHandler } from "./connector.ts";
import { type ResponseHandler, type ParsedHead, ResponseParser } from "./parser.ts";
import type { IdleItem, PooledConnection } from "./pool.ts";
import type { QueuedJob } from "./queue.ts";

/** The attempt that uses a connection, or the tunnel that the attempt has opened. */
export interface Carried extends Claim {
  /** Whether reading is paused, because the bytes are not taken fast enough. A paused connection does not time out. */
  readonly isPaused: boolean;
  /** Stops the attempt or the tunnel at any stage. */
  fail(thrown: unknown): void;
  /** Called with each interim response (1xx). */
  onInterim?(status: number, headers: HeaderList): void;
  /** Called when the response headers have arrived. */
  onHead(head: ParsedHead): void;
  /** Called with each chunk. The receiver may transfer the ArrayBuffer of a body's chunk, but not that of a tunnel's. */
  onChunk(chunk: Uint8Array): void;
  /** Called when the response has ended or, for a tunnel, when the upstream has closed its direction. */
  onEnd(trailers?: HeaderList): void;
}

/** The members of an attempt to send a request that its pool and its connection use. */
export interface Job extends Carried, QueuedJob {
  /** Whether the request needs a new connection. */
  readonly newConnection: boolean;
  /** The protocol to switch the connection to; undefined for an ordinary request. */
  readonly upgrade: string | undefined;
  /**
   * The time limit in milliseconds for opening a connection for the job; 0 for no limit, undefined for the limit of the
   * pool.
   */
  readonly connectTimeout: number | undefined;
  /** The address of the client; used only if connections name their client (`proxyProtocol`). */
  readonly clientAddress: string | undefined;
  fail(thrown: unknown): void;
  /** Assigns a connection to the job until the response has ended. The connection may not be established yet. */
  join(connection: Connection): void;
  /** Sends the request. Called once the connection is established. */
  send(): void;
}

/** The methods of a pool that its connections call. */
export interface ConnectionOwner {
  /** Called when the connection is established. */
  onOpen(connection: Connection): void;
  /** Called when the connection has become a tunnel. */
  onSwitch(connection: Connection): void;
  /** Called when the response has ended, and the connection can carry another request. */
  onFree(connection: Connection): void;
  /** Called when no byte was sent or received for as long as the option `timeout` allows. */
  onSilence(connection: Connection): void;
  /** Called when the connection is closed, or could not be established. */
  onClose(connection: Connection): void;
}

/** The settings of a connection. */
export interface ConnectionOptions {
  /** Whether the connection may carry another request after the first. */
  readonly keepAlive: boolean;
  /** Milliseconds that the connection may be silent during a request; 0 for no limit. */
  readonly timeout: number;
  /** Whether the connection may be switched to another protocol. */
  readonly maySwitch?: boolean;
}

/** One connection, which carries one request at a time. */
export class Connection implements ResponseHandler, SocketHandler, PooledConnection, Holder {
  keepAlive: boolean;
  readonly openedAt: number = performance.now();
  /** Milliseconds that it took to establish the connection; undefined until then. */
  connectDuration: number | undefined;
  /** The time until which the connection may be idle, on the clock of `performance.now()`; `Infinity` during a request. */
  idleUntil: number = Infinity;
  /** The socket, once the connection is established. */
  socket: Socket | undefined;
  /** The upstream's IP address, once the connection is established. */
  address: string | undefined;
  /** The client that the connection has named to the upstream (`proxyProtocol`); undefined if it names none. */
  clientAddress: string | undefined;
  absences = 0;
  previousIdle: IdleItem | undefined;
  nextIdle: IdleItem | undefined;
  /** The request or the tunnel that uses the connection at present. */
  job: Carried | undefined;
  account: Account | undefined;
  /** The number of bytes that were received. */
  received = 0;
  /** Milliseconds for which the upstream keeps an idle connection, as its last response said; `Infinity` by default. */
  keepAliveTimeout: number = Infinity;
  readonly codec: Codec;
  readonly #owner: ConnectionOwner;
  /** Whether connecting was cancelled or has failed. A socket that the connector delivers afterwards is closed immediately. */
  #isCancelled = false;
  #cancelConnecting: (() => void) | undefined;
  readonly #timeout: number;
  readonly #parser: ResponseParser;
  /** Whether the socket has no room for more bytes: a write has returned false, and `onDrain` has not followed. */
  #isFull = false;
  /** The callbacks that wait for room. */
  #draining: (() => void)[] = [];
  /** The number of requests that the connection has carried, including the present one. */
  #requests = 0;
  /** Whether any byte has been received since the present request began. */
  #hasReceived = false;
  /** The number of reads and writes so far. While it stays the same, the connection is silent. */
  #activity = 0;
  /** Whether all of the present request has been handed to the socket. */
  #isRequestComplete = false;
  /** The bytes that the socket has read, while they are parsed. */
  #read: Uint8Array | undefined;
  /**
   * Whether the last chunk in `#read` may be passed on without a copy. `#toOwned` also checks that the ArrayBuffer holds only
   * the bytes of `#read`.
   */
  #mayKeep = false;

  constructor(
    { keepAlive, timeout, maySwitch }: ConnectionOptions,
    codec: Codec,
    owner: ConnectionOwner,
  ) {
    this.keepAlive = keepAlive;
    this.codec = codec;
    this.#timeout = timeout;
    this.#owner = owner;
    this.#parser = new ResponseParser(this, codec, maySwitch);
  }

  // ── opening ──

  /** Sets the callback that stops connecting. */
  onCancel(cancel: () => void): void {
    if (this.#isCancelled) cancel();
    else this.#cancelConnecting = cancel;
  }

  /** Takes the socket of the established connection, and lets the job send its request. */
  open(socket: Socket): void {
    if (this.#isCancelled) {
      socket.destroy();
      return this.onClose();
    }
    this.#cancelConnecting = undefined;
    this.connectDuration = performance.now() - this.openedAt;
    this.socket = socket;
    this.address = socket.remoteAddress;
    socket.attach(this);
    if (this.#timeout > 0) socket.setTimeout(this.#timeout);
    this.#owner.onOpen(this);
    (this.job as Job | undefined)?.send();
  }

  /** Called when the connection cannot be established. Fails the request that waits for it. */
  abandon(error: unknown): void {
    this.#isCancelled = true;
    this.fail(error);
    this.onClose();
  }

  // ── the request ──

  /**
   * Gives the connection to a job. The job sends its request once the connection is established. The request body is not
   * read before that, so that the request can still be sent on another connection.
   */
  take(job: Job): void {
    this.job = job;
    this.#requests++;
    job.join(this);
    if (this.socket !== undefined) job.send();
  }

  /** Prepares the connection and the parser for the request of the present job. */
  beginRequest(method: string): void {
    this.keepAliveTimeout = Infinity;
    this.idleUntil = Infinity;
    this.#hasReceived = false;
    this.#isRequestComplete = false;
    this.#parser.expectResponse(method);
    this.socket?.ref();
  }

  /**
   * Sends bytes on the established connection.
   * @param done called when the bytes were sent, or will not be sent
   * @returns whether there is room for more
   */
  write(bytes: Uint8Array, done?: Release): boolean {
    this.#activity++;
    const hasRoom = (this.socket as Socket).write(bytes, done);
    if (!hasRoom) this.#isFull = true;
    return hasRoom;
  }

  /** Calls back once when there is room for more bytes, or when the connection is closed. */
  onceDrained(callback: () => void): void {
    if (this.destroyed) callback();
    else this.#draining.push(callback);
  }

  /**
   * Records that the last byte of the present request is being written. Without this call, the connection is not reused.
   */
  markRequestComplete(): void {
    this.#isRequestComplete = true;
  }

  /** Stops reading, so that further bytes wait at the upstream. */
  pause(): void {
    this.socket?.pause();
  }

  resume(): void {
    this.socket?.resume();
  }

  onDrain(): void {
    this.#isFull = false;
    for (const resolve of this.#draining.splice(0)) resolve();
  }

  // ── the response ──

  /**
   * Parses the bytes that the socket has read.
   * @param mayKeep whether a chunk may be passed on without a copy, if the memory of the read holds no other bytes
   */
  onData(read: Uint8Array, mayKeep = true): void {
    this.#hasReceived = true;
    this.#activity++;
    this.received += read.byteLength;
    // If no request is running, close the connection: the next request would take these bytes for its response.
    if (this.job === undefined) return this.destroy();
    this.#read = read;
    this.#mayKeep = mayKeep;
    try {
      this.#parser.feed(read);
    } catch (error) {
      this.job?.fail(error);
      this.destroy();
    }
    this.#read = undefined;
  }

  /** @internal */
  onInterim(status: number, headers: HeaderList): void {
    this.job?.onInterim?.(status, headers);
  }

  /** @internal */
  onHead(head: ParsedHead): void {
    this.keepAliveTimeout = head.keepAliveTimeout;
    this.job?.onHead(head);
  }

  /** @internal */
  onChunk(chunk: Uint8Array): void {
    this.job?.onChunk(this.#toOwned(chunk));
  }

  /**
   * Returns a chunk of the body whose ArrayBuffer belongs to the receiver, which may transfer it. The last chunk of a read
   * keeps the memory of the read if it may; all others are copied, so that no two chunks share an ArrayBuffer. If the last
   * chunk is less than half of a large read, it is copied as well: a few bytes would keep the memory of the whole read.
   */
  #toOwned(chunk: Uint8Array): Uint8Array {
    const read = this.#read as Uint8Array;
    const { byteOffset, byteLength } = read;
    const isLast = chunk.byteOffset + chunk.byteLength === byteOffset + byteLength;
    const isPart = byteLength > HIGH_WATER_MARK && chunk.byteLength * 2 < byteLength;
    // Read `read.buffer` last: Bun creates the ArrayBuffer only when code reads that property.
    if (!this.#mayKeep || !isLast || isPart || byteLength !== read.buffer.byteLength) {
      return this.#copy(chunk);
    }
    return chunk;
  }

  /** Copies a chunk. The chunks of a tunnel may share an ArrayBuffer, because no receiver transfers them. */
  #copy(chunk: Uint8Array): Uint8Array {
    return this.#parser.isSwitched ? this.codec.copyToRead(chunk) : this.codec.copy(chunk);
  }

  /** @internal */
  onEnd(isReusable: boolean, trailers?: HeaderList): void {
    this.job?.onEnd(trailers);
    this.job = undefined;
    // If the upstream answers before the whole request was sent, the rest of the request is never sent, so do not reuse
    // the connection.
    const isSent = this.#isRequestComplete && !this.#isFull;
    if (isReusable && isSent && this.keepAlive && this.socket?.usable === true) {
      this.#owner.onFree(this);
    } else this.destroy();
  }

  /**
   * Hands the connection over to a tunnel after the upstream has answered 101. Pauses reading until the tunnel resumes it, and
   * ends the time limit for silent connections.
   */
  switchTo(tunnel: Carried): void {
    this.job = tunnel;
    this.pause();
    this.socket?.setTimeout(0);
    this.#owner.onSwitch(this);
  }

  // ── the connection itself ──

  /** Whether the connection is closed, or will not be established. */
  get destroyed(): boolean {
    return this.socket?.destroyed ?? this.#isCancelled;
  }

  get claim(): Claim | undefined {
    return this.job;
  }

  /** Whether the socket has room for more bytes, because the upstream takes the earlier ones. */
  get hasRoom(): boolean {
    return this.socket !== undefined && !this.#isFull;
  }

  /** Whether the connection has carried an earlier request. */
  get isReused(): boolean {
    return this.#requests > 1;
  }

  /** Whether the connection has carried an earlier request, and no byte has been received for the present one. */
  get isStale(): boolean {
    return this.isReused && !this.#hasReceived;
  }

  /** Makes the connection idle until a time. An idle connection does not keep the process alive. */
  setIdle(until: number): void {
    this.idleUntil = until;
    this.socket?.unref();
  }

  /** Makes the connection take no further request, and close when the present request is over. */
  drain(): void {
    this.keepAlive = false;
    if (this.job === undefined) this.destroy();
  }

  /** Closes our direction of the connection once everything is written. */
  end(): void {
    this.socket?.end();
  }

  /**
   * Closes the connection, with a reset where the runtime can send one, so that the upstream does not see a regular
   * end.
   */
  reset(): void {
    this.socket?.reset();
  }

  /** Closes the connection, or stops connecting. */
  destroy(): void {
    if (this.socket !== undefined) return this.socket.destroy();
    this.#isCancelled = true;
    this.#cancelConnecting?.();
    this.#cancelConnecting = undefined;
  }

  /** Called when the upstream has closed its direction of the connection, which may be the end of the response body. */
  onHalfClose(): void {
    if (this.#parser.isSwitched) this.socket?.confirmEnd(() => this.job?.onEnd(), true);
    else if (this.#parser.isUntilClose) this.socket?.confirmEnd(() => this.#finish());
    else this.#finish();
  }

  /** Fails the request or the tunnel that uses the connection at present. */
  fail(thrown: unknown): void {
    this.job?.fail(thrown);
  }

  /** Fails the present request. An error of an idle connection is not reported: the connection closes anyway. */
  onError(error: unknown): void {
    this.fail(error);
  }

  onClose(): void {
    this.job?.fail(new ProxyError("connection_terminated"));
    this.onDrain();
    this.#owner.onClose(this);
  }

  onTimeout(): void {
    this.socket?.setTimeout(this.#timeout);
    const before = this.#activity;
    // The event loop may have been blocked: let pending reads run before the connection counts as silent.
    setTimeout(() => {
      if (this.#activity === before) this.#owner.onSilence(this);
    }, 1);
  }

  #finish(): void {
    if (!this.#parser.finish()) this.job?.fail(new ProxyError("connection_terminated"));
    if (this.socket?.allowHalfOpen === true) this.destroy();
  }
}
