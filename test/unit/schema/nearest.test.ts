import { expect, test } from "vitest";
import { nearest } from "../../../src/schema/nearest.ts";

const names = ["timeout", "connectTimeout", "retry", "host", "port", "xfwd", "via", "dns", "x"];

test.each([
  ["timout", "timeout"],
  ["timeOut", "timeout"],
  ["time-out", "timeout"],
  ["hosts", "host"],
  ["prot", "port"],
  ["porr", "port"],
  ["vai", "via"],
  ["retyr", "retry"],
  ["connect_timeout", "connectTimeout"],
  ["conectTimeOuts", "connectTimeout"],
  ["x", "x"],
])("the name most similar to %s is %s", (spelled, meant) => {
  expect(nearest(spelled, names)).toBe(meant);
});

// If more than a third of the letters are wrong, the name is likely another word.
test.each(["cors", "post2", "rest", "tls", "dos1", "agent", "", "y", "to", "rewriteEverything"])(
  "%j is similar to none of the names",
  (spelled) => {
    expect(nearest(spelled, names)).toBeUndefined();
  },
);

test("the nearest of several similar names is chosen, also if it comes later", () => {
  expect(nearest("maxSocket", ["maxSecrets", "maxSockets"])).toBe("maxSockets");
});

test("without names, no name is similar", () => {
  expect(nearest("timeout", [])).toBeUndefined();
});
