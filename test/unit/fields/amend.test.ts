import { describe, expect, test, vi } from "vitest";
import { amend } from "../../../src/fields/amend.ts";
import { toHeaderList, toHeaders } from "../../../src/fields/headers.ts";

const before = [
  "accept",
  "*/*",
  "host",
  "a.test",
  "set-cookie",
  "a=1",
  "set-cookie",
  "b=2",
  "x",
  "1",
];
const headers = toHeaders(before);
const original = { headers, list: toHeaderList(headers) };

/** Returns the fields after `amend`, and the names that it changed by calls of `append` and `delete`. */
function callsOf(list: string[]): { fields: string[]; changed: string[] } {
  const spies = (["append", "delete"] as const).map((name) => vi.spyOn(Headers.prototype, name));
  const amended = amend(original, list);
  const changed = spies.flatMap((spy) => spy.mock.calls.map(([name]) => name.toLowerCase()));
  for (const spy of spies) spy.mockRestore();
  return { fields: toHeaderList(amended), changed: [...new Set(changed)].toSorted() };
}

function without(name: string): string[] {
  return before.flatMap((each, i) => (i % 2 || each === name ? [] : [each, before[i + 1] ?? ""]));
}

test("for an unchanged header list, `amend` returns the original `Headers`", () => {
  expect(amend(original, [...before])).toBe(headers);
});

describe("only changed header fields are replaced", () => {
  test.each([
    ["is removed", without("host"), ["host"]],
    ["is added", [...before, "X-New", "2"], ["x-new"]],
    ["is removed, and others are added", [...without("host"), "Y", "1", "y", "2"], ["host", "y"]],
    ["is added to one of the same name", [...before, "X", "2"], ["x"]],
    ["is removed and added again", [...without("host"), "Host", "b.test"], ["host"]],
    ["has another value", before.with(9, "2"), ["x"]],
    ["of several with the same name is removed", before.toSpliced(4, 2), ["set-cookie"]],
    ["of several with the same name has another value", before.with(7, "c=3"), ["set-cookie"]],
    ["is inserted", before.toSpliced(8, 0, "b", "1"), ["b"]],
    ["is removed, and all others too", [], ["accept", "host", "set-cookie", "x"]],
  ])("if a field %s", (_, list, changed) => {
    expect(callsOf(list)).toEqual({ fields: toHeaderList(toHeaders(list)), changed });
    expect(toHeaderList(headers)).toEqual(before);
  });
});
