import { placeOf, type ProxyError } from "../error.ts";
import { explainError } from "./errors.ts";

/** Milliseconds for which further failures of the same kind at the same upstream are not printed. */
const QUIET_TIME = 60_000;
/**
 * The maximum number of kinds, each an error code at one upstream, that are printed in `QUIET_TIME`: clients that choose
 * the upstream could otherwise flood the log.
 */
const MAX_KINDS = 64;

/** Prints failures, but not every one, so that they do not flood the log. */
export class FailureLines {
  /** The time at which each kind was printed last, the oldest first. */
  readonly #printed: Map<string, number> = new Map();
  readonly #print: (line: string) => void;
  readonly #now: () => number;
  #hint = " [at most one line a minute; `log: false` turns it off]";

  /** @param now returns the milliseconds on a clock that never goes back */
  constructor(print: (line: string) => void, now: () => number) {
    this.#print = print;
    this.#now = now;
  }

  /** Prints a failure, unless one of its kind, or `MAX_KINDS` other kinds, were printed within the last minute. */
  add(error: ProxyError): void {
    const now = this.#now();
    for (const [kind, time] of this.#printed) {
      if (now - time < QUIET_TIME) break;
      this.#printed.delete(kind);
    }
    const { origin, socketPath } = placeOf(error) ?? {};
    const kind = `${error.code} ${socketPath ?? origin}`;
    if (this.#printed.has(kind) || this.#printed.size >= MAX_KINDS) return;
    this.#printed.set(kind, now);
    this.#print(`fetchway: ${explainError(error)}${this.#hint}`);
    this.#hint = "";
  }
}

/** Prints the failures of all proxies in this process. */
export const failureLines: FailureLines = new FailureLines(
  // oxlint-disable-next-line no-console
  (line) => console.error(line),
  () => performance.now(),
);
