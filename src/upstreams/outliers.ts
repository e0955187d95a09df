import type { ProxyErrorCode } from "../error.ts";
import type { Chance } from "./policy.ts";
import type { Result } from "./upstreams.ts";

/**
 * When an upstream that fails is ejected, so that it gets no requests for a while. The defaults are those of Envoy's
 * outlier detection, except `maxEjected`.
 * @see https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier
 */
export interface OutlierOptions {
  /**
   * The number of successive failures after which an upstream is ejected. Responses with 5xx, responses that break off, and
   * attempts without a response are failures.
   * @default 5
   */
  consecutiveFailures?: number;
  /**
   * Milliseconds between two evaluations of the success rates.
   * @default 10000
   */
  interval?: number;
  /**
   * The duration of the first ejection in milliseconds. The second ejection takes twice as long, the third three times as
   * long, and so on.
   * @default 30000
   */
  ejectionTime?: number;
  /**
   * The maximum duration of an ejection in milliseconds.
   * @default 300000
   */
  maxEjectionTime?: number;
  /**
   * The share of the upstreams that may be ejected at the same time. One upstream may always be ejected, but never the last one
   * that remains.
   * @default 0.5
   */
  maxEjected?: number;
}

export const outlierDefaults: Required<OutlierOptions> = {
  consecutiveFailures: 5,
  interval: 10_000,
  ejectionTime: 30_000,
  maxEjectionTime: 300_000,
  maxEjected: 0.5,
};

/**
 * An upstream is ejected if at least this percentage of its requests in one interval has failed, and there were at least
 * `MIN_REQUESTS_FOR_PERCENTAGE` of them.
 */
const MAX_FAILURES = 85;
const MIN_REQUESTS_FOR_PERCENTAGE = 50;
/**
 * An upstream is ejected if its success rate is more than this many standard deviations below the mean. Only upstreams with
 * `MIN_REQUESTS_FOR_RATE` requests in the interval are compared, and only if there are at least `MIN_HOSTS_FOR_RATE` of them.
 */
const MAX_DEVIATION = 1.9;
const MIN_REQUESTS_FOR_RATE = 100;
const MIN_HOSTS_FOR_RATE = 5;

/** The health record of one upstream. */
export class Health {
  /** The time until which the upstream is ejected; 0 if it is not ejected. */
  ejectedUntil = 0;
  /**
   * Whether the time of an ejection is over, and no probe has succeeded yet. The upstream gets one request as a probe. If
   * the probe succeeds, the upstream gets its share again. This is the half-open state of a circuit breaker; the ejection
   * is the open state.
   */
  isHalfOpen = false;
  /**
   * The time at which the slow start of the upstream began; `-Infinity` for an upstream that had its full share from the
   * start.
   */
  returnedAt: number = -Infinity;
  /** The number of ejections of the upstream, less one for each interval since it returned last. */
  ejections = 0;
  /** A number that identifies the last ejection of the upstream; 0 before the first ejection. */
  lastEjection = 0;
  consecutiveFailures = 0;
  /** The error code or the status of the last failure. */
  lastFailure = "";
  successes = 0;
  failures = 0;

  /** Whether the upstream is ejected or half-open. */
  get isOut(): boolean {
    return this.ejectedUntil > 0 || this.isHalfOpen;
  }

  /**
   * Ends an ejection. From now on, the upstream gets its share gradually. The count of its successive failures stays: if it
   * has reached `consecutiveFailures`, one more failure ejects the upstream again, unless a request succeeds first.
   */
  comeBack(now: number): void {
    this.ejectedUntil = 0;
    this.isHalfOpen = false;
    this.startSlowly(now);
  }

  /** Begins the slow start of the upstream. Earlier results no longer count in its success rate. */
  startSlowly(now: number): void {
    this.returnedAt = now;
    this.successes = this.failures = 0;
  }
}

/** Decides which upstreams are ejected, by the results of their requests. */
export class OutlierDetector {
  readonly #options: Required<OutlierOptions>;
  readonly #chance: Chance;
  readonly #onChange: (health: Health, reason: string) => void;
  #nextSweep: number;

  /** @param onChange called with the reason when an upstream is ejected, becomes half-open, or returns */
  constructor(
    options: Required<OutlierOptions>,
    chance: Chance,
    onChange: (health: Health, reason: string) => void,
  ) {
    this.#options = options;
    this.#chance = chance;
    this.#onChange = onChange;
    this.#nextSweep = chance.now() + options.interval;
  }

