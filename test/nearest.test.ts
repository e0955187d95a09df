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

test.each(["agent", "x", "", "rewriteEverything"])("%j is none of them", (spelled) => {
  expect(nearest(spelled, names)).toBeUndefined();
});

test("nor is anything of no names", () => {
  expect(nearest("timeout", [])).toBeUndefined();
});
