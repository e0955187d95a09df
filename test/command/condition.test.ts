import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  type Condition,
  type ConditionFacts,
  describeCondition,
  describeOverall,
  type OverallFacts,
} from "../../command/status/condition.ts";
import { RecentTraffic } from "../../command/status/traffic.ts";

type State = Condition["state"];

/** Returns the states of `count` upstreams or routes: first the given ones, then `up` for all others. */
const of = (count: number, ...states: State[]): State[] =>
  Array.from({ length: count }, (_, i) => states[i] ?? "up");

const QUIET: OverallFacts = {
  readiness: "ready",
  requests: 0,
  failed: 0,
  serverErrors: 0,
  upstreams: [],
  routes: [],
};

test.each<[string, Partial<OverallFacts>]>([
  ["running", {}],
  ["running", { requests: 1000, upstreams: of(4), routes: of(3) }],
  ["running", { upstreams: of(3, "idle", "starting", "draining") }],
  // Readiness takes precedence over failures.
  ["starting", { readiness: "starting", requests: 10, failed: 10, upstreams: of(1, "down") }],
  ["stopping", { readiness: "stopping", requests: 10, failed: 10 }],
  // From one failure in 20, the command is degraded; from one in two, it is failing. The share is rounded down.
  ["running", { requests: 1000, failed: 49, serverErrors: 49 }],
  ["degraded: 5 % of the last minute are 5xx", { requests: 1000, failed: 50, serverErrors: 50 }],
  ["degraded: 49 % of the last minute are 5xx", { requests: 1000, failed: 499, serverErrors: 499 }],
  ["failing: 50 % of the last minute are 5xx", { requests: 1000, failed: 500, serverErrors: 500 }],
  ["failing: 99 % of the last minute are 5xx", { requests: 1000, failed: 999, serverErrors: 999 }],
  ["failing: 100 % of the last minute are 5xx", { requests: 1, failed: 1, serverErrors: 1 }],
  // A response that broke off has failed, although its status is not 5xx.
  ["failing: 60 % of the last minute failed", { requests: 10, failed: 6, serverErrors: 5 }],
  ["degraded: 1 of 4 upstreams down", { upstreams: of(4, "ejected") }],
  ["degraded: 3 of 4 upstreams down", { upstreams: of(4, "down", "half-open", "ejected") }],
  ["failing: 4 of 4 upstreams down", { upstreams: of(4, "down", "down", "down", "down") }],
  // An upstream that is draining does not count.
  ["failing: 1 of 1 upstreams down", { upstreams: of(2, "draining", "down") }],
  ["running", { upstreams: of(2, "draining") }],
  ["degraded: 1 of 2 upstreams failing", { upstreams: of(2, "failing") }],
  ["degraded: 1 of 3 routes failing", { upstreams: of(2), routes: of(3, "failing", "degraded") }],
  [
    "degraded: 20 % of the last minute are 5xx, 1 of 4 upstreams down, 1 of 4 upstreams failing, 1 of 2 routes failing",
    {
      requests: 100,
      failed: 20,
      serverErrors: 20,
      upstreams: of(4, "down", "failing"),
      routes: of(2, "failing"),
    },
  ],
  // The last upstream that could work is never ejected: it is `failing`, not down.
  [
    "failing: 100 % of the last minute are 5xx, 3 of 3 upstreams fail",
    {
      requests: 9,
      failed: 9,
      serverErrors: 9,
      upstreams: of(3, "ejected", "half-open", "failing"),
    },
  ],
  ["degraded: 2 of 2 upstreams fail", { upstreams: of(2, "failing", "failing") }],
  // In the state `failing`, failing upstreams and routes are not listed.
  [
    "failing: 90 % of the last minute are 5xx, 1 of 3 upstreams down",
    {
      requests: 10,
      failed: 9,
      serverErrors: 9,
      upstreams: of(3, "down", "failing"),
      routes: of(1, "failing"),
    },
  ],
])("the state of the whole command is shown as: %s", (expected, facts) => {
  const { state, reasons } = describeOverall({ ...QUIET, ...facts });
  expect(reasons.length === 0 ? state : `${state}: ${reasons.join(", ")}`).toBe(expected);
});

const refused = "connection_refused (is it running?)";
const all = { requests: 4, failed: 4, troubledSince: 1000, lastFailure: refused };
const ejected = { state: "ejected", reason: "5 failures in a row", since: 2000 } as const;

test.each<[State, string | undefined, number | undefined, Partial<ConditionFacts>]>([
  ["idle", undefined, undefined, {}],
  ["up", undefined, undefined, { requests: 20, failed: 0 }],
  ["up", undefined, undefined, { requests: 100, failed: 4, troubledSince: undefined }],
  ["degraded", "5 % of the last minute failed", 9, { requests: 20, failed: 1, troubledSince: 9 }],
  ["failing", `100 % of the last minute failed, last: ${refused}`, 1000, all],
  // If there are several upstreams, one without requests is `up` as long as nothing else is known about it.
  ["up", undefined, undefined, { health: { state: "up" } }],
  [
    "starting",
    "a request succeeded",
    3,
    { health: { ...ejected, state: "starting", reason: "a request succeeded", since: 3 } },
  ],
  // The failures of the last minute are from before the upstream's return.
  ["starting", undefined, undefined, { ...all, health: { state: "starting" } }],
  ["ejected", "5 failures in a row", 2000, { ...all, health: ejected }],
  [
    "half-open",
    "5 failures in a row",
    2000,
    { ...all, health: { ...ejected, state: "half-open" } },
  ],
  ["draining", undefined, undefined, { ...all, health: { state: "draining" } }],
  // The last usable upstream is never ejected, so its health stays `up`.
  [
    "failing",
    `100 % of the last minute failed, last: ${refused}`,
    1000,
    { ...all, health: { state: "up" } },
  ],
])("the state of an upstream is %s, with the reason: %s", (state, reason, since, facts) => {
  const none = { troubledSince: undefined, lastFailure: undefined, health: undefined };
  expect(describeCondition({ requests: 0, failed: 0, ...none, ...facts })).toEqual({
    state,
    reason,
    since,
  });
});

describe("the time since which too many requests fail", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now: 1000 }));
  afterEach(() => void vi.useRealTimers());

  test("the time stays the same while too many requests fail, and is undefined afterwards", () => {
    const traffic = new RecentTraffic();
    traffic.add(100, [19, 0]);
    expect(traffic.troubledSince).toBeUndefined();
    vi.setSystemTime(2000);
    traffic.add(101, [1, 1]);
    vi.setSystemTime(3000);
    traffic.add(102, [50, 50]);
    expect(traffic.troubledSince).toBe(2000);
    traffic.add(102, [5000, 0]);
    expect(traffic.troubledSince).toBeUndefined();
  });

  test("the time begins again with a failure that follows more than a minute without requests", () => {
    const traffic = new RecentTraffic();
    traffic.add(100, [1, 1]);
    vi.setSystemTime(90_000);
    traffic.add(190, [1, 1]);
    expect(traffic.troubledSince).toBe(90_000);
    traffic.advance(250);
    expect(traffic.troubledSince).toBeUndefined();
  });
});
