/**
 * Overload: more requests than this process can answer. If it accepted them all, each would wait longer than the one before,
 * and soon all clients would be answered too late. So the process refuses some clients without delay, and answers the others in
 * time.
 *
 * - How it notices: this process connects to its own port now and then, and measures how long the connection waits until it is
 *   accepted. A new client waits as long.
 * - How it refuses: it closes its listening sockets. The system then refuses new connections, and resets those that wait to be
 *   accepted, for a fraction of the time that a response would take. As soon as the events of the open connections do not have
 *   to wait any longer, the process listens again; under a steady overload, that is after a few milliseconds.
 * - Open connections are closed only if their own requests are too many.
 */
import { connect, type Socket } from "node:net";

/** What `Overload` observes, and what it does. */
export interface OverloadParts {
  /** The number of running requests. */
  countRunning(): number;
  /** Closes a share of the connections: idle ones first, others after their responses. */
  shed(share: number): void;
  /** Closes the listening sockets. */
  close(): void;
  /** Listens with a few sockets or with all of them; resolves when it does. */
  reopen(all: boolean): Promise<void>;
  /** Reports that clients are refused. */
  report(): void;
}

/** The milliseconds that a new client may wait until its connection is accepted. */
const MAX_WAIT = 250;
/** The milliseconds that an event of an open connection may wait. A request has about five events, one after the other. */
const MAX_DELAY = 100;
/**
 * The first client is refused once all waits have been longer for these milliseconds, and so many times: a process that was
 * suspended finds two long waits.
 */
const SUSTAINED = 1000;
const MIN_LONG = 4;
/** Milliseconds without a long wait after which the overload has ended. */
const RECOVERED = 2000;
/** The number of running requests from which on the wait is measured. */
const MIN_RUNNING = 16;
/** Milliseconds between two measurements. */
const INTERVAL = 50;

export class Overload {
  /** Whether clients are refused now and then. */
  isActive = false;
  readonly #parts: OverloadParts;
  readonly #port: number;
  readonly #host: string;
  #timer: NodeJS.Timeout | undefined;
  /** The connection to the own port that has not been accepted yet. */
  #probe: Socket | undefined;
  /** When the probe began to connect, and when its event `connect` came; on the clock of `performance.now()`. */
  #probedAt = 0;
  #connectedAt: number | undefined;
  /** When the last short wait ended, and the last long one. */
  #shortAt = 0;
  #longAt = 0;
  /** The number of long waits since the last short one. */
  #long = 0;
  #isClosed = false;
  #hasStopped = false;

  /** @param host an address at which this process reaches its own listening sockets */
  constructor(host: string, port: number, parts: OverloadParts) {
    this.#host = host;
    this.#port = port;
    this.#parts = parts;
  }

  /** Measures from now on, until fewer than `MIN_RUNNING` requests are running. Call it whenever a request begins. */
  observe(): void {
    if (this.#timer !== undefined || this.#parts.countRunning() < MIN_RUNNING) return;
    this.#shortAt = performance.now();
    this.#timer = setInterval(() => this.#measure(), INTERVAL).unref();
  }

  /** Returns whether a connection that was accepted is a probe. A probe is closed, and must not be used. */
  takes(socket: Socket): boolean {
    const probe = this.#probe;
    if (probe === undefined || socket.remotePort !== probe.localPort) return false;
    if (!socket.remoteAddress?.endsWith(probe.localAddress ?? "")) return false;
    this.#endProbe();
    socket.destroy();
    this.#judge(true);
    return true;
  }

  /** Stops measuring, because the server stops. */
  stop(): void {
    this.#hasStopped = true;
    clearInterval(this.#timer);
    this.#endProbe();
  }

  #measure(): void {
    if (this.#isClosed) return;
    const now = performance.now();
    if (this.#probe !== undefined) {
      this.#judge(false);
    } else if (this.isActive || this.#parts.countRunning() >= MIN_RUNNING) {
      this.#sendProbe(now);
    } else {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }

  #sendProbe(now: number): void {
    this.#probedAt = now;
    this.#connectedAt = undefined;
    const probe = connect({ host: this.#host, port: this.#port }).unref();
    this.#probe = probe;
    probe.on("connect", () => {
      if (probe === this.#probe) this.#connectedAt = performance.now();
    });
    // If no connection is possible, such as without a free port, nothing is measured.
    probe.on("error", () => {
      if (probe === this.#probe) this.#endProbe();
    });
  }

  #endProbe(): void {
    // A reset leaves no socket in the state TIME-WAIT.
    this.#probe?.resetAndDestroy();
    this.#probe = undefined;
  }

  /** Judges the wait of the probe, which has been accepted or still waits. */
  #judge(isAccepted: boolean): void {
    const now = performance.now();
    // The system connects the probe immediately, so its event `connect` has waited as long as any event.
    const delay = (this.#connectedAt ?? now) - this.#probedAt;
    if (now - this.#probedAt > MAX_WAIT || delay > MAX_DELAY) {
      this.#longAt = now;
      const isSustained = ++this.#long >= MIN_LONG && now - this.#shortAt > SUSTAINED;
      if (this.isActive || isSustained) void this.#refuse(delay);
    } else if (isAccepted) {
      this.#long = 0;
      this.#shortAt = now;
      if (!this.isActive || now - this.#longAt < RECOVERED) return;
      this.isActive = false;
      void this.#reopen(true);
    }
  }

  async #reopen(all: boolean): Promise<void> {
    if (!this.#hasStopped) await this.#parts.reopen(all);
    if (this.#hasStopped) this.#parts.close();
  }

  /**
   * Refuses new clients until the events of the open connections need not wait.
   * @param delay the milliseconds for which an event of an open connection waited
   */
  async #refuse(delay: number): Promise<void> {
    this.isActive = true;
    this.#isClosed = true;
    this.#endProbe();
    this.#parts.report();
    this.#parts.close();
    if (delay > MAX_DELAY) this.#parts.shed(1 - MAX_DELAY / delay);
    while (!this.#hasStopped && (await delayOfEvents()) > MAX_DELAY / 2);
    await this.#reopen(false);
    this.#isClosed = false;
  }
}

/**
 * Returns how many milliseconds an event waits for its turn in the event loop now. The lateness of a timer would not show it,
 * because timers run between two polls of libuv, and events that a poll leaves out wait for longer.
 */
async function delayOfEvents(): Promise<number> {
  const { port1, port2 } = new MessageChannel();
  const sentAt = performance.now();
  await new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(undefined);
  });
  port1.close();
  return performance.now() - sentAt;
}
