/**
 * Overload: more requests than this process can answer. If it accepted them all, each would wait longer than the one before,
 * and soon all clients would be answered too late. So the process refuses some clients without delay, and answers the others in
 * time.
 *
 * - How it notices: this process connects to its own port now and then, and measures how long the connection waits until it is
 *   accepted. A new client waits as long.
 * - How it refuses: it closes its listening sockets. The system then refuses new connections, and resets those that wait to be
 *   accepted, in a fraction of the time that a response would take. The process listens again as soon as the events of its open
 *   connections do not have to wait; under a steady overload, that is after a few milliseconds.
 * - Open connections are closed only if the requests on them are too many.
 */
import { connect, type Socket } from "node:net";
import { unmapAddress } from "#fetchway/requests";

/** What `Overload` observes, and what it does. */
export interface OverloadParts {
  /** The number of running requests. */
  countRunning(): number;
  /** Closes a share of the connections: idle ones first, others after their responses. */
  shed(share: number): void;
  /** Closes the listening sockets. */
  close(): void;
  /** Listens with a few sockets or with all of them, while `isWanted` returns true; resolves when it does. */
  reopen(all: boolean, isWanted: () => boolean): Promise<void>;
  /** Reports that clients are refused. */
  report(): void;
}

/** The milliseconds that a new client may wait until its connection is accepted. */
const MAX_WAIT = 250;
/** The milliseconds that an event of an open connection may wait. A request has about five events, one after the other. */
const MAX_DELAY = 100;
/**
 * Clients are refused once two measurements in a row, over these milliseconds, have found longer waits. A measurement counts only
 * if so many requests have begun meanwhile: a suspended process, and one whose event loop is blocked, begin none.
 */
const SUSTAINED = 1000;
const MIN_BEGUN = 8;
/** Milliseconds after the last refusal after which the overload has ended. */
const RECOVERED = 2000;
/** The number of running requests from which on the waits are measured. */
const MIN_RUNNING = 16;
/** Milliseconds between two measurements. */
const INTERVAL = 50;

export class Overload {
  /** Whether clients are refused now and then. */
  isActive = false;
  readonly #host: string;
  readonly #port: number;
  readonly #parts: OverloadParts;
  #isObserving = false;
  #hasStopped = false;
  /** The connection to the own port that has not been accepted yet, and what to call when it is. */
  #probe: Socket | undefined;
  #onAccepted: (() => void) | undefined;
  /** Whether a probe was ever accepted. A port that this process cannot reach itself says nothing. */
  #hasWorked = false;
  /** The number of measurements in a row that have found long waits, and when the first of them began. */
  #long = 0;
  #longSince = 0;
  /** The number of requests that have begun. */
  #begun = 0;
  #refusedAt = 0;
  /** The time until which the connections that were closed last may still have running requests. */
  #shedUntil = 0;

  /** @param host an address at which this process reaches its own listening sockets */
  constructor(host: string, port: number, parts: OverloadParts) {
    this.#host = host;
    this.#port = port;
    this.#parts = parts;
  }

  /** Measures from now on, until fewer than `MIN_RUNNING` requests are running. Call it whenever a request begins. */
  observe(): void {
    this.#begun++;
    if (this.#isObserving || this.#parts.countRunning() < MIN_RUNNING || this.#hasStopped) return;
    this.#isObserving = true;
    void this.#observe();
  }

  /** Returns whether a connection that was accepted is a probe. A probe is closed, and must not be used. */
  takes(socket: Socket): boolean {
    const probe = this.#probe;
    if (probe === undefined || socket.remotePort !== probe.localPort) return false;
    if (unmapAddress(socket.remoteAddress ?? "") !== probe.localAddress) return false;
    this.#hasWorked = true;
    this.#onAccepted?.();
    socket.destroy();
    return true;
  }

  /** Stops measuring, because the server stops. */
  stop(): void {
    this.#hasStopped = true;
    this.#onAccepted?.();
  }

  async #observe(): Promise<void> {
    while (this.isActive || this.#parts.countRunning() >= MIN_RUNNING) {
      const begin = performance.now();
      const begun = this.#begun;
      const [wait, delay] = await Promise.all([this.#measureWait(), measureDelay()]);
      if (this.#hasStopped) return;
      const now = performance.now();
      if (wait <= MAX_WAIT && delay <= MAX_DELAY) this.#long = 0;
      else if (this.#begun - begun >= MIN_BEGUN && ++this.#long === 1) this.#longSince = begin;
      if (this.#long >= 2 && (this.isActive || now - this.#longSince > SUSTAINED)) {
        await this.#refuse(delay);
        continue;
      }
      if (this.isActive && now - this.#refusedAt > RECOVERED) {
        this.isActive = false;
        await this.#reopen(true);
      }
      await new Promise((resolve) => setTimeout(resolve, INTERVAL).unref());
    }
    this.#isObserving = false;
  }

  /** Returns the milliseconds until a probe was accepted, `Infinity` if that takes too long, or 0 if it is not known. */
  async #measureWait(): Promise<number> {
    const begin = performance.now();
    const probe = connect({ host: this.#host, port: this.#port }).unref();
    this.#probe = probe;
    const wait = await new Promise<number>((resolve) => {
      this.#onAccepted = () => resolve(performance.now() - begin);
      probe.on("error", () => resolve(0)).on("close", () => resolve(0));
      const late = (): void => resolve(this.#hasWorked && !probe.connecting ? Infinity : 0);
      setTimeout(late, MAX_WAIT).unref();
    });
    this.#probe = undefined;
    // A reset leaves no socket in the state TIME-WAIT.
    if (probe.connecting) probe.destroy();
    else probe.resetAndDestroy();
    return wait;
  }

  /**
   * Refuses new clients until the events of the open connections need not wait, but not for long.
   * @param delay the milliseconds for which an event of an open connection waited
   */
  async #refuse(delay: number): Promise<void> {
    this.isActive = true;
    this.#parts.report();
    this.#parts.close();
    const now = performance.now();
    if (delay > MAX_DELAY && now > this.#shedUntil) {
      this.#parts.shed(1 - MAX_DELAY / delay);
      this.#shedUntil = now + 2 * delay;
    }
    const end = now + MAX_WAIT;
    while (!this.#hasStopped && performance.now() < end) {
      if ((await measureDelay()) < MAX_DELAY / 2) break;
    }
    await this.#reopen(false);
    this.#refusedAt = performance.now();
  }

  async #reopen(all: boolean): Promise<void> {
    await this.#parts.reopen(all, () => !this.#hasStopped);
    if (this.#hasStopped) this.#parts.close();
  }
}

/**
 * Returns how many milliseconds an event waits for its turn in the event loop now. The lateness of a timer would not show it,
 * because timers run between two polls of libuv, and events that a poll leaves out wait for longer.
 */
async function measureDelay(): Promise<number> {
  const { port1, port2 } = new MessageChannel();
  const sentAt = performance.now();
  await new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(undefined);
  });
  port1.close();
  return performance.now() - sentAt;
}
