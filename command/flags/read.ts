/** Reads the text of a flag by the kind of the option that the flag sets. */
import type { Kind, KindName } from "#fetchway/options";
import { parseDuration, parseSize } from "./duration.ts";

/** A mistake in the command line. The message says how to correct it. */
export class UsageError extends Error {}

/**
 * Converts the text that was given for a flag to the value of its option. If a plain number is expected, a text that is not a
 * number becomes NaN, which the check of the option refuses with its own message.
 * @param before the value from the earlier uses of the same flag, if it was given several times
 * @throws UsageError for a text that cannot be a value of the option
 */
export type Read = (text: string, before: unknown) => unknown;

/** How the value of a flag is written. */
export interface Form {
  /** The placeholder of the value in the help; undefined for a flag that needs no value. */
  readonly value?: string;
  /** Whether the flag also has the form `--no-name`, which sets the option to false. */
  readonly negatable: boolean;
  /**
   * Whether the flag may be given several times. Messages about such a flag do not quote its value, because it may be a
   * secret, as in a header field.
   */
  readonly repeats: boolean;
  readonly read: Read;
}

type Reader = Partial<Form> & { readonly read: Read };

const READERS: Record<KindName, Reader> = {
  switch: { read: readSwitch, negatable: true },
  number: { value: "<number>", read: readNumber },
  milliseconds: { value: "<time>", read: readDuration },
  bytes: { value: "<size>", read: readBytes },
  text: { value: "<text>", read: (text) => text },
  names: { value: "<a,b>", repeats: true, read: readNames },
  list: {
    value: "<text>",
    repeats: true,
    read: (text, before) => [...((before as string[] | undefined) ?? []), text],
  },
  ranges: { value: "<a,b>", read: readNames },
  fields: { value: '"name: value"', repeats: true, read: readField },
  map: { value: '"from=to"', repeats: true, read: readPair },
};

/**
 * Returns how an option of this kind is written as a flag.
 * @returns undefined for a kind that text cannot express
 */
export function formOf(kind: Kind<never>): Form | undefined {
  const reader = kind.parts === undefined ? readerOf(kind) : readerOfParts(kind.parts);
  return reader && { negatable: false, repeats: false, ...reader };
}

function readerOf({ name, choices }: Kind<never>): Reader | undefined {
  if (name !== undefined) return READERS[name];
  return choices && { value: `<${choices.join("|")}>`, read: readChoice(choices) };
}

/**
 * Combines the readers of an option's alternatives. If the option also accepts `false`, and text can express only one of the
 * other alternatives, or none, the text `false` turns the option off, and `true` turns it on unless the option refuses `true`.
 */
function readerOfParts(parts: readonly Kind<never>[]): Reader | undefined {
  const accepts = (value: boolean): boolean =>
    parts.some(({ check }) => check(value) === undefined);
  const others = parts.filter(({ name }) => name !== "switch");
  const [first, second] = others.flatMap((part) => readerOf(part) ?? []);
  if (first === undefined) {
    // The value of the option is an object, which text cannot express: text can only turn the option on or off.
    return accepts(false) ? { read: readOnOrOff, negatable: true } : undefined;
  }
  const choices = others.find((part) => part.choices !== undefined)?.choices;
  if (second !== undefined && choices !== undefined) {
    const value = first.value?.replace(">", `|${choices.join("|")}>`);
    const read: Read = (text, before) => (choices.includes(text) ? text : first.read(text, before));
    return { ...first, ...(value && { value }), read };
  }
  if (second !== undefined) return { ...second, read: readTextOrPair };
  if (!accepts(false)) return first;
  // The check of the option refuses other texts, with a message that names all alternatives.
  const read: Read = choices === undefined ? first.read : (text) => text;
  return {
    ...first,
    ...(choices && { value: `<true|${choices.join("|")}>` }),
    negatable: true,
    read(text, before) {
      if (text === "false" || (text === "true" && accepts(true))) return text === "true";
      return read(text, typeof before === "object" ? before : undefined);
    },
  };
}

function readSwitch(text: string): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw new UsageError("use true or false");
}

function readOnOrOff(text: string): unknown {
  if (text === "true" || text === "false") return text === "true" ? {} : false;
  throw new UsageError("use true or false; its details can only be set in a config file");
}

function readNumber(text: string): number {
  return /^(?:\d+|Infinity)$/.test(text) ? Number(text) : NaN;
}

function readDuration(text: string): number {
  const duration = parseDuration(text) ?? readNumber(text);
  if (!Number.isFinite(duration)) {
    throw new UsageError("use milliseconds, or a duration such as 500ms, 10s, 2m or 1h");
  }
  return duration;
}

function readBytes(text: string): number {
  const size = parseSize(text);
  if (size === undefined) throw new UsageError("use bytes, or a size such as 512k or 10mb");
  return size;
}

function readChoice(choices: readonly string[]): Read {
  return (text) => {
    if (choices.includes(text)) return text;
    throw new UsageError(`use ${choices.join(" or ")}`);
  };
}

function readNames(text: string, before: unknown): string[] {
  const names = text.split(",").map((name) => name.trim());
  return [...((before as string[] | undefined) ?? []), ...names.filter((name) => name !== "")];
}

function readField(text: string, before: unknown): unknown {
  const colon = text.indexOf(":");
  if (colon < 1) throw new UsageError('write it as "name: value", or as "name:" to delete it');
  const value = text.slice(colon + 1).trim();
  return withEntry(before, text.slice(0, colon).trim(), value === "" ? null : value);
}

function readPair(text: string, before: unknown): unknown {
  const equals = text.indexOf("=");
  if (equals < 1) throw new UsageError('write it as "from=to", such as "^/old/=/new/"');
  return withEntry(before, text.slice(0, equals), text.slice(equals + 1));
}

/** Reads `from=to` as an entry of a map, and `=to` as one text that applies to all names. */
function readTextOrPair(text: string, before: unknown): unknown {
  return text.startsWith("=")
    ? text.slice(1)
    : readPair(text, typeof before === "object" ? before : undefined);
}

/** Returns a copy with one more entry. Even a name such as `__proto__` becomes an ordinary entry. */
function withEntry(before: unknown, name: string, value: string | null): unknown {
  return Object.fromEntries([
    ...Object.entries((before as object | undefined) ?? {}),
    [name, value],
  ]);
}
