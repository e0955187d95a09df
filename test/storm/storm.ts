/** Runs sessions against a host until there have been enough exchanges, and records the violations of invariants. */
import { connect } from "../helpers/client.ts";
import { type Host, startHost } from "../hosts/_host.ts";
import type { HostName } from "../hosts/_hosts.ts";
import type { Call } from "../helpers/link.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until } from "../helpers/wait.ts";
import { answer } from "./answer.ts";
import { canDo, type Feature } from "./limits.ts";
import { IDS_PER_SESSION, type Session } from "./plan.ts";
import { type Abilities, planSession } from "./planner.ts";
import { type Complain, type Invariant, type Outcome, Record } from "./record.ts";
import { runSession } from "./session.ts";
import { type Variant, variantFlags } from "./variants.ts";

export interface StormOptions {
  host: HostName;
  variant?: Variant;
  seed: number;
  exchanges: number;
  /** The number of sessions that run at the same time. */
  concurrency?: number;
  /** The index of a session to run alone, repeated until there have been `exchanges` exchanges. */
  only?: number;
  /** Options for the proxies in addition to those of the setup, as JSON. */
  options?: string;
  /** Invariants that are not checked because they are known not to hold. */
  except?: readonly Invariant[];
  /** Features that the plans do not use, in addition to those that the host lacks. */
  without?: readonly Feature[];
}

export interface Violation {
  /** The number of exchanges that had begun when the violation was found. */
  after: number;
  invariant: Invariant;
  what: string;
  /** The exchange in which the violation was found, if it belongs to one. */
  record: Record | undefined;
  /** The shell command that reruns only this session. A violation that depends on other sessions may not occur then. */
  command: string;
}

/** The number of violations after which the storm stops, because further ones would add nothing new. */
const ENOUGH = 40;
/** The time in milliseconds within which an exchange must end at the upstream after it has ended for the client. */
const TAIL = 10_000;
/**
 * The time in milliseconds for which an ended exchange is remembered, because requests of disconnected clients may
 * arrive late.
 */
const MEMORY = 5000;
/**
 * The time in milliseconds after the close of an idle connection in which a request may fail because it used that
 * connection.
 */
const STALE = 1000;

export class Storm {
  readonly violations: Violation[] = [];
  readonly tally: { [outcome in Outcome]: number } = {
    whole: 0,
    cut: 0,
    gateway: 0,
    closed: 0,
    left: 0,
  };
  begun = 0;
  /** The number of requests that the proxy has sent again. */
  repeated = 0;
  /** The time in milliseconds that all exchanges took. */
  elapsed = 0;
  readonly #options: StormOptions;
  readonly #upstream: Upstream = new Upstream();
  readonly #records: Map<number, Record> = new Map();
  #host: Host | undefined;
  #next = 0;
  #idleClose = -Infinity;
  #pipelined: Map<number, Record[]> = new Map();

  constructor(options: StormOptions) {
    this.#options = options;
  }

