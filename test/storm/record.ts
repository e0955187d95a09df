/** The result of an exchange, and the invariants that must hold for it. */
import type { ResponseHead } from "../_client.ts";
import type { Call } from "../_link.ts";
import { explainBytes } from "./blocks.ts";
import { makeRequest, makeResponse, padding, type Wire } from "./message.ts";
import type { Exchange, Intrusion, Session } from "./plan.ts";

/** The result that a client sees. */
export type Outcome =
  /** The upstream's response, whole by its framing. */
  | "whole"
  /** The upstream's response, visibly broken off. */
  | "cut"
  /** A response of the proxy's own. */
  | "gateway"
  /** The connection ended before a response. */
  | "closed"
  /** The client has disconnected. */
  | "left";

/** The invariants; a violation names one of these. */
export const INVARIANTS = [
  /** The bytes of a body, of the request line and of the padding are those of the exchange. */
  "bytes",
  /** What broke off does not look whole, in either direction. */
  "looks whole",
  /** A POST or PATCH reaches the upstream at most once, an idempotent request at most twice. */
  "repeated",
  /** Responses come in the order of their requests, and requests as RFC 9112 §9.3.2 wants. */
  "order",
  /** Where nothing is planned to go wrong, nothing does. */
  "success",
  /** Each exchange ends. */
  "end",
  /** No connection stays in use, and idle ones are closed. */
  "connections",
  /** The process lives and says nothing. */
  "process",
] as const;
export type Invariant = (typeof INVARIANTS)[number];
export type Complain = (invariant: Invariant, what: string, record?: Record) => void;

const SAFE = new Set(["GET", "HEAD"]);
const IDEMPOTENT = new Set(["GET", "HEAD", "PUT", "DELETE"]);
const GATEWAY_STATUSES = new Set([502, 503, 504]);
/** Where somebody else has read from the body. */
const INTRUDED_STATUSES = new Set([...GATEWAY_STATUSES, 400, 500]);
/** Those who take nothing of the body cannot be the reason that the exchange fails. */
const HARMLESS = new Set<Intrusion>(["response watched", "response wrapped"]);

export class Record {
  readonly plan: Exchange;
  readonly session: Session;
  readonly request: Wire;
  readonly response: Wire;
  readonly calls: Call[] = [];
  outcome: Outcome | undefined;
  /** The client has written the last byte of its request. */
  sent = false;
  /** The upstream has written, or is about to write, the last byte of its response. */
  answered = false;
  /** The upstream has broken its response off. */
  broken = false;
  /** The request came on a connection that the upstream had closed already. */
  stale = false;
  /** When the client's side was over. */
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

  /** Whether somebody else may have read from the request's body. */
  get isIntruded(): boolean {
    const { intrusion } = this.plan;
    return intrusion !== undefined && !HARMLESS.has(intrusion);
  }

  /** Whether the upstream's side has ended: a running one holds a connection. */
  get isOver(): boolean {
    return this.calls.every(({ link }) => link.isClosed || this.answered);
  }

  /** A request of this exchange has arrived at the upstream. */
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
    // What somebody else has taken may be missing anywhere, if only the body does not look whole.
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

  /** Whether a head is the upstream's, and then the right one. */
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
   * The client's side is over.
   * @param length bytes of the upstream's body that have come
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
    // A request that may not be repeated is lost with a connection that was closed meanwhile.
    return this.stale || (mayBeStale && this.calls.length === 0 && !this.isRepeatable);
  }
}
