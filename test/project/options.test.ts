import { describe, expect, test } from "vitest";
import { serverDefaults, serverSchema } from "../../command/flags/commandoptions.ts";
import { poolDefaults, poolSchema } from "../../src/options/pooloptions.ts";
import { defaults, proxySchema } from "../../src/options/proxyoptions.ts";
import { readInterface } from "./_docs.ts";

describe.each([
  ["ProxyOptions", proxySchema, defaults],
  ["PoolOptions", poolSchema, poolDefaults],
  ["ServerOptions", serverSchema, serverDefaults],
] as const)("%s", (name, schema, presets) => {
  const docs = readInterface(name);

  test.each(docs)("$name has a summary, and its tags in the usual order", ({ summary, tags }) => {
    expect(summary).toMatch(/^[A-Z].+\.$/);
    expect(tags).toEqual(["default", "example", "see"].filter((tag) => tags.includes(tag)));
  });

  test("the schema has the options in the order of the interface", () => {
    expect(Object.keys(schema)).toEqual(docs.map(({ name: option }) => option));
  });

  test("every @default agrees with the default in the code, and every default is documented", () => {
    const documented = docs.flatMap(({ name: option, preset }) =>
      preset === undefined ? [] : [[option, JSON.parse(preset) as unknown]],
    );
    expect(Object.fromEntries(documented)).toEqual(presets);
  });
});

test.each(readInterface("BalanceOptions"))(
  "the option $name of `balance` has a summary, and its tags in the usual order",
  ({ summary, tags }) => {
    expect(summary).toMatch(/^[A-Z].+[.:]/);
    expect(tags).toEqual(["default", "example", "see"].filter((tag) => tags.includes(tag)));
  },
);
