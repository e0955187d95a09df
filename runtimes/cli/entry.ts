import type { Read } from "./read.ts";

/** The headings of the help, in order. */
export const groups = ["Listening", "Headers", "Paths", "Limits", "Connections", "Other"] as const;

/** A flag as it is written down, by the name of its option. */
export interface Entry {
  readonly group: (typeof groups)[number];
  /** Its name, where that is not the option's in kebab-case. */
  readonly name?: string;
  readonly short?: string;
  /** What stands for its value in the help. A flag without one is a switch: true or false. */
  readonly value?: string;
  /** Whether `--no-name` says false. */
  readonly negatable?: boolean;
  /** Whether it may come several times. Its value is not repeated in messages then: it may be a secret. */
  readonly repeats?: boolean;
  readonly help: string;
  readonly read: Read;
}

/** The options that text can say: all but hooks and objects. One that is forgotten below does not compile. */
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
