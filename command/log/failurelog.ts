import type { Diagnosis } from "#fetchway/errors";

/** Milliseconds until the first summary of equal failures. The time doubles with each further summary, up to `MAX_WAIT`. */
const FIRST_WAIT = 1000;
const MAX_WAIT = 60_000;
/** The number of kinds of failures that are counted separately. Further kinds are counted together. */
const MAX_KINDS = 64;

/** A failure of a request, as it is passed to the log. */
export interface FailedRequest {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly failure: Diagnosis;
  /** The time of the failure, in milliseconds since 1970. */
  readonly time: number;
  /** How the response ended, such as `cut after 3.0 s, 1.2 MB`; undefined for a status from 400, and with `--log off`. */
  readonly outcome: string | undefined;
}

/** Returns a key that is the same for all failures of one kind. */
export function kindOfFailure({ status, failure }: FailedRequest): string {
  return `${status} ${failure.code} ${failure.cause}`;
}

/** The failures of one kind that occurred after the last shown failure or summary of that kind. */
export interface Repetition<T> {
  /** The latest of these failures. */
  readonly last: T;
  readonly count: number;
  /** Milliseconds since that last shown failure or summary. */
  readonly span: number;
  /** Whether these failures are of different kinds: further kinds than `MAX_KINDS` are counted together. */
  readonly isMixed: boolean;
}

interface FailureKind<T> {
  last: T;
  count: number;
  /** When the first failure or the last summary was shown, on the clock of `performance.now()`. */
  since: number;
  wait: number;
}

/**
 * Shows the first failure of each kind immediately, and equal ones in summaries after 1 s, 2 s, 4 s and so on up to
 * a minute, so that an upstream that is down does not fill a disk. If no equal failure occurs until the next
 * summary is due, the kind is forgotten, and its next failure is shown immediately.
 */
export class FailureLog<T> {
  readonly #show: (failed: T) => void;
  readonly #sum: (repetition: Repetition<T>) => void;
  readonly #keyOf: (failed: T) => string;
  readonly #kinds: Map<string, FailureKind<T>> = new Map();
  #timer: NodeJS.Timeout | undefined;

  /** @param keyOf returns the same text for failures that are equal */
  constructor(
    show: (failed: T) => void,
    sum: (repetition: Repetition<T>) => void,
    keyOf: (failed: T) => string,
  ) {
    this.#keyOf = keyOf;
    this.#show = show;
    this.#sum = sum;
  }

  /** @param now the time on the clock of `performance.now()`, because the clock of the system may jump */
  add(failed: T, now: number = performance.now()): void {
    const key = this.#keyOf(failed);
    const isKnown = this.#kinds.has(key) || this.#kinds.size < MAX_KINDS;
    const kind = this.#kinds.get(isKnown ? key : "");
    if (kind !== undefined) {
      kind.last = failed;
      kind.count++;
      return;
    }
    this.#show(failed);
    this.#kinds.set(isKnown ? key : "", { last: failed, count: 0, since: now, wait: FIRST_WAIT });
    this.#timer ??= setInterval(() => this.tick(performance.now()), FIRST_WAIT).unref();
  }

  /** @internal Shows the summaries that are due, and forgets the kinds without further failures. */
  tick(now: number): void {
    for (const [key, kind] of this.#kinds) {
      if (now - kind.since < kind.wait) continue;
      if (kind.count === 0) this.#kinds.delete(key);
      else this.#sumUp(key, kind, now);
    }
    if (this.#kinds.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Shows all summaries, when the process ends. */
  flush(): void {
    const now = performance.now();
    for (const [key, kind] of this.#kinds) if (kind.count > 0) this.#sumUp(key, kind, now);
  }

  #sumUp(key: string, kind: FailureKind<T>, now: number): void {
    const { last, count, since } = kind;
    this.#sum({ last, count, span: now - since, isMixed: key === "" });
    kind.count = 0;
    kind.since = now;
    kind.wait = Math.min(kind.wait * 2, MAX_WAIT);
  }
}
