/** The report of `fetchway replay`, and how it is printed on a terminal. */
import { escapeControls } from "#fetchway/errors";
import { renderDuration } from "../log/lineforms.ts";
import type { Difference } from "./compare.ts";

/** The outcome of one recorded request. */
export interface ReplayResult {
  readonly method: string;
  /** The path and query. */
  readonly path: string;
  readonly result: "equal" | "different" | "failed" | "not sent";
  /** Why the request was not sent, or why it failed. */
  readonly reason?: string;
  readonly differences?: readonly Difference[];
  /** Whether the bodies were not compared, because the recorded body is incomplete. */
  readonly isBodyUnknown?: boolean;
  /** Milliseconds from the start of the request to the end of the response. */
  readonly recordedMs?: number;
  readonly replayedMs?: number;
}

/** The outcome of all requests. */
export interface ReplayOutcome {
  readonly file: string;
  readonly against: string;
  /** The names of the response fields that were not compared. */
  readonly ignored: readonly string[];
  /**
   * The fields that were not sent, because their recorded values are redacted. Each has the number of requests that lack it.
   */
  readonly leftOut: Readonly<Record<string, number>>;
  /** The number of requests with each result. */
  readonly counts: Readonly<Record<ReplayResult["result"], number>>;
  readonly results: readonly ReplayResult[];
}

/** The maximum number of characters of a value that are printed. */
const WIDTH = 100;

export function renderReplay(outcome: ReplayOutcome): string {
  const { file, against, counts, ignored, leftOut, results } = outcome;
  const shown = results.filter(({ result }) => result === "different" || result === "failed");
  const sums = Object.entries(counts).map(([result, count]) => `${count} ${result}`);
  const unknown = results.filter(({ isBodyUnknown }) => isBodyUnknown).length;
  const names = Object.entries(leftOut).map(([name, requests]) => `${name} (${requests})`);
  return [
    ...shown.flatMap(renderResult),
    `${escapeControls(file)} → ${against}: ${sums.join(", ")}`,
    ...renderReasons(results),
    ...(unknown > 0
      ? [`  bodies not compared, because the recording does not have all of them: ${unknown}`]
      : []),
    ...(names.length > 0
      ? [`  redacted fields not sent (--header sets them): ${escapeControls(names.join(", "))}`]
      : []),
    ...renderLatencies(results),
    `  not compared: ${ignored.join(", ")}`,
  ].join("\n");
}

function renderResult({ method, path, reason, differences = [] }: ReplayResult): string[] {
  const lines = differences.map(({ part, name, recorded, replayed }) => {
    return `  ${name ?? part}: ${show(recorded)} → ${show(replayed)}`;
  });
  if (reason !== undefined) lines.push(`  ${reason}`);
  return [`${method} ${path}`, ...lines, ""].map(escapeControls);
}

function show(value: string | null): string {
  if (value === null) return "(none)";
  return value.length > WIDTH ? `${value.slice(0, WIDTH)}…` : value;
}

/** Renders the reasons why requests were not sent. */
function renderReasons(results: readonly ReplayResult[]): string[] {
  const unsent = results.filter(({ result }) => result === "not sent");
  const groups = Map.groupBy(unsent, ({ method, reason = "" }) => `${method}: ${reason}`);
  return Array.from(groups, ([reason, { length }]) =>
    escapeControls(`  not sent: ${length} ${reason}`),
  );
}

/** Renders the median and the 95th percentile of the recorded and the replayed durations. */
function renderLatencies(results: readonly ReplayResult[]): string[] {
  const timed = results.filter(({ result }) => result === "equal" || result === "different");
  if (timed.length === 0) return [];
  const before = timed.map(({ recordedMs = 0 }) => recordedMs);
  const after = timed.map(({ replayedMs = 0 }) => replayedMs);
  const [median, slow] = [0.5, 0.95].map(
    (share) => `${renderPercentile(before, share)} → ${renderPercentile(after, share)}`,
  );
  return [`  latency: median ${median}, 95 % within ${slow}`];
}

function renderPercentile(times: readonly number[], share: number): string {
  const sorted = times.toSorted((one, other) => one - other);
  return renderDuration(sorted[Math.ceil(times.length * share) - 1] ?? 0);
}
