/** Reads the command lines of `bench:parts`, `bench:protocols` and `bench:websockets`. */
import { parseArgs } from "node:util";
import { number, select } from "./commandline.ts";

/** What a user asks for on the command line. */
export interface RoundOptions<Further extends string = never> {
  readonly quick: boolean;
  /** The names in `--only`; undefined without the flag. */
  readonly names: readonly string[] | undefined;
  readonly rounds: number | undefined;
  /** The length of a round in seconds. */
  readonly seconds: number | undefined;
  /** The values of the flags that only this bench has. */
  readonly further: Readonly<Partial<Record<Further, string>>>;
  /** Whether everything is measured. Only then are the figures written to files. */
  readonly complete: boolean;
}

/** The flags of a bench. */
interface Flags<Further extends string> {
  /** The names that `--only` may have. */
  readonly known: readonly string[];
  /** The flags that only this bench has. Each has a value. */
  readonly further?: readonly Further[];
}

/**
 * Reads the command line.
 * @returns undefined if the user asks for help
 * @throws TypeError that names the flag and the fix
 */
export function readRoundFlags<Further extends string = never>(
  args: string[],
  { known, further = [] }: Flags<Further>,
): RoundOptions<Further> | undefined {
  const string = { type: "string" } as const;
  const boolean = { type: "boolean" } as const;
  const { values } = parseArgs({
    args,
    options: {
      quick: boolean,
      only: string,
      rounds: string,
      seconds: string,
      help: { ...boolean, short: "h" },
      ...Object.fromEntries(further.map((name) => [name, string])),
    },
  });
  if (values.help) return undefined;
  const { quick = false, only, rounds, seconds } = values;
  const own = values as Partial<Record<Further, string>>;
  return {
    quick,
    names: only === undefined ? undefined : chooseNames("only", only, known),
    rounds: rounds === undefined ? undefined : number("rounds", rounds, 0),
    seconds: seconds === undefined ? undefined : readDuration(seconds),
    further: own,
    complete: Object.keys(values).every((name) => name === "rounds" || name === "seconds"),
  };
}

/**
 * Returns the names in the value of a flag.
 * @throws TypeError for a name that is not among `known`
 */
export function chooseNames(flag: string, value: string, known: readonly string[]): string[] {
  const all = known.map((name) => ({ name }));
  return select(flag, all, value).map(({ name }) => name);
}

/** @throws TypeError if the text is no number above 0 */
function readDuration(text: string): number {
  const value = Number(text);
  if (value > 0 && value < Infinity) return value;
  throw new TypeError(`--seconds: ${JSON.stringify(text)} is no number above 0`);
}
