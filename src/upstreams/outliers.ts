import type { ProxyErrorCode } from "../error.ts";
import type { Chance } from "./policy.ts";
import type { Result } from "./upstreams.ts";

/**
 * When an upstream that fails is ejected: it then gets no requests for a while. The defaults are those of Envoy's outlier
 * detection, except `maxEjected`.
 * @see https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier
 */
export interface OutlierOptions {
  /**
   * Responses with 5xx, or attempts without a response, in a row.
   * @default 5
   */
  consecutiveFailures?: number;
  /**
   * Milliseconds between two looks at the success rates.
   * @default 10000
   */
  interval?: number;
  /**
   * Milliseconds of the first ejection; the second takes twice as long, and so on.
   * @default 30000
   */
  ejectionTime?: number;
  /**
   * Milliseconds that an ejection takes at most.
   * @default 300000
   */
  maxEjectionTime?: number;
  /**
   * The share of the upstreams that may be ejected at the same time. One always may be, and the last never is.
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

/** An upstream is ejected if this percentage of its requests in one interval has failed. */
const MAX_FAILURES = 85;
const MIN_REQUESTS_FOR_PERCENTAGE = 50;
/** An upstream is ejected if its success rate is more than this many standard deviations below the mean of all upstreams. */
const MAX_DEVIATION = 1.9;
const MIN_REQUESTS_FOR_RATE = 100;
const MIN_HOSTS_FOR_RATE = 5;

/** The record of one upstream. */
export class Health {
  /** The time until which it is ejected; 0 if it is not. */
  ejectedUntil = 0;
  /**
   * Whether it was ejected, and has not answered a request since: it gets one request as a probe, and if that succeeds, its
   * share. This is the half-open state of a circuit breaker, whose open state is the ejection.
   */
  isHalfOpen = false;
  /** The time from which it gets its share gradually; `-Infinity` for one that was there from the start. */
  returnedAt: number = -Infinity;
  /** How often it was ejected, less one for each interval since it has returned. */
  ejections = 0;
  /** The number of its last ejection, which no other one has; 0 before the first. */
  lastEjection = 0;
  consecutiveFailures = 0;
  successes = 0;
  failures = 0;

  /** Whether it is ejected, or was and has not answered a request since. */
  get isOut(): boolean {
    return this.ejectedUntil > 0 || this.isHalfOpen;
  }

  /**
   * Ends an ejection: the upstream gets its share gradually. Its failures in a row stay counted, so that one more ejects it
   * again, unless a request has succeeded before.
   */
  comeBack(now: number): void {
    this.ejectedUntil = 0;
    this.isHalfOpen = false;
    this.returnedAt = now;
  }
}

/** Decides which upstreams are ejected, by the results of their requests. */
export class OutlierDetector {
  readonly #options: Required<OutlierOptions>;
  readonly #chance: Chance;
  readonly #onChange: (health: Health, reason: string) => void;
  #nextSweep: number;

  /** @param onChange called when an upstream is ejected, or may return, with the reason */
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
   * @param isProbe whether it is the request that tries a half-open upstream: no other result closes or opens the circuit
   */
  record(health: Health, isFailure: boolean, all: readonly Health[], isProbe = false): void {
    if (isFailure) {
      health.failures++;
      health.consecutiveFailures++;
      const isTooMany = health.consecutiveFailures >= this.#options.consecutiveFailures;
      if (health.isHalfOpen) {
        if (isProbe) this.#eject(health, all, "it failed again");
      } else if (isTooMany) {
        const { consecutiveFailures: count } = health;
        this.#eject(health, all, `${count} ${count === 1 ? "failure" : "failures in a row"}`);
      }
      return;
    }
    health.successes++;
    health.consecutiveFailures = 0;
    if (!health.isHalfOpen || !isProbe) return;
    health.comeBack(this.#chance.now());
    this.#onChange(health, "a request succeeded");
  }

  /** Looks at the success rates once in each interval, and lets upstreams return whose ejection is over. */
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
    // Several intervals have ended since the last sweep if there were no requests for that time.
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

  /** The time of the next sweep that may change something. */
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
      if (!isOftenFailing && !isBelow) continue;
      const percentage = Math.round(100 * (1 - rateOf(health)));
      this.#eject(health, all, `${percentage} % of its requests failed`);
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
    // A half-open upstream was ejected until now; as long as its probes fail, it takes no place of another.
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
 * Whether a result tells about the upstream. The errors of a client, of the app's code and of limits of the proxy do not:
 * clients could otherwise have upstreams ejected.
 */
export function tellsOfUpstream({ error, isUploaded }: Result): boolean {
  if (error === undefined) return true;
  if (error.code === "http_response_timeout" && isUploaded === false) return false;
  return (error.status < 400 || error.status >= 500) && !OWN.has(error.code);
}

/** The errors of requests that the proxy has not sent. */
const OWN: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "http_request_error",
  "proxy_internal_error",
  "connection_limit_reached",
  "destination_unavailable",
]);