  /**
   * Records the result of a request.
   * @param failure what failed, as an error code or a status; undefined if nothing did
   * @param isProbe whether the request is the probe of a half-open upstream. Results of other requests do not end the
   * half-open state
   */
  record(
    health: Health,
    failure: string | undefined,
    all: readonly Health[],
    isProbe = false,
  ): void {
    if (failure !== undefined) {
      health.failures++;
      health.consecutiveFailures++;
      health.lastFailure = failure;
      const isTooMany = health.consecutiveFailures >= this.#options.consecutiveFailures;
      if (health.isHalfOpen) {
        if (isProbe) this.#eject(health, all, `it failed again: ${failure}`);
      } else if (isTooMany) {
        const { consecutiveFailures: count } = health;
        const failures = count === 1 ? "1 failure:" : `${count} failures in a row, last:`;
        this.#eject(health, all, `${failures} ${failure}`);
      }
      return;
    }
    health.successes++;
    health.consecutiveFailures = 0;
    if (!health.isHalfOpen || !isProbe) return;
    health.comeBack(this.#chance.now());
    this.#onChange(health, "a request succeeded");
  }

  /** Evaluates the success rates once in each interval, and ends the ejections whose time is over. */
  sweep(all: readonly Health[]): void {
    const now = this.#chance.now();
    for (const health of all) {
      if (health.ejectedUntil === 0 || health.ejectedUntil > now) continue;
      health.ejectedUntil = 0;
      health.isHalfOpen = true;
      this.#onChange(health, "the ejection is over");
    }
    if (now < this.#nextSweep) return;
    const { interval } = this.#options;
    // Several intervals have ended since the last sweep if there were no requests for that long.
    const lastEnd = this.#nextSweep - interval;
    const end = this.#nextSweep + Math.floor((now - this.#nextSweep) / interval) * interval;
    this.#nextSweep = end + interval;
    this.#ejectByRate(all);
    for (const health of all) {
      health.successes = health.failures = 0;
      const ended = Math.ceil((end - Math.max(lastEnd, health.returnedAt)) / interval);
      if (!health.isOut && ended > 0) health.ejections = Math.max(0, health.ejections - ended);
    }
  }

  /** The time of the next evaluation of the success rates. */
  get nextSweep(): number {
    return this.#nextSweep;
  }

  #ejectByRate(all: readonly Health[]): void {
    const rated = all.filter(
      ({ successes, failures }) => successes + failures >= MIN_REQUESTS_FOR_RATE,
    );
    const threshold =
      rated.length >= MIN_HOSTS_FOR_RATE ? this.#thresholdOf(rated.map(rateOf)) : -Infinity;
    for (const health of all) {
      const requests = health.successes + health.failures;
      const isOftenFailing =
        requests >= MIN_REQUESTS_FOR_PERCENTAGE && 100 * (1 - rateOf(health)) >= MAX_FAILURES;
      const isBelow = requests >= MIN_REQUESTS_FOR_RATE && rateOf(health) < threshold;
      // The success rate of a half-open upstream is that of the requests before its ejection.
      if (health.isHalfOpen || (!isOftenFailing && !isBelow)) continue;
      const percentage = Math.round(100 * (1 - rateOf(health)));
      const reason = `${percentage} % of its requests failed, last: ${health.lastFailure}`;
      this.#eject(health, all, reason);
    }
  }

  #thresholdOf(rates: readonly number[]): number {
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
    const variance = rates.reduce((sum, rate) => sum + (rate - mean) ** 2, 0) / rates.length;
    return mean - MAX_DEVIATION * Math.sqrt(variance);
  }

  #eject(health: Health, all: readonly Health[], reason: string): void {
    if (health.ejectedUntil > 0) return;
    const { maxEjected, ejectionTime, maxEjectionTime } = this.#options;
    const ejected = all.filter(({ ejectedUntil }) => ejectedUntil > 0).length;
    const allowed = Math.min(all.length - 1, Math.max(1, Math.floor(all.length * maxEjected)));
    // A half-open upstream does not count as ejected. If other upstreams were ejected meanwhile, up to the limit, the
    // half-open one stays half-open.
    if (ejected >= allowed) return;
    health.ejections++;
    health.lastEjection++;
    health.isHalfOpen = false;
    const time = Math.min(maxEjectionTime, ejectionTime * health.ejections);
    health.ejectedUntil = this.#chance.now() + time;
    this.#onChange(health, reason);
  }
}

function rateOf({ successes, failures }: Health): number {
  return successes / (successes + failures);
}

/**
 * Whether a result says something about the upstream. Errors of a client, of the app's code, and of the proxy's own limits
 * do not. Otherwise, clients could cause the ejection of upstreams.
 */
export function isAboutUpstream({ error, isUploaded }: Result): boolean {
  if (error === undefined) return true;
  if (error.code === "http_response_timeout" && isUploaded === false) return false;
  return (error.status < 400 || error.status >= 500) && !PROXY_ERRORS.has(error.code);
}

/** Errors of the proxy itself: no upstream causes them. */
const PROXY_ERRORS: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "http_request_error",
  "proxy_internal_error",
  "connection_limit_reached",
  "destination_unavailable",
]);
