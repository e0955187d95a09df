/** Tests that the layers of CONTRIBUTING.md hold: `npm run layers` prints them. */
import { expect, test } from "vitest";
import { findCircles, findUpward, type Imports, readImports } from "./_layers.ts";

const imports = readImports();

test("no imports of src, runtimes, integrations and command form a circle, even with imports of types", () => {
  expect(imports.size).toBeGreaterThan(200);
  expect(findCircles(imports)).toEqual([]);
});

test("no file imports a file of a higher layer", () => {
  expect(findUpward(imports)).toEqual([]);
});

test("the check of layers finds circles, and imports of a higher layer", () => {
  const wrong: Imports = new Map([
    ["src/fields/headers.ts", ["src/body/bytes.ts"]],
    ["src/body/bytes.ts", ["src/fields/headers.ts"]],
    ["runtimes/sockets/dns.ts", ["runtimes/node/attach.ts"]],
    ["src/proxy.ts", ["src/plan.ts"]],
  ]);
  expect(findCircles(wrong)).toEqual([["src/fields/headers.ts", "src/body/bytes.ts"]]);
  expect(findUpward(wrong)).toEqual([
    "src/fields/headers.ts -> src/body/bytes.ts",
    "runtimes/sockets/dns.ts -> runtimes/node/attach.ts",
  ]);
});

test("the check of layers reads every form of import", () => {
  const found = imports.get("runtimes/node.ts");
  expect(found).toContain("src/index.ts");
  expect(imports.get("runtimes/sockets/sockettransport.ts")).toContain(
    "runtimes/sockets/http2/http2pool.ts",
  );
  expect(imports.get("src/plan.ts")).toContain("src/transport/scope.ts");
});
