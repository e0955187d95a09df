import { afterEach, expect, test, vi } from "vitest";
import { getHeader, type HeaderList } from "../../../src/fields/headers.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** Loads the module anew, and returns the `traceparent` of each of `count` new traces. */
async function startTraces(count: number): Promise<(string | undefined)[]> {
  vi.resetModules();
  const { startTrace } = await import("../../../src/request/tracecontext.ts");
  return Array.from({ length: count }, () => {
    const headers: HeaderList = [];
    startTrace(headers);
    return getHeader(headers, "traceparent");
  });
}

test("no two of 1,000 traces share an id", async () => {
  const parents = await startTraces(1000);
  for (const parent of parents) expect(parent).toMatch(/^00-[\da-f]{32}-[\da-f]{16}-01$/);
  const ids = parents.flatMap((parent) => parent?.split("-").slice(1, 3));
  expect(new Set(ids).size).toBe(2000);
});

test.each([
  [0n, `00-${"0".repeat(31)}1-${"0".repeat(15)}1-01`],
  [0xabn, `00-${"00000000000000ab".repeat(2)}-00000000000000ab-01`],
])("no id is zero or too short if all random numbers are %s", async (number, expected) => {
  vi.spyOn(crypto, "getRandomValues").mockImplementation((array) => {
    (array as BigUint64Array).fill(number);
    return array;
  });
  expect(await startTraces(1)).toEqual([expected]);
});
