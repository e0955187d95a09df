/** The types of the tables that define the flags of each group of options. */

/** The options that a command line can express: those that accept a text, a number, a boolean, or a list or map of texts. */
export type Expressible<Options> = {
  [Name in keyof Options]-?: [Extract<Options[Name], Plain>] extends [never] ? never : Name;
}[keyof Options];

type Plain =
  | string
  | number
  | boolean
  | readonly string[]
  | Readonly<Record<string, string>>
  | Readonly<Record<string, string | null>>;

/** The help of a flag, and the parts of the flag that do not follow from its option. */
export interface FlagText {
  readonly help: string;
  /** The name of the flag; left out if it is the name of the option in kebab-case. */
  readonly name?: string;
  readonly short?: string;
  /** The placeholder for the value in the help; left out if the kind of the option determines it. */
  readonly value?: string;
  /** The default as the help shows it, if it depends on the machine. */
  readonly fallback?: string;
  /** The advice for a wrong value, if the message of the option does not give it. */
  readonly instead?: string;
  /** The values that may follow the flag, if it needs no value. */
  readonly optional?: readonly string[];
}

/** The flags of a group of options, each with its line in the help. */
export interface Flags<Options> {
  /** The heading of the group in the help. */
  readonly heading: string;
  readonly flags: { readonly [Name in Expressible<Options>]: string | FlagText };
}
