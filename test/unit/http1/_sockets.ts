/** Fake sockets and a fake connector, with which the HTTP/1.1 client runs without a network. */
import type { ConnectionOwner } from "../../../src/http1/connection.ts";
import type {
  Connector,
  ConnectScope,
  Destination,
  NameUser,
  Socket,
  SocketHandler,
} from "../../../src/http1/connector.ts";

export class FakeSocket implements Socket {
  remoteAddress: string | undefined = "192.0.2.1";
  destroyed = false;
  usable = true;
  allowHalfOpen = false;
  isPaused = false;
  isHeld = true;
  isEnded = false;
  isReset = false;
  timeout = 0;
  /** The return value of `write`: whether there is room for more. */
  hasRoom = true;
  readonly writes: string[] = [];
  /** Whether `confirmEnd` reports an orderly close. */
  endsInOrder = true;
  /** Whether the callbacks of writes wait for `drain` or the end of the connection. */
  holdsDone = false;
  readonly #dones: (() => void)[] = [];
  #handler: SocketHandler | undefined;

  get sent(): string {
    return this.writes.join("");
  }

  attach(handler: SocketHandler): void {
    if (this.#handler !== undefined) throw new Error("it has a handler already");
    this.#handler = handler;
  }

  write(bytes: Uint8Array, done?: () => void): boolean {
    if (this.destroyed) throw new Error("it is destroyed");
    this.writes.push(Buffer.from(bytes).toString("latin1"));
    if (done !== undefined) this.#dones.push(done);
    if (!this.holdsDone) this.#callDones();
    return this.hasRoom;
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  ref(): void {
    this.isHeld = true;
  }

  unref(): void {
    this.isHeld = false;
  }

  setTimeout(ms: number): void {
    this.timeout = ms;
  }

  confirmEnd(done: () => void): void {
    if (this.endsInOrder) done();
    else this.fail("ECONNRESET");
  }

  end(): void {
    this.isEnded = true;
  }

  reset(): void {
    this.isReset = true;
    this.destroy();
  }

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.usable = false;
    queueMicrotask(() => {
      this.#callDones();
      this.#handler?.onClose();
    });
  }

  #callDones(): void {
    for (const done of this.#dones.splice(0)) done();
  }

  // ── events ──

  /** Delivers a text to the handler as bytes. The bytes of a short text are in memory that other Buffers share. */
  receive(text: string): void {
    this.receiveBytes(Buffer.from(text, "latin1"));
  }

  receiveBytes(bytes: Uint8Array, mayKeep?: boolean): void {
    this.#handler?.onData(bytes, mayKeep);
  }

  halfClose(): void {
    this.usable = false;
    this.#handler?.onHalfClose();
    if (!this.allowHalfOpen) this.destroy();
  }

  drain(): void {
    this.hasRoom = true;
    this.#callDones();
    this.#handler?.onDrain();
  }

  fail(code: string): void {
    this.#handler?.onError(Object.assign(new Error("as the runtime says it"), { code }));
    this.destroy();
  }

  beSilent(): void {
    this.#handler?.onTimeout();
  }
}

/** An owner of a connection that counts the calls of its methods. */
export type FakeOwner = ConnectionOwner &
  Record<"opened" | "switched" | "freed" | "silences" | "closed", number>;

export function fakeOwner(): FakeOwner {
  return {
    opened: 0,
    switched: 0,
    freed: 0,
    silences: 0,
    closed: 0,
    onOpen() {
      this.opened++;
    },
    onSwitch() {
      this.switched++;
    },
    onFree() {
      this.freed++;
    },
    onSilence() {
      this.silences++;
    },
    onClose() {
      this.closed++;
    },
  };
}

/** A call of `connect`, which the test completes. */
export class FakeAttempt {
  readonly destination: Destination;
  readonly scope: ConnectScope;
  isCancelled = false;
  readonly promise: Promise<Socket>;
  #resolve!: (socket: Socket) => void;
  #reject!: (error: Error) => void;

  constructor(destination: Destination, scope: ConnectScope) {
    this.destination = destination;
    this.scope = scope;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    scope.onCancel(() => {
      this.isCancelled = true;
      void this.fail("ECANCELED");
    });
  }

  async succeed(socket: FakeSocket = new FakeSocket()): Promise<FakeSocket> {
    this.#resolve(socket);
    await settled();
    return socket;
  }

  async fail(code: string): Promise<void> {
    this.#reject(Object.assign(new Error("as the runtime says it"), { code }));
    await settled();
  }
}

/** A connector whose attempts succeed or fail when the test says so. */
export class FakeConnector implements Connector {
  readonly attempts: FakeAttempt[] = [];
  /** The pools whose host names are looked up in the background. */
  readonly users: Set<NameUser> = new Set();

  watch(_: Destination, user: NameUser): void {
    this.users.add(user);
  }

  connect(destination: Destination, scope: ConnectScope): Promise<Socket> {
    const attempt = new FakeAttempt(destination, scope);
    this.attempts.push(attempt);
    return attempt.promise;
  }

  /** Returns the call of `connect` with this number, from 0. */
  at(index: number): FakeAttempt {
    const attempt = this.attempts[index];
    if (attempt === undefined) throw new Error(`there are ${this.attempts.length} attempts`);
    return attempt;
  }
}

/** Resolves when the pending promise callbacks have run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
