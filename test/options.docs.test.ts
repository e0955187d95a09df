import { describe, expect, test } from "vitest";
import { poolDefaults, poolSchema } from "../src/options/pooloptions.ts";
import { defaults, proxySchema } from "../src/options/proxyoptions.ts";
import { readInterface } from "./_readme.ts";

describe.each([
  ["ProxyOptions", proxySchema, defaults],
  ["PoolOptions", poolSchema, poolDefaults],
] as const)("%s", (name, schema, presets) => {
  const docs = readInterface(name);

  test.each(docs)("$name is documented", ({ doc, summary }) => {
    expect(summary).toMatch(/^[A-Z].+\.$/);
    // All options have their tags in the same order.
    expect(doc.replaceAll(/^(?!@default|@example|@see).*\n?/gm, "")).toMatch(
      /^(@default .*\n?)?(@example .*\n?)?(@see .*)?$/,
    );
  });

  test("the schema is in the order of the interface", () => {
    expect(Object.keys(schema)).toEqual(docs.map(({ name: option }) => option));
  });

  test("every @default is the default, and every default is documented", () => {
    const documented = docs.flatMap(({ name: option, preset }) =>
      preset === undefined ? [] : [[option, JSON.parse(preset) as unknown]],
    );
    expect(Object.fromEntries(documented)).toEqual(presets);
  });
});
