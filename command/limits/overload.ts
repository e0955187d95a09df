/**
 * Overload: more requests than this process can answer. If it accepted them all, each would wait longer than the one before,
 * and soon all clients would be answered too late. So the process refuses some clients without delay, and answers the others in
 * time.
 *
 * - How it notices: now and then, this process connects to its own port, and measures how long the connection waits until it is
 *   accepted. A new client waits equally long. The process also measures how long an event waits for its turn in the event
 *   loop.
 * - How it refuses: it closes its listening sockets. The system then refuses new connections, and resets those that wait to be
 *   accepted, in a fraction of the time that a response would take. Under a steady overload, the process listens again after a
 *   few milliseconds.
 * - Open connections are closed only if their events wait for longer than `MAX_DELAY`.
 */
import { connect, type Socket } from "node:net";
import { unmapAddress } from "#fetchway/requests";

/** What `Overload` observes, and what it does. */
export interface OverloadParts {
  /** The number of running requests. */
  countRunning(): number;
  /** Closes a share of the connections: idle ones immediately, others after their responses. */
  shed(share: number): void;
  /** Closes the listening sockets. */
  close(): void;
  /** Opens a few listening sockets, or all. Resolves when one of them listens, or when `isWanted` returns false. */
  reopen(all: boolean, isWanted: () => boolean): Promise<void>;
  /** Reports that clients are refused. */
  report(): void;
}

/** The milliseconds that a new client may wait until its connection is accepted. */
const MAX_WAIT = 250;
/** The milliseconds that an event of an open connection may wait. A request has about five events, one after the other. */
const MAX_DELAY = 100;
/** Milliseconds for which all measured waits must have been too long (`MAX_WAIT`, `MAX_DELAY`) before the first refusal. */
const SUSTAINED = 500;
/**
 * The minimum number of requests that must have begun during a measurement, so that a long wait counts. If fewer have begun,
 * the process was suspended or blocked, but is not overloaded.
 */
const MIN_BEGUN = 8;
/** The maximum number of milliseconds for which the listening sockets stay closed. */
const MAX_CLOSED = 250;
/** The overload has ended when no client has been refused for this number of milliseconds. */
const RECOVERED = 2000;
/** The minimum number of running requests with which measuring begins. */
const MIN_RUNNING = 16;
/** Milliseconds between two measurements. */
const INTERVAL = 50;
/** The minimum number of milliseconds between two reports. */
const QUIET = 60_000;

export class Overload {
  /** Whether clients are refused again and again, for some milliseconds each time. */
  isActive = false;
  readonly #host: string;
  readonly #port: number;
  readonly #parts: OverloadParts;
  #isMeasuring = false;
  #hasStopped = false;
  /** The connection to the own port that has not been accepted yet, and what to call when it is. */
  #probe: Socket | undefined;
  #onAccepted: (() => void) | undefined;
  /**
   * Whether a probe was ever accepted. Until then, a probe that is not accepted says nothing: perhaps this process cannot reach
   * its own port.
   */
  #hasWorked = false;
  /** The number of measurements in a row that have found long waits, and when the first of them ended. */
  #long = 0;
  #longSince = 0;
  /** The number of requests that have begun. */
  #begun = 0;
  #refusedAt = 0;
  #reportedAt = -Infinity;
  /** The time until which the connections that were closed last may still have running requests. */
  #shedUntil = 0;

  /** @param host an address at which this process reaches its own listening sockets */
  constructor(host: string, port: number, parts: OverloadParts) {
    this.#host = host;
    this.#port = port;
    this.#parts = parts;
  }

  /** Counts a request that begins, and starts to measure if enough requests are running. */
  noteRequest(): void {
    this.#begun++;
    if (this.#isMeasuring || this.#parts.countRunning() < MIN_RUNNING || this.#hasStopped) return;
    this.#isMeasuring = true;
    void this.#run();
  }

  /** If an accepted connection is the probe, notes its wait, closes it and returns true. */
  acceptProbe(socket: Socket): boolean {
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

  async #run(): Promise<void> {
    while (!this.#hasStopped && (this.isActive || this.#parts.countRunning() >= MIN_RUNNING)) {
      const begun = this.#begun;
      const [wait, delay] = await Promise.all([this.#measureWait(), measureDelay()]);
      if (this.#hasStopped) return;
      const isLong = (wait ?? 0) > MAX_WAIT || delay > MAX_DELAY;
      if (isLong && this.#begun - begun >= MIN_BEGUN) {
        if (this.#isTooLong(performance.now())) {
          await this.#refuse(delay);
          continue;
        }
      } else if (!isLong && wait !== undefined) this.#long = 0;
      if (this.isActive && performance.now() - this.#refusedAt > RECOVERED) {
        this.isActive = false;
        await this.#reopen(true);
      }
      await new Promise((resolve) => setTimeout(resolve, INTERVAL).unref());
    }
    this.#isMeasuring = false;
    this.#long = 0;
  }

  /** Counts a long wait, and returns whether clients must be refused. */
  #isTooLong(now: number): boolean {
    if (++this.#long === 1) this.#longSince = now;
    return this.#long > 1 && (this.isActive || now - this.#longSince > SUSTAINED);
  }

  /** Returns the milliseconds until a probe was accepted, `Infinity` if that takes too long, or undefined if unknown. */
  async #measureWait(): Promise<number | undefined> {
    const begin = performance.now();
    const probe = connect({ host: this.#host, port: this.#port }).unref();
    this.#probe = probe;
    const wait = await new Promise<number | undefined>((resolve) => {
      this.#onAccepted = () => resolve(performance.now() - begin);
      const fail = (): void => resolve(undefined);
      probe.on("error", fail).on("close", fail);
      setTimeout(() => resolve(this.#hasWorked ? Infinity : undefined), MAX_WAIT).unref();
    });
    this.#probe = undefined;
    // A reset leaves no socket in the state TIME-WAIT.
    if (probe.connecting) probe.destroy();
    else probe.resetAndDestroy();
    return wait;
  }

  /**
   * Refuses new clients until an event waits for less than half of `MAX_DELAY`, but not for longer than `MAX_CLOSED`.
   * @param delay the milliseconds for which an event of an open connection waited
   */
  async #refuse(delay: number): Promise<void> {
    const now = performance.now();
    this.isActive = true;
    if (now - this.#reportedAt > QUIET) {
      this.#reportedAt = now;
      this.#parts.report();
    }
    this.#parts.close();
    if (delay > MAX_DELAY && now > this.#shedUntil) {
      this.#parts.shed(1 - MAX_DELAY / delay);
      this.#shedUntil = now + 2 * delay;
    }
    while (!this.#hasStopped && performance.now() - now < MAX_CLOSED) {
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
 * Returns how many milliseconds an event waits for its turn in the event loop now. The lateness of a timer would not show it:
 * libuv may poll many times until timers run, and an event may have to wait for several of these polls.
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
