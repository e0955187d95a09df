/** The table of advisories in SECURITY.md, and the tests that it names. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { listAdvisories, makeTables, POLICY, withTables } from "./_advisories.ts";
import { advisoriesIn, findAdvisories } from "../conformance/markers.ts";

const named = findAdvisories();
const tested = new Set(named.map(({ id }) => id));

test("the table in SECURITY.md is up to date with the list of advisories, the tests and the gaps", () => {
  const policy = readFileSync(POLICY, "utf8");
  expect(policy).toContain("<!-- advisories -->\n");
  const isCurrent = withTables(policy, makeTables(named)) === policy;
  expect(isCurrent, "SECURITY.md is out of date; run: npm run advisories").toBe(true);
});

test("each advisory is in the list once, and has a test or a reason why it has none", () => {
  const ids = listAdvisories().flatMap((row) => row.ids);
  expect(ids).toEqual([...new Set(ids)]);
  const without = listAdvisories().flatMap(({ ids: all, untested }) =>
    all.filter((id) => tested.has(id) === (untested !== undefined)),
  );
  expect(without).toEqual([]);
});

test("each advisory that a test names is in the list", () => {
  const ids = new Set(listAdvisories().flatMap((row) => row.ids));
  expect([...tested].filter((id) => !ids.has(id))).toEqual([]);
});

test("advisories are found in the titles of tests, and in calls of `advisory`", () => {
  const unit = `describe("a", () => {
  test("CVE-2026-1, CVE-2026-1234: b", () => {
    advisory("GHSA-79qm-7rj5-m7r9");
  });
});
`;
  expect(advisoriesIn("a.test.ts", unit).map(({ id, title }) => `${id} ${title}`)).toEqual([
    "CVE-2026-1234 a: CVE-2026-1, CVE-2026-1234: b",
    "GHSA-79qm-7rj5-m7r9 a: CVE-2026-1, CVE-2026-1234: b",
  ]);
  const suite = `  async "bun#29732: d"(t: Tools): Promise<void> {\n    advisory(\n      "CVE-2026-1234",\n    );\n  },\n`;
  expect(advisoriesIn("suite/a.ts", suite).map(({ id }) => id)).toEqual([
    "bun#29732",
    "CVE-2026-1234",
  ]);
});
