/** The result of an exchange, and the invariants that must hold for it. */
import type { ResponseHead } from "../helpers/client.ts";
import type { Call } from "../helpers/link.ts";
import { explainBytes } from "./blocks.ts";
import { makeRequest, makeResponse, padding, type Wire } from "./message.ts";
import type { Exchange, Intrusion, Session } from "./plan.ts";

/** How an exchange ends for its client. */
export type Outcome =
  /** The client got the upstream's response, complete by its framing. */
  | "whole"
  /** The client got the upstream's response truncated, and could see that. */
  | "cut"
  /** The client got an error response of the proxy. */
  | "gateway"
  /** The connection ended without a response. */
  | "closed"
  /** The client itself has disconnected. */
  | "left";

/** The invariants; a violation names one of these. */
export const INVARIANTS = [
  /** The bytes of bodies, request line and padding are those of their exchange. */
  "bytes",
  /** A truncated body does not look complete, in either direction. */
  "looks whole",
  /** A POST or PATCH reaches the upstream at most once, an idempotent request at most twice. */
  "repeated",
  /**
   * Responses arrive in the order of their requests, and requests reach the upstream in the order of RFC 9112 §9.3.2.
   */
  "order",
  /** An exchange without a planned fault succeeds. */
  "success",
  /** Each exchange ends. */
  "end",
  /** No connection stays in use, and idle ones are closed. */
  "connections",
  /** The process does not exit, and prints nothing. */
  "process",
] as const;
export type Invariant = (typeof INVARIANTS)[number];
export type Complain = (invariant: Invariant, what: string, record?: Record) => void;

const SAFE = new Set(["GET", "HEAD"]);
const IDEMPOTENT = new Set(["GET", "HEAD", "PUT", "DELETE"]);
const GATEWAY_STATUSES = new Set([502, 503, 504]);
/** The statuses that are allowed if other code may have read from the request's body. */
const INTRUDED_STATUSES = new Set([...GATEWAY_STATUSES, 400, 500]);
/** The intrusions that do not read the request's body, and so cannot make an exchange fail. */
const HARMLESS = new Set<Intrusion>(["response watched", "response wrapped"]);

export class Record {
  readonly plan: Exchange;
  readonly session: Session;
  readonly request: Wire;
  readonly response: Wire;
  readonly calls: Call[] = [];
  outcome: Outcome | undefined;
  /** Whether the client has written the last byte of its request. */
  sent = false;
  /** Whether the upstream has written, or is about to write, the last byte of its response. */
  answered = false;
  /** Whether the upstream has truncated its response. */
  broken = false;
  /** Whether the request came on a connection that the upstream had already closed. */
  stale = false;
  /** The time at which the exchange ended for the client. */
  endedAt = 0;
  readonly #complain: Complain;

  constructor(plan: Exchange, session: Session, complain: Complain) {
    this.plan = plan;
    this.session = session;
    this.request = makeRequest(plan);
    this.response = makeResponse(plan);
    this.#complain = complain;
  }

  fault(invariant: Invariant, what: string): void {
    this.#complain(invariant, what, this);
  }

  get isSafe(): boolean {
    return SAFE.has(this.plan.method);
  }

  /** Whether the proxy can send the request again: it is idempotent, and its head says that it has no body. */
  get isRepeatable(): boolean {
    return IDEMPOTENT.has(this.plan.method) && this.#isBodyless;
  }

