/** Reads the command lines of all benches, and writes their help. */
import { parseArgs } from "node:util";

/** A flag of a bench. Its values are texts as a user would type them, and `read` turns them into what the bench uses. */
export interface Flag<T> {
  /** The placeholder for the value in the help; undefined for a flag without a value. */
  readonly value?: string;
  readonly text: string;
  /** The text of the value if the flag is not given. */
  readonly usual?: string;
  /** The text of the value with `--quick`. */
  readonly quick?: string;
  /** Whether a run with this flag still measures everything. */
  readonly keepsComplete?: true;
  /** @throws TypeError that names the flag and the fix */
  readonly read: (value: string | undefined, name: string) => T;
}

export type Flags = Readonly<Record<string, Flag<unknown>>>;

/** The values of the flags of a command line. */
export type Values<F extends Flags> = {
  readonly [Name in keyof F]: F[Name] extends Flag<infer T> ? T : never;
};

export interface Bench<F extends Flags = Flags> {
  readonly name: string;
  /** What the bench measures, in one line for the help. */
  readonly text: string;
  /** The files that a complete run writes; undefined for a bench that only prints. */
  readonly writes?: string;
  readonly flags: F;
  /** @param isComplete whether everything is measured: only then may published files change */
  run(values: Values<F>, isComplete: boolean): Promise<void> | void;
}

/**
 * Returns a bench unchanged. From the `flags` of the parameter, TypeScript infers the type of the values that `run` receives.
 */
export function defineBench<F extends Flags>(bench: Bench<F>): Bench {
  return bench;
}

type Preset = Pick<Flag<unknown>, "usual" | "quick" | "keepsComplete">;

/** A flag that selects members of a list by their names. */
export function names<T extends { readonly name: string }>(
  text: string,
  all: readonly T[],
  preset: Preset = {},
): Flag<readonly T[]> {
  const read = (value: string | undefined, name: string): readonly T[] => select(name, all, value);
  return {
    value: "<names>",
    text: `${text}: ${all.map((each) => each.name).join(", ")}`,
    ...preset,
    read,
  };
}

/** A flag with a whole number from 1 to `most`. */
export function wholeNumber(text: string, preset: Preset, most = 1000): Flag<number> {
  return { value: "<n>", text, ...preset, read: (value, name) => toWhole(name, value, most) };
}

/** A flag with several whole numbers. */
export function wholeNumbers(text: string, preset: Preset, most: number): Flag<readonly number[]> {
  const read = (value: string | undefined, name: string): number[] =>
    (value ?? "").split(",").map((each) => toWhole(name, each, most));
  return { value: "<n,…>", text, ...preset, read };
}

/** A flag that has no value if it is not given. */
export function optional<T>(flag: Flag<T>): Flag<T | undefined> {
  return {
    ...flag,
    read: (value, name) => (value === undefined ? undefined : flag.read(value, name)),
  };
}

export function toggle(text: string): Flag<boolean> {
  return { text, read: (value) => value !== undefined };
}

/** A flag with a number above 0. */
export function decimal(text: string, preset: Preset): Flag<number> {
  return { value: "<n>", text, ...preset, read: toDecimal };
}

/**
 * Returns the flags of benches that run in rounds. A round takes whole seconds, because the load generator accepts no others.
 */
export function roundFlags(
  rounds: Preset,
  seconds: Preset,
): { rounds: Flag<number>; seconds: Flag<number> } {
  return {
    rounds: wholeNumber("interleaved rounds", { keepsComplete: true, ...rounds }),
    seconds: wholeNumber("length of a round in seconds", { keepsComplete: true, ...seconds }),
  };
}

/**
 * Reads a command line.
 * @returns undefined if the user asks for help
 * @throws TypeError that names the flag and the fix
 */
export function readFlags<F extends Flags>(
  args: string[],
  flags: F,
): { values: Values<F>; isComplete: boolean } | undefined {
  const given = parse(args, flags);
  if (given["help"] === true) return undefined;
  const isQuick = given["quick"] === true;
  const values = Object.entries(flags).map(([name, { usual, quick, read }]) => {
    const preset = isQuick ? (quick ?? usual) : usual;
    const value = given[name] ?? preset;
    return [name, read(value === true ? "" : value, name)];
  });
  return {
    values: Object.fromEntries(values) as Values<F>,
    isComplete: Object.keys(given).every((name) => flags[name]?.keepsComplete),
  };
}

function parse(args: string[], flags: Flags): Record<string, string | true | undefined> {
  const boolean = { type: "boolean" } as const;
  const options = Object.entries(flags).map(([name, { value }]) => [
    name,
    value === undefined ? boolean : { type: "string" },
  ]);
  try {
    return parseArgs({
      args,
      options: {
        help: { ...boolean, short: "h" },
        ...(hasQuick(flags) && { quick: boolean }),
        ...(Object.fromEntries(options) as Record<string, { type: "string" }>),
      },
    }).values as Record<string, string | true | undefined>;
  } catch (error) {
    throw new TypeError((error as Error).message.split(". ")[0], { cause: error });
  }
}

function hasQuick(flags: Flags): boolean {
  return Object.values(flags).some(({ quick }) => quick !== undefined);
}

/** Describes each flag in a line. */
export function describeFlags(flags: Flags): string {
  const rows = Object.entries(flags).map(([flag, { value, text: what, usual, quick }]) => {
    const presets = [usual, quick === undefined ? undefined : `quick: ${quick}`];
    const known = presets.filter((preset) => preset !== undefined);
    return [
      `--${flag} ${value ?? ""}`.trim(),
      `${what}${known.length > 0 ? ` (${known.join("; ")})` : ""}`,
    ];
  });
  if (hasQuick(flags)) rows.unshift(["--quick", "a shorter run with the values behind quick"]);
  const width = Math.max(0, ...rows.map(([flag = ""]) => flag.length));
  return rows.map(([flag = "", what = ""]) => `  ${flag.padEnd(width)}  ${what}`).join("\n");
}

export function describeBench({ name, text, writes, flags }: Bench): string {
  return [
    `Usage: npm run bench -- ${name} [flags]`,
    text,
    describeFlags(flags),
    writes === undefined ? "It only prints." : `A complete run writes ${writes}.`,
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

/**
 * Returns the members that a list of names selects. The names are separated by commas, and may end in `*`.
 * @throws TypeError that names the flag and the known names
 */
function select<T extends { readonly name: string }>(
  flag: string,
  all: readonly T[],
  list: string | undefined,
): readonly T[] {
  if (list === undefined) return all;
  const chosen = new Set<T>();
  for (const name of list.split(",")) {
    const matches = all.filter((each) =>
      name.endsWith("*") ? each.name.startsWith(name.slice(0, -1)) : each.name === name,
    );
    if (matches.length === 0) {
      const known = all.map((each) => each.name).join(", ");
      throw new TypeError(`--${flag}: there is no ${JSON.stringify(name)}; use ${known}`);
    }
    for (const match of matches) chosen.add(match);
  }
  return all.filter((each) => chosen.has(each));
}

function toWhole(flag: string, text: string | undefined, most: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new TypeError(`--${flag}: ${JSON.stringify(text)} is no whole number from 1 to ${most}`);
}

function toDecimal(text: string | undefined, flag: string): number {
  const value = Number(text);
  if (value > 0 && value < Infinity) return value;
  throw new TypeError(`--${flag}: ${JSON.stringify(text)} is no number above 0`);
}
