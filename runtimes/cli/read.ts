/** What is wrong with the value of a flag; its message is the fix. */
export class UsageError extends Error {}

/**
 * Makes an option's value of the text that was given for its flag.
 * @param before what the same flag has made already on this line
 * @throws UsageError
 */
export type Read = (text: string, before: unknown) => unknown;

export const asText: Read = (text) => text;

export function asSwitch(text: string): unknown {
  if (text === "true" || text === "false") return text === "true";
  throw new UsageError("use true or false");
}

export function asOneOf(...choices: readonly string[]): Read {
  return (text) => {
    if (choices.includes(text)) return text;
    throw new UsageError(`use ${choices.join(" or ")}`);
  };
}

export const asSwitchOrText: Read = (text) =>
  text === "true" || text === "false" ? text === "true" : text;

/** A number, or NaN for the option's own check to refuse. */
export const asNumber: Read = (text) => (/^\d+$/.test(text) ? Number(text) : NaN);

export function asNumberFrom(least: number, most: number, fix: string): Read {
  return (text) => {
    const number = asNumber(text, undefined) as number;
    if (number >= least && number <= most) return number;
    throw new UsageError(fix);
  };
}

function asLimitFrom(least: number, fix: string): Read {
  const read = asNumberFrom(least, Number.MAX_SAFE_INTEGER, fix);
  return (text, before) => (text === "Infinity" ? Infinity : read(text, before));
}

export const milliseconds: Read = asNumberFrom(0, 2 ** 31 - 1, "use whole milliseconds");
export const limit: Read = asLimitFrom(1, "use a whole number, 1 or more, or Infinity");
export const limitOrNone: Read = asLimitFrom(0, "use a whole number, or Infinity");

export const asSwitchOrNumber: Read = (text, before) =>
  text === "true" || text === "false" ? text === "true" : asNumber(text, before);

export const asSwitchOrNames: Read = (text, before) =>
  text === "true" || text === "false"
    ? text === "true"
    : asNames(text, Array.isArray(before) ? before : []);

/** A feature whose details text cannot say: on, as by default, or off. */
export const asObjectOrFalse: Read = (text) => {
  if (text === "true" || text === "false") return text === "true" ? {} : false;
  throw new UsageError("use true or false; its details can only be set in code");
};

export const asSwitchOrMap: Read = (text, before) =>
  text === "true" || text === "false"
    ? text === "true"
    : asRewrite(text, typeof before === "object" ? before : {});

/** `from=to` for one, `=to` for all. */
export const asTextOrMap: Read = (text, before) =>
  text.startsWith("=") ? text.slice(1) : asRewrite(text, typeof before === "object" ? before : {});

export function asBytes(text: string): unknown {
  const [, digits, unit = ""] = /^(\d+)([kmg]?)(?:i?b)?$/i.exec(text) ?? [];
  if (digits === undefined) throw new UsageError("use bytes, or a size such as 512k or 10mb");
  return Number(digits) * 1024 ** " kmg".indexOf(unit.toLowerCase() || " ");
}

export function asNames(text: string, before: unknown): unknown {
  const names = text.split(",").map((name) => name.trim());
  return [...((before as string[] | undefined) ?? []), ...names.filter((name) => name !== "")];
}

export function asHeader(text: string, before: unknown): unknown {
  const colon = text.indexOf(":");
  if (colon < 1) throw new UsageError('write it as "name: value", or as "name:" to delete it');
  const value = text.slice(colon + 1).trim();
  return withEntry(before, text.slice(0, colon).trim(), value === "" ? null : value);
}

export function asRewrite(text: string, before: unknown): unknown {
  const equals = text.indexOf("=");
  if (equals < 1) throw new UsageError('write it as "from=to", such as "^/old/=/new/"');
  return withEntry(before, text.slice(0, equals), text.slice(equals + 1));
}

/** A copy with one entry more; a name such as `__proto__` is an entry like any other. */
function withEntry(before: unknown, name: string, value: string | null): unknown {
  return Object.fromEntries([
    ...Object.entries((before as object | undefined) ?? {}),
    [name, value],
  ]);
}
