import { expect, test } from "vitest";
import { trimOws } from "../../../src/fields/headers.ts";

test.each([
  ["", ""],
  [" \t ", ""],
  ["a", "a"],
  ["\ta b\t ", "a b"],
  ["\xa0a\xa0", "\xa0a\xa0"],
  ["\u2003a\ufeff", "\u2003a\ufeff"],
  ["\va\f", "\va\f"],
])("`trimOws` trims %j to %j", (value, left) => {
  expect(trimOws(value)).toBe(left);
});

test("`trimOws` takes linear time for a long run of spaces in the middle of a value", () => {
  const spaces = " ".repeat(5_000_000);
  // Quadratic time would exceed the timeout of the test.
  expect(trimOws(`a${spaces}x`)).toHaveLength(5_000_002);
  expect(trimOws(`${spaces}a${spaces}`)).toBe("a");
});
