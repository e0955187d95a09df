/** A request calls functions of few source files, and CONTRIBUTING.md names only such files. */
import { beforeAll, expect, test } from "vitest";
import type { Files } from "./_work.ts";
import { findWays, readDocumentedWay, type WayName, ways } from "./_way.ts";

let found: Record<WayName, Files>;

beforeAll(async () => {
  found = await findWays("h3");
});

test.each(Object.keys(ways) as WayName[])(
  "after warm-up, a %s in an h3 handler calls functions of few source files",
  (name) => {
    const files = Object.keys(found[name]);
    expect(files).toContain("src/proxy.ts");
    expect(files.length, files.join("\n")).toBeLessThanOrEqual(ways[name].maxFiles);
  },
);

test("CONTRIBUTING.md's section on the path of a request names only files whose functions a request calls", () => {
  const documented = readDocumentedWay();
  const passed = new Set(Object.values(found).flatMap((files) => Object.keys(files)));
  expect(documented.length).toBeGreaterThan(0);
  expect(documented.filter((file) => !passed.has(file))).toEqual([]);
});
