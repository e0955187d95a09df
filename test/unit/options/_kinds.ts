/** Sample values for tests of options, by the kind of the option. */
import type { Kind, KindName } from "../../../src/schema/schema.ts";

interface Samples {
  /** Texts of a command-line flag, each with the value that it gives to the option. */
  readonly texts: readonly (readonly [text: string, value: unknown])[];
  /** Texts of a command-line flag that are refused. */
  readonly badTexts: readonly string[];
  /** Values of the option that are refused. Every kind also refuses `null`. */
  readonly wrong: readonly unknown[];
}

const NUMBERS = [-1, 1.5, Number.NaN, -Infinity, 2 ** 53, "5", true];
const OBJECTS = [5, ["a"], new Map([["a", "b"]]), new Headers({ a: "b" }), { a: 5 }];

const SAMPLES: Record<KindName, Samples> = {
  switch: {
    texts: [
      ["true", true],
      ["false", false],
    ],
    badTexts: ["1"],
    wrong: ["true", 0, {}],
  },
  number: { texts: [["7", 7]], badTexts: ["x", "1e3", "-1"], wrong: NUMBERS },
  milliseconds: {
    texts: [["250", 250]],
    badTexts: ["1x", "1.5s", "-1", "Infinity"],
    wrong: [...NUMBERS, 2 ** 31, Infinity],
  },
  bytes: {
    texts: [
      ["2000", 2000],
      ["2k", 2048],
    ],
    badTexts: ["1x", "-1"],
    wrong: [...NUMBERS, Infinity],
  },
  // A valid text is not listed here: `goodTexts` takes it from the error message, which quotes an example.
  text: { texts: [], badTexts: [], wrong: [5, "a\r\nb: c", ["a"], {}] },
  names: {
    texts: [["x-one, x-two", ["x-one", "x-two"]]],
    badTexts: ["a b"],
    wrong: ["cookie", ["a b"], ["x-*"], [""], [5], [undefined], {}],
  },
  list: { texts: [["a b", ["a b"]]], badTexts: [], wrong: [5, "a", [5], {}] },
  ranges: {
    texts: [["10.0.0.0/8,loopback", ["10.0.0.0/8", "loopback"]]],
    badTexts: ["10.0.0.0/33"],
    wrong: [5, "10.0.0.0/8", ["10.0.0.0/33"], ["localhost"], [undefined], {}],
  },
  fields: {
    texts: [
      ["x-a: b: c", { "x-a": "b: c" }],
      ["x-a:", { "x-a": null }],
    ],
    badTexts: ["x-a", "a b: c"],
    wrong: [...OBJECTS, "x-a: b", { "a b": "c" }, { "x-a": "b\r\nc: d" }],
  },
  map: {
    texts: [
      ["/a=/b", { "/a": "/b" }],
      ["a.test=b.test", { "a.test": "b.test" }],
    ],
    badTexts: ["/a"],
    wrong: OBJECTS,
  },
};

/** Values that every kind of option without a command-line form, such as a function, refuses. */
const UNEXPRESSED = [5, Number.NaN, "no such text", [null], new Map(), null];

/** Returns values that a kind refuses. */
export function wrongValues(kind: Kind<never>): unknown[] {
  const { parts, members, choices } = kind;
  if (parts !== undefined) {
    // An option with alternatives refuses only the values that every alternative refuses.
    return parts.flatMap((part) =>
      wrongValues(part).filter((value) =>
        parts.every((other) => other === part || other.check(value) !== undefined),
      ),
    );
  }
  if (members !== undefined) {
    const inside = Object.entries(members).flatMap(([name, member]) =>
      wrongValues(member.kind).map((value) => ({ [name]: value })),
    );
    return [...inside, { noSuchOption: 1 }, ["a"], true, null];
  }
  if (choices !== undefined) return ["no such text", 5, ...choices.map((each) => ` ${each}`), null];
  return kind.name === undefined ? UNEXPRESSED : [...SAMPLES[kind.name].wrong, null];
}

/** Returns texts that the flag of an option accepts, each with the value that it gives to the option. */
export function goodTexts(kind: Kind<never>): (readonly [text: string, value: unknown])[] {
  const { parts = [], name } = kind;
  const named = [kind, ...parts].filter((each) => each.name !== undefined);
  const choices = [kind, ...parts].flatMap((each) => each.choices ?? []);
  const texts = named
    .flatMap((each) => SAMPLES[each.name as KindName].texts)
    .filter(([, value]) => kind.check(value) === undefined);
  const isText = named.some((each) => each.name === "text");
  const isPair = isText && named.length > 1;
  const quoted = /"([^"]*)"/.exec(kind.check(null) ?? "")?.[1];
  if (isText && quoted !== undefined) texts.push([isPair ? `=${quoted}` : quoted, quoted]);
  if (texts.length === 0 && name === "names" && quoted !== undefined)
    texts.push([quoted, [quoted]]);
  // The remaining options take an object or false, so the command line can only turn them off.
  if (texts.length === 0 && choices.length === 0 && parts.length > 0) return [["false", false]];
  return name === "switch" ? texts : [...texts, ...choices.map((each) => [each, each] as const)];
}

/** Returns texts that the flag of an option refuses. */
export function badTexts({ parts, name, choices }: Kind<never>): string[] {
  if (choices !== undefined) return ["no such text"];
  if (name !== undefined) return [...SAMPLES[name].badTexts];
  // Use the first alternative that is neither a text, which accepts almost anything, nor a switch, which needs no value.
  const others = (parts ?? []).filter((part) => part.name !== "switch" && part.name !== "text");
  return others.slice(0, 1).flatMap(badTexts);
}