  get #isBodyless(): boolean {
    return this.plan.request.framing !== "chunked" && this.request.body.length === 0;
  }

  /** Whether other code in the process may have read from the request's body. */
  get isIntruded(): boolean {
    const { intrusion } = this.plan;
    return intrusion !== undefined && !HARMLESS.has(intrusion);
  }

  /** Whether the exchange has ended at the upstream. Until then it occupies an upstream connection. */
  get isOver(): boolean {
    return this.calls.every(({ link }) => link.isClosed || this.answered);
  }

  /** Records that a request of this exchange has arrived at the upstream. */
  arrive(call: Call): void {
    const { plan } = this;
    const times = this.calls.push(call);
    const most = IDEMPOTENT.has(plan.method) ? 2 : 1;
    if (times > most)
      this.fault("repeated", `${plan.method} has reached the upstream ${times} times`);
    if (call.method !== plan.method || call.target !== `/storm/${plan.id}`) {
      this.fault("bytes", `the request line became ${call.method} ${call.target}`);
    }
    const pad = call.get("x-pad") ?? "";
    if (pad !== padding(plan.id, plan.request.pad)) this.fault("bytes", `X-Pad became ${pad}`);
    void call.done.then(() => this.#checkUpload(call));
  }

  #checkUpload(call: Call): void {
    const expected = this.request.body;
    const got = call.body;
    const wrong = explainBytes(expected, got, 0);
    // Bytes that other code has read may be missing anywhere in the body, provided that it does not look complete.
    const mayMiss = this.isIntruded && call.state === "cut";
    if (wrong !== undefined && !mayMiss)
      this.fault("bytes", `the upstream's request body: ${wrong}`);
    if (call.state !== "complete") return;
    if (got.length < expected.length) {
      this.fault(
        "looks whole",
        `an upload looks whole with ${got.length} of ${expected.length} bytes`,
      );
    } else if (!this.sent) {
      this.fault("looks whole", "an upload looks whole that the client has not ended");
    }
  }

  /**
   * Returns whether a response head comes from the upstream, and reports a head that is not the one of this exchange.
   */
  checkHead(head: ResponseHead): boolean {
    const { id, status, response } = this.plan;
    const own = head.get("x-storm");
    if (own === undefined) {
      const statuses = this.isIntruded ? INTRUDED_STATUSES : GATEWAY_STATUSES;
      if (!statuses.has(head.status)) this.fault("success", `the proxy answers ${head.status}`);
      return false;
    }
    if (own !== String(id)) this.fault("order", `the client gets the response of exchange ${own}`);
    if (head.status !== status) this.fault("bytes", `status ${status} became ${head.status}`);
    const pad = head.get("x-pad") ?? "";
    if (pad !== padding(id, response.pad))
      this.fault("bytes", `X-Pad of the response became ${pad}`);
    return true;
  }

  checkPiece(piece: Buffer, offset: number): void {
    const wrong = explainBytes(this.response.body, piece, offset);
    if (wrong !== undefined) this.fault("bytes", `the client's response body: ${wrong}`);
  }

  /**
   * Records that the exchange has ended for the client.
   * @param length the number of bytes of the upstream's body that the client has received
   * @param mayBeStale whether the upstream has just closed idle connections
   */
  end(outcome: Outcome, length: number, mayBeStale: boolean): void {
    this.outcome = outcome;
    this.endedAt = performance.now();
    if (outcome === "left") return;
    if (outcome === "whole") this.#checkWhole(length);
    else if (!this.#mayFail(outcome, mayBeStale)) {
      const seen = this.calls.map(({ state }) => state).join(", ") || "none";
      this.fault(
        "success",
        `${outcome} after ${length} bytes, where nothing was wrong; calls: ${seen}`,
      );
    }
  }

  #checkWhole(length: number): void {
    const { plan, response, calls } = this;
    if (length < response.body.length) {
      this.fault(
        "looks whole",
        `a response looks whole with ${length} of ${response.body.length} bytes`,
      );
    } else if (!this.answered)
      this.fault("looks whole", "a response looks whole that the upstream has broken off");
    if (!plan.early && !calls.some(({ state }) => state === "complete")) {
      this.fault("looks whole", "a response came for a request that did not arrive");
    }
  }

  #mayFail(outcome: Outcome, mayBeStale: boolean): boolean {
    if (this.broken || this.isIntruded) return true;
    if (outcome !== "gateway" || this.answered) return false;
    // A request that the proxy must not repeat fails if the upstream closes the reused connection at the same time.
    return this.stale || (mayBeStale && this.calls.length === 0 && !this.isRepeatable);
  }
}
