import { expect, test } from "vitest";
import { placeError, ProxyError, type ProxyErrorCode } from "../../../src/error.ts";
import { FailureLines } from "../../../src/explain/failurelines.ts";
import { parseTarget } from "../../../src/target/target.ts";

const HINT = " [at most one line a minute; `log: false` turns it off]";

function failedAt(target: string, code: ProxyErrorCode = "connection_refused"): ProxyError {
  const error = new ProxyError(code);
  placeError(error, parseTarget(target));
  return error;
}

/** Creates failure lines with a clock. `take` returns what they have printed since its last call. */
function start(): { lines: FailureLines; clock: { now: number }; readonly take: () => string[] } {
  const printed: string[] = [];
  const clock = { now: 5 };
  const lines = new FailureLines(
    (line) => printed.push(line),
    () => clock.now,
  );
  return { lines, clock, take: () => printed.splice(0) };
}

test("the first failure line of a process says how to turn the lines off", () => {
  const { lines, take } = start();
  lines.add(failedAt("http://a:1"));
  lines.add(failedAt("http://b:1"));
  expect(take()).toEqual([
    `fetchway: connection_refused: a:1 (is it running?)${HINT}`,
    "fetchway: connection_refused: b:1 (is it running?)",
  ]);
});

test("a failure of the same kind at the same upstream is printed once a minute", () => {
  const { lines, clock, take } = start();
  lines.add(failedAt("http://a:1"));
  expect(take()).toHaveLength(1);
  lines.add(failedAt("http://a:1"));
  clock.now += 59_999;
  lines.add(failedAt("http://a:1"));
  expect(take()).toEqual([]);
  lines.add(failedAt("http://a:1", "connection_terminated"));
  lines.add(failedAt("unix:/a"));
  expect(take()).toHaveLength(2);
  clock.now += 1;
  lines.add(failedAt("http://a:1"));
  lines.add(failedAt("unix:/a"));
  expect(take()).toEqual(["fetchway: connection_refused: a:1 (is it running?)"]);
});

test("at most 64 kinds of failures are printed in a minute, because clients may choose the upstream", () => {
  const { lines, clock, take } = start();
  for (let i = 1; i <= 1000; i++) lines.add(failedAt(`http://a:${i}`));
  expect(take()).toHaveLength(64);
  clock.now += 60_000;
  for (let i = 1; i <= 1000; i++) lines.add(failedAt(`http://a:${i}`));
  expect(take()).toHaveLength(64);
});

test("failures without an upstream are of the same kind if their errors have the same code", () => {
  const { lines, take } = start();
  lines.add(new ProxyError("destination_unavailable"));
  lines.add(new ProxyError("destination_unavailable"));
  lines.add(new ProxyError("proxy_loop_detected"));
  expect(take()).toHaveLength(2);
});
