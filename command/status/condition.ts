/** The state of the command, and of each upstream and route, as the status page shows it, with the reason. */
import type { UpstreamState } from "#fetchway/upstreams";

/** Whether the command accepts requests. */
export type Readiness = "starting" | "ready" | "stopping";

/** From this share of failed requests in the last minute, the command, an upstream or a route is degraded. */
export const DEGRADED_SHARE = 0.05;
/** From this share of failed requests on, the state is `failing`. */
export const FAILING_SHARE = 0.5;

/** The state that follows from the share of failed requests alone. */
type Grade = "up" | "degraded" | "failing";

/** The state of an upstream or a route. */
export interface Condition {
  /** `idle`: there was no request in the last minute, and nothing else is known. */
  readonly state: UpstreamState["state"] | Grade | "idle";
  readonly reason: string | undefined;
  /** When this state began, in milliseconds since 1970. */
  readonly since: number | undefined;
}

/** The state of the whole command. */
export interface Overall {
  readonly state: "starting" | "stopping" | "running" | "degraded" | "failing";
  /** Why the command is degraded or failing, such as `3 of 4 upstreams down`. */
  readonly reasons: readonly string[];
}

/** The requests of the last minute, and those that failed: with a status from 500, or with a response that broke off. */
interface LastMinute {
  readonly requests: number;
  readonly failed: number;
}

function gradeOf({ requests, failed }: LastMinute): Grade {
  // Without requests, the share is NaN, and both comparisons are false.
  const share = failed / requests;
  if (share >= FAILING_SHARE) return "failing";
  return share >= DEGRADED_SHARE ? "degraded" : "up";
}

/** Renders a share, rounded down: 100 % means all. */
function renderShare({ requests, failed }: LastMinute): string {
  return `${Math.floor((failed / requests) * 100)} %`;
}

/**
 * Since when too many requests fail. Call `update` both before and after requests are counted: since the last count, failures
 * may have become older than a minute, so that the share was normal for a while.
 */
export class Trouble {
  /** In milliseconds since 1970; undefined if the share of failed requests is normal. */
  since: number | undefined;

  update(lastMinute: LastMinute): void {
    if (gradeOf(lastMinute) === "up") this.since = undefined;
    else this.since ??= Date.now();
  }
}

/** The facts from which the state of an upstream or a route follows. */
export interface ConditionFacts extends LastMinute {
  /** Since when too many requests of this upstream or route fail. */
  readonly troubledSince: number | undefined;
  /** Why the last failed request of this upstream or route failed. */
  readonly lastFailure: string | undefined;
  /** The health of one of several upstreams; undefined for a single upstream and for a route. */
  readonly health: Pick<UpstreamState, "state" | "reason" | "since"> | undefined;
}

/**
 * Returns the state of an upstream or a route. The health takes precedence, except `up`: the last usable upstream is never
 * ejected, so it stays `up` although it fails. If the health is `starting`, the failures of the last minute are from before the
 * upstream's return, so they do not count.
 */
export function describeCondition(facts: ConditionFacts): Condition {
  const { health, troubledSince, lastFailure, requests } = facts;
  const { state = requests === 0 ? "idle" : "up", reason, since } = health ?? {};
  const grade = gradeOf(facts);
  if (state !== "up" || grade === "up") return { state, reason, since };
  const last = lastFailure === undefined ? "" : `, last: ${lastFailure}`;
  const why = `${renderShare(facts)} of the last minute failed${last}`;
  return { state: grade, reason: why, since: troubledSince };
}

/** The facts from which the state of the whole command follows. */
export interface OverallFacts extends LastMinute {
  readonly readiness: Readiness;
  /** The requests of the last minute with a status from 500. */
  readonly serverErrors: number;
  readonly upstreams: readonly Condition["state"][];
  readonly routes: readonly Condition["state"][];
}

/** An upstream in one of these states gets no requests, or only a probe. */
const OUT: ReadonlySet<Condition["state"]> = new Set(["ejected", "half-open", "down"] as const);

/**
 * Returns the state of the whole command: the first of these that applies.
 *
 * 1. `starting` and `stopping`: the command does not accept requests.
 * 2. `failing`: at least half of the requests of the last minute failed, or all upstreams are down.
 * 3. `degraded`: at least one in 20 failed, an upstream is down, or an upstream or a route fails.
 * 4. `running`.
 */
export function describeOverall(facts: OverallFacts): Overall {
  const { readiness, requests, failed, serverErrors, routes } = facts;
  if (readiness !== "ready") return { state: readiness, reasons: [] };
  const upstreams = facts.upstreams.filter((state) => state !== "draining");
  const grade = gradeOf({ requests, failed });
  const down = upstreams.filter((state) => OUT.has(state)).length;
  const isFailing = grade === "failing" || (down > 0 && down === upstreams.length);
  const reasons: string[] = [];
  if (grade !== "up") {
    const what = failed === serverErrors ? "are 5xx" : "failed";
    reasons.push(`${renderShare({ requests, failed })} of the last minute ${what}`);
  }
  const count = upstreams.length;
  // The last usable upstream is never ejected, even if it fails. "2 of 3 down" would read as if the third one worked.
  const isNoneLeft = count > 1 && upstreams.every((state) => state === "failing" || OUT.has(state));
  if (isNoneLeft && down < count) reasons.push(`${count} of ${count} upstreams fail`);
  else if (down > 0) reasons.push(`${down} of ${count} upstreams down`);
  // In the state `failing`, it is clear that upstreams or routes fail, so do not list them.
  const parts = { upstreams: isNoneLeft ? [] : upstreams, routes };
  for (const [name, states] of isFailing ? [] : Object.entries(parts)) {
    const failing = states.filter((state) => state === "failing").length;
    if (failing > 0) reasons.push(`${failing} of ${states.length} ${name} failing`);
  }
  if (isFailing) return { state: "failing", reasons };
  return { state: reasons.length > 0 ? "degraded" : "running", reasons };
}
