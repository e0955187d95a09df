/**
 * Tests that apply to every option through its schema: the check, the default and the flag. No option is tested by name
 * here.
 */
import { describe, expect, test } from "vitest";
import { lineSchema, serverDefaults, serverSchema } from "../../../command/flags/commandoptions.ts";
import { flags, type FlagGroup } from "../../../command/flags/flags.ts";
import { renderHelp } from "../../../command/flags/help.ts";
import { parse } from "../../../command/flags/parse.ts";
import { findProblems } from "../../../command/config/problems.ts";
import { balanceSchema, routeSchema } from "../../../command/flags/severalupstreams.ts";
import { createProxy } from "../../../runtimes/node.ts";
import { checkOptions } from "../../../src/options/check.ts";
import { checkPoolOptions } from "../../../src/options/poolcheck.ts";
import { compile } from "../../../src/plan.ts";
import { fillPoolOptions, poolDefaults, poolSchema } from "../../../src/options/pooloptions.ts";
import { defaults, proxySchema } from "../../../src/options/proxyoptions.ts";
import type { Table } from "../../../src/schema/schema.ts";
import { FakeTransport } from "../../helpers/fakes.ts";
import { badTexts, goodTexts, wrongValues } from "./_kinds.ts";

const tables: Record<FlagGroup, Table> = {
  proxy: routeSchema,
  pool: poolSchema,
  server: serverSchema,
  balance: balanceSchema,
  line: lineSchema,
};

const target = "http://127.0.0.1:4000";

function withoutNo(line: string): string {
  return line.replace("[no-]", "");
}

describe.each(Object.entries(proxySchema as Table))("the option %s of a proxy", (name, option) => {
  test.each(wrongValues(option.kind))("refuses %j", (value) => {
    const options = { followRedirects: true, [name]: value };
    expect(() => checkOptions(options)).toThrow(TypeError);
    expect(() => createProxy({ target, ...options })).toThrow(
      new RegExp(`^fetchway: bad option \`${name}\`: .*\\w`),
    );
  });

  test("accepts its default, which has the same effect as leaving the option out", () => {
    if (option.default === undefined) return;
    const transport = new FakeTransport();
    const planOf = (options: object): unknown => {
      const { options: _, ...plan } = compile(options, () => transport);
      // Functions are compiled anew for each plan, so compare only whether there is a function.
      const entries = Object.entries(plan);
      return entries.map(([field, value]) => [field, typeof value === "function" ? "()" : value]);
    };
    const others = name === "redirectTargets" ? { followRedirects: true } : {};
    expect(planOf({ ...others, [name]: option.default })).toEqual(planOf(others));
    expect(defaults).toHaveProperty(name, option.default);
  });
});

describe.each(Object.entries(poolSchema as Table))("the option %s of a pool", (name, option) => {
  test.each(wrongValues(option.kind))("refuses %j", (value) => {
    const pool = { [name]: value };
    expect(() => checkPoolOptions(pool)).toThrow(TypeError);
    expect(() => createProxy({ target, pool })).toThrow(
      new RegExp(`^fetchway: bad option \`${name}\`: .*\\w`),
    );
  });

  test("accepts its default, which is filled in if the option is left out", () => {
    if (option.default === undefined) return;
    expect(() => checkPoolOptions({ [name]: option.default })).not.toThrow();
    expect(fillPoolOptions({})).toHaveProperty(name, option.default);
    expect(fillPoolOptions({ [name]: undefined })).toHaveProperty(name, option.default);
    expect(poolDefaults).toHaveProperty(name, option.default);
  });
});

test("every kind of option has wrong values, so that no list of tests above is empty", () => {
  for (const table of [proxySchema, poolSchema] as Table[]) {
    for (const [name, { kind }] of Object.entries(table)) {
      expect(wrongValues(kind).length, name).toBeGreaterThan(2);
      expect(new Set(wrongValues(kind).map((value) => kind.check(value))), name).not.toContain("");
    }
  }
});

describe.each(flags.map((flag) => [`--${flag.name}`, flag] as const))(
  "the flag %s",
  (name, flag) => {
    const { option, scope, value, negatable, short } = flag;
    const { kind, default: preset } = tables[scope][option] as Table[string];
    const read = (...args: string[]): unknown => {
      const line = parse([...args, target]);
      expect([...line.problems, ...findProblems(line)]).toEqual([]);
      expect(line.target).toBe(target);
      return line.given[scope][option];
    };

    test("sets its option to the value that the text means", () => {
      const samples = goodTexts(kind);
      expect(samples).not.toEqual([]);
      for (const [text, expected] of samples) {
        expect(read(`${name}=${text}`)).toEqual(expected);
        expect(read(name, text)).toEqual(expected);
        if (short !== undefined) expect(read(`-${short}`, text)).toEqual(expected);
      }
      if (value === undefined) expect(read(name)).toEqual(goodTexts(kind).length > 1 ? true : {});
    });

    test("has a --no- form if and only if the option takes false and is not in `lineSchema`", () => {
      const takesFalse = kind.check(false) === undefined && scope !== "line";
      expect(negatable).toBe(takesFalse);
      if (takesFalse) expect(read(`--no-${flag.name}`)).toBe(false);
      else expect(parse([`--no-${flag.name}`, target]).problems).toHaveLength(1);
    });

    test.each(badTexts(kind))("refuses %j, naming the flag and the fix", (text) => {
      const line = parse([`${name}=${text}`, target]);
      const problems = [...line.problems, ...findProblems(line)];
      expect(problems).toHaveLength(1);
      expect(problems[0]).toMatch(new RegExp(`^${name}( ".*")?: .*\\w`));
    });

    test("has a line in the help, with its default", () => {
      const line = renderHelp(true)
        .split("\n")
        .find(
          (each) => /^ {2}(?:-\w, | {4})--/.test(each) && withoutNo(each).includes(` ${name} `),
        );
      expect(line).toContain(` ${flag.help}`);
      const other = typeof preset === "object" ? true : (preset as string | number | boolean);
      const known = Array.isArray(preset) ? preset.join(",") : other;
      // This default depends on the machine.
      const shown = flag.option === "maxSockets" ? "by ulimit -n" : known;
      const isShown = shown !== undefined && shown !== false;
      expect(line?.endsWith(` (default ${String(shown)})`)).toBe(isShown);
      expect(line?.length).toBeLessThanOrEqual(100);
    });
  },
);

test("each default of the options of the command's server is valid and is in serverDefaults", () => {
  for (const [name, option] of Object.entries(serverSchema as Table)) {
    if (option.default === undefined) continue;
    expect(option.kind.check(option.default)).toBeUndefined();
    expect(serverDefaults).toHaveProperty(name, option.default);
  }
});

test("every option that text can express has exactly one flag, except `connectTimeout` of the pool and `log`", () => {
  const expressible = (["proxy", "pool", "balance", "server", "line"] as const).flatMap((scope) =>
    Object.entries(tables[scope])
      .filter(([, { kind }]) => goodTexts(kind).length > 0)
      .map(([name]) => `${scope} ${name}`),
  );
  const given = flags.map(({ scope, option }) => `${scope} ${option}`);
  // `connectTimeout` of the pool has no separate flag: the flag of the proxy's option sets it. The proxies' own option `log`
  // has no effect in the command.
  expect([...given, "pool connectTimeout", "proxy log"].toSorted()).toEqual(expressible.toSorted());
  const names = flags.flatMap(({ name, short }) => (short === undefined ? name : [name, short]));
  expect(new Set(names).size).toBe(names.length);
});
