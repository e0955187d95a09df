/**
 * The types and functions of option schemas. Each group of options has a file with two parts side by side: the
 * interface (type and documentation) and the schema (check, default, other names). The checks of options, the defaults,
 * the command's flags, the tables of docs/ and some tests are made from the schemas.
 */
import { badOption, cutCredentials } from "../misuse.ts";
import { suggest } from "./nearest.ts";

/** Returns what is wrong with a value and how to fix it, or undefined for a valid value. */
export type Check = (value: unknown) => string | undefined;

/**
 * The name of a kind of value. The command uses it to choose how to read a flag, and tests use it to choose sample values.
 */
export type KindName =
  | "switch"
  | "number"
  | "milliseconds"
  | "bytes"
  | "text"
  | "names"
  | "list"
  | "ranges"
  | "fields"
  | "map";

/** A kind of value. The compiler refuses a schema in which the kind of an option does not cover the option's type. */
export interface Kind<in T> {
  readonly check: Check;
  /** The name; undefined for a kind that one flag cannot express, such as a function, an object, or one with `parts`. */
  readonly name?: KindName | undefined;
  /** Alternative kinds: the value must be of one of them. */
  readonly parts?: readonly Kind<never>[];
  /** The only texts that are valid values. */
  readonly choices?: readonly string[];
  /** The options that an object of this kind may have. */
  readonly members?: Table;
  /**
   * Returns whether a value is meant to be of this kind, even if its contents are wrong. If so, `either` reports what is wrong
   * with the contents.
   */
  readonly contains?: (value: unknown) => boolean;
  /** Never set. The property makes the compiler compare the type `T` with the type of the option. */
  readonly takes?: (value: T) => void;
}

interface Entry<T> {
  readonly kind: Kind<T>;
  /**
   * The names of the same option in other libraries. If an app uses one of them, the error message gives the name of
   * this option.
   */
  readonly aliases?: readonly string[];
}

/**
 * The schema of a group of options, with an entry for each option of the interface.
 * @typeParam Preset the names of the options that have a default
 */
export type Schema<Options, Preset extends keyof Options = never> = {
  readonly [Name in keyof Options]-?: Entry<Exclude<Options[Name], undefined>> &
    (Name extends Preset
      ? { readonly default: Exclude<Options[Name], undefined> }
      : { readonly default?: never });
};

/** A schema as a map, without the types of its options. */
export type Table = Readonly<Record<string, Entry<never> & { readonly default?: unknown }>>;

/** Returns the defaults of a schema. */
export function defaultsOf<Options, Preset extends keyof Options>(
  schema: Schema<Options, Preset>,
): Required<Pick<Options, Preset>> {
  const given = Object.entries(schema as Table).filter(([, each]) => each.default !== undefined);
  return Object.fromEntries(given.map(([name, each]) => [name, each.default])) as Required<
    Pick<Options, Preset>
  >;
}

/** Returns the given options, with the default for each option that is missing or `undefined`. */
export function fillIn<Filled extends object>(defaults: Filled, given: object): Filled {
  const filled = { ...defaults } as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) filled[name] = value;
  }
  return filled as Filled;
}

/** Whether a value can be an object of options: an array, a `Map` or a `Headers` cannot. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

/** Returns what to write instead of a name that is not an option; undefined for a name that the function does not know. */
export type Explain = (name: string, value: unknown) => string | undefined;

/** Returns the name of the first wrong option, for a message, and how to fix it; undefined if none is wrong. */
export function findWrong(
  options: object,
  table: Table,
  explain?: Explain,
): [name: string, fix: string] | undefined {
  for (const name of Object.keys(options)) {
    const value = (options as Record<string, unknown>)[name];
    // `hasOwn` leaves out the names that every object inherits, such as `constructor`.
    if (!Object.hasOwn(table, name)) {
      return [cutCredentials(name), explain?.(name, value) ?? explainUnknown(name, table)];
    }
    const fix = value === undefined ? undefined : table[name]?.kind.check(value);
    if (fix !== undefined) return [name, fix];
  }
  return undefined;
}

/**
 * Checks that every option exists and has a value of the right kind.
 * @param explain explains names that are not options; without it, or if it returns undefined, the error suggests the nearest
 * option, or lists all options if none is near
 * @throws TypeError that names the option and the fix
 */
export function assertOptions(options: object, table: Table, explain?: Explain): void {
  const wrong = findWrong(options, table, explain);
  if (wrong !== undefined) throw badOption(...wrong);
}

function explainUnknown(name: string, table: Table): string {
  return `there is no such option; ${suggest(name, Object.keys(table))}`;
}
