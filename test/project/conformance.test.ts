import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { findUntested, LEDGER, makeLedger } from "./_conformance.ts";
import { findMarkers, markersOf } from "../conformance/markers.ts";
import { requirements } from "../conformance/requirements.ts";

const markers = findMarkers();

test("docs/conformance.md is up to date with the requirements, the calls of `rfc` and the gaps", () => {
  const isCurrent = readFileSync(LEDGER, "utf8") === makeLedger(markers);
  expect(isCurrent, "docs/conformance.md is out of date; run: npm run conformance").toBe(true);
});

test("each requirement has a test, or a reason why it has none", () => {
  expect(findUntested(markers)).toEqual([]);
});

test("a requirement that does not concern a proxy has no test", () => {
  const marked = new Set(markers.map(({ id }) => id));
  expect([...marked].filter((id) => requirements[id].foreign)).toEqual([]);
});

test("each requirement is one sentence, with at most one reason why it has no test", () => {
  for (const [id, requirement] of Object.entries(requirements)) {
    expect(id).toMatch(/^(?:9110|9112|9113|8441|6455|7239|9209)-\d+(?:\.\d+)*-[a-z0-9][a-z0-9-]*$/);
    expect(requirement.says, id).toMatch(/^[A-Z].*\.$/);
    const reasons = [requirement.gap, requirement.foreign].filter(Boolean);
    expect(reasons.length, id).toBeLessThan(2);
    for (const reason of reasons) expect(reason, id).toMatch(/\.$/);
  }
});

describe("calls of `rfc`", () => {
  const id = "9110-7.6.1-connection";

  test("a call of `rfc` belongs to the test whose body contains the call", () => {
    const unit = `describe("a", () => {
  test.each([
    ["x", 1],
  ])("b %s", () => {
    rfc("${id}", "9110-7.6.1-known");
  });
});

test("c", () => {
  rfc("${id}");
});
`;
    expect(markersOf("a.test.ts", unit)).toEqual([
      { id, file: "a.test.ts", title: "a: b %s" },
      { id: "9110-7.6.1-known", file: "a.test.ts", title: "a: b %s" },
      { id, file: "a.test.ts", title: "c" },
    ]);
    const suite = `  async "d"(t: Tools): Promise<void> {\n    rfc("${id}");\n  },\n`;
    expect(markersOf("suite/a.ts", suite)).toEqual([{ id, file: "suite/a.ts", title: "d" }]);
  });

  test("a call outside a test, with an argument that is not a literal, or with an unknown id is refused", () => {
    expect(() => markersOf("a.test.ts", `rfc("${id}");\n`)).toThrow("is outside of a test");
    expect(() => markersOf("a.test.ts", `test("a", () => {\n  rfc(...ids);\n});\n`)).toThrow(
      "of 1 markers, 0 are",
    );
    expect(() => markersOf("a.test.ts", `test("a", () => {\n  rfc("9110-0-x");\n});\n`)).toThrow(
      "no such requirement",
    );
  });
});