  /** Runs all sessions. Exchanges may still be running at the upstream afterwards: `settle` waits for them. */
  async run(): Promise<void> {
    const { host, variant, seed, options, concurrency = 32 } = this.#options;
    await this.#upstream.listen();
    this.#upstream.script = (call) => this.#onCall(call);
    const flags = variantFlags(variant, seed);
    this.#host = await startHost(host, this.#upstream.url, { flags, options });
    const sweeper = setInterval(() => this.#sweep(), 250);
    const start = performance.now();
    try {
      await Promise.all(Array.from({ length: concurrency }, () => this.#work()));
    } finally {
      this.elapsed = performance.now() - start;
      clearInterval(sweeper);
    }
  }

  /** Waits until all exchanges have ended and the proxy has closed its idle connections. Then it stops the host. */
  async settle(): Promise<void> {
    const host = this.#host;
    if (host === undefined) return;
    const upstream = this.#upstream;
    try {
      const over = (): boolean => [...this.#records.values()].every((record) => record.isOver);
      await until(over, "the end of all exchanges", TAIL).catch(() => {});
      this.#sweep(true);
      // The idle timeout closes only free connections, so a connection that stays open is still marked as in use.
      const isClosed = (): boolean => upstream.links.every((link) => link.isClosed);
      await until(isClosed, "the end of all connections", TAIL).catch(() => {
        const open = upstream.links.filter((link) => !link.isClosed);
        const busy = open.filter((link) => !link.idle).length;
        const last = open.map((link) => link.calls.at(-1)?.get("x-storm")).join(", ");
        this.#complain(
          "connections",
          `${open.length} connections stay open, ${busy} of them in use; their last exchanges: ${last}`,
        );
      });
      if (this.#options.variant !== undefined && !host.exited()) await host.stop();
      const complaints = host.complaints().replace(/^exited with (?:0|SIGTERM)\n/, "");
      if (complaints !== "") this.#complain("process", `the host says: ${complaints}`);
    } finally {
      await host.stop();
      await upstream.stop();
    }
  }

  get #abilities(): Abilities {
    const { host, variant, without } = this.#options;
    return {
      has: (feature) => canDo(host, feature) && without?.includes(feature) !== true,
      intrusions: variant !== undefined,
    };
  }

  async #work(): Promise<void> {
    const { seed, exchanges, only } = this.#options;
    while (this.begun < exchanges && this.violations.length < ENOUGH) {
      const index = this.#next++;
      await this.#runSession(planSession(seed, only ?? index, this.#abilities, index), index);
    }
  }

  async #runSession(plan: Session, number: number): Promise<void> {
    const { host } = this.#options;
    const complain: Complain = (...complaint) => this.#complain(...complaint);
    const port = this.#host?.port(plan.setup) ?? 0;
    const records = plan.exchanges.map((exchange) => new Record(exchange, plan, complain));
    this.begun += records.length;
    if (plan.pipelined) this.#pipelined.set(number, records);
    for (const record of records) this.#records.set(record.plan.id, record);
    try {
      await runSession(plan, records, {
        connect: () => connect(port),
        mayBeStale: () => performance.now() - this.#idleClose < STALE,
        keepsAfterUpload: canDo(host, "kept after an upload"),
      });
    } catch (error) {
      this.#complain("end", `the session failed: ${String(error)}`, records[0]);
    }
    for (const record of records) {
      if (record.outcome === undefined) record.end("left", 0, false);
      this.tally[record.outcome ?? "left"]++;
    }
  }

  async #onCall(call: Call): Promise<void> {
    const id = Number(call.get("x-storm"));
    const record = this.#records.get(id);
    if (record === undefined) {
      this.#complain("bytes", `a request that no client has sent, or long ago:\n${call.head}`);
      return;
    }
    record.arrive(call);
    if (record.calls.length > 1) this.repeated++;
    this.#checkOrder(record, call);
    await answer(record, call, () => (this.#idleClose = performance.now()));
  }

  /**
   * Checks RFC 9112 §9.3.2: a pipelined request that follows a request with an unsafe method is forwarded only when the latter
   * has ended.
   */
  #checkOrder(record: Record, call: Call): void {
    // If the upstream has already closed this connection, the proxy may have answered this request itself, and then
    // forwarded a later one. So do not check the order.
    if (!call.link.socket.writable) return;
    const { id } = record.plan;
    const records = this.#pipelined.get(Math.floor(id / IDS_PER_SESSION));
    for (const other of records ?? []) {
      const isBefore = other.plan.id < id;
      const first = isBefore ? other : record;
      if (other === record || first.isSafe || other.calls.length === 0) continue;
      if (!isBefore)
        record.fault(
          "order",
          `arrives after exchange ${other.plan.id}, which the client sent later`,
        );
      else if (
        !other.answered &&
        !other.broken &&
        !other.stale &&
        !other.calls.every(({ link }) => link.isClosed)
      ) {
        record.fault(
          "order",
          `arrives before ${other.plan.method} of exchange ${other.plan.id} is over`,
        );
      }
    }
  }

  /** Forgets ended exchanges, and reports those that should have ended. */
  #sweep(isLast = false): void {
    const now = performance.now();
    for (const [id, record] of this.#records) {
      const age = record.outcome === undefined ? 0 : now - record.endedAt;
      if (record.isOver ? age > MEMORY : age > TAIL || isLast) {
        if (!record.isOver)
          record.fault("connections", "its connection to the upstream is still in use");
        this.#records.delete(id);
        this.#pipelined.delete(Math.floor(id / IDS_PER_SESSION));
      }
    }
    const upstream = this.#upstream;
    upstream.calls.length = 0;
    upstream.links = upstream.links.filter((link) => !link.isClosed);
    for (const link of upstream.links) link.calls.splice(0, link.calls.length - 1);
    for (const fault of upstream.faults.splice(0)) {
      this.#complain("bytes", `not HTTP at the upstream: ${fault}`);
    }
    const complaints = this.#host?.complaints() ?? "";
    if (complaints !== "") this.#complain("process", `the host says: ${complaints}`);
  }

  #complain(invariant: Invariant, what: string, record?: Record): void {
    const { host, variant, seed, except } = this.#options;
    if (except?.includes(invariant)) return;
    const name = variant === undefined ? host : `${host}:${variant}`;
    const alone = record === undefined ? "" : ` --only ${record.session.index}`;
    this.violations.push({
      after: this.begun,
      invariant,
      what: record === undefined ? what : `exchange ${record.plan.id}: ${what}`,
      record,
      command: `npm run test:storm -- --hosts ${name} --seed ${seed}${alone}`,
    });
  }
}
