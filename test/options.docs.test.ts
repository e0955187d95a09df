import { describe, expect, test } from "vitest";
import { optionNames } from "../src/options/check.ts";
import { defaults } from "../src/options/options.ts";
import { poolDefaults } from "../src/options/pool.ts";
import { readInterface } from "./_readme.ts";

const options = readInterface("ProxyOptions");

describe.each([
  ["ProxyOptions", defaults],
  ["PoolOptions", poolDefaults],
] as const)("%s", (name, presets) => {
  const docs = readInterface(name);

  test.each(docs)("$name is documented", ({ doc, summary }) => {
    expect(summary).toMatch(/^[A-Z].+\.$/);
    // In this order, so that a reader finds each where it is elsewhere.
    expect(doc.replaceAll(/^(?!@default|@example|@see).*\n?/gm, "")).toMatch(
      /^(@default .*\n?)?(@example .*\n?)?(@see .*)?$/,
    );
  });

  test("every @default is the default, and every default is documented", () => {
    const documented = docs.flatMap(({ name: option, preset }) =>
      preset === undefined ? [] : [[option, JSON.parse(preset) as unknown]],
    );
    expect(Object.fromEntries(documented)).toEqual(presets);
  });
});

test("optionNames lists all options in the order of the interface", () => {
  expect(optionNames).toEqual(options.map(({ name }) => name));
});
