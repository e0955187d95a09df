import { expect, test } from "vitest";
import { nearest } from "../src/options/nearest.ts";

const names = ["timeout", "connectTimeout", "retry", "host", "xfwd"];

test.each([
  ["timout", "timeout"],
  ["timeOut", "timeout"],
  ["hosts", "host"],
  ["connectTimeOut", "connectTimeout"],
])("%s is probably %s", (spelled, meant) => {
  expect(nearest(spelled, names)).toBe(meant);
});

test.each(["agent", "x", "", "rewriteEverything"])(
  "%j is similar to none of the names",
  (spelled) => {
    expect(nearest(spelled, names)).toBeUndefined();
  },
);

test("without names nothing is similar", () => {
  expect(nearest("timeout", [])).toBeUndefined();
});
