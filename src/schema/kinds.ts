import { REQUEST_DERIVED } from "../fields/hopbyhop.ts";
import { TOKEN } from "../fields/token.ts";
import { quoteInput } from "../misuse.ts";
import { findWrong, isRecord, type Kind, type KindName, type Table } from "./schema.ts";

/**
 * Makes a kind of value from a test.
 * @param fix the text that says what to use instead; it quotes an example where a rule would be longer. A kind that is
 * only a part of `either` needs no `fix`, because `either` has its own message.
 */
function define<T>(test: (value: unknown) => boolean, fix = "", name?: KindName): Kind<T> {
  return { name, check: (value) => (test(value) ? undefined : fix) };
}

export const toggle: Kind<boolean> = define(
  (value) => typeof value === "boolean",
  "use true or false",
  "switch",
);
/** Only `false`, for an option that can either be turned off or be set in detail. */
export const off: Kind<false> = define((value) => value === false);

type AnyFunction = (...args: never[]) => unknown;
export const callback: Kind<AnyFunction> = define(
  (value) => typeof value === "function",
  "use a function",
);

/** A list of values of one kind. */
export function list<T>(part: Kind<T>, fix: string): Kind<readonly T[]> {
  return define(
    (value) => Array.isArray(value) && value.every((each) => part.check(each) === undefined),
    fix,
  );
}
export const interceptors: Kind<readonly AnyFunction[]> = list(
  callback,
  "use an array of functions (next) => (request, scope) => next(request, scope)",
);

/** A whole number in a range. Only a range up to `Infinity` includes `Infinity`. */
export function whole(
  least: number,
  fix = "",
  most: number = 2 ** 53,
  name: "number" | "milliseconds" | "bytes" = "number",
): Kind<number> {
  const test = (value: unknown): boolean =>
    (Number.isSafeInteger(value) || value === Infinity) &&
    (value as number) >= least &&
    (value as number) <= most;
  return define(test, fix, name);
}

/** Milliseconds for a timer, up to the maximum of `setTimeout`, above which a timer would fire immediately. */
export function millisecondsFrom(least: number, fix: string): Kind<number> {
  return whole(least, fix, 2 ** 31 - 1, "milliseconds");
}
export const milliseconds: Kind<number> = millisecondsFrom(
  0,
  "use whole milliseconds, 0 for no limit",
);
export const bytes: Kind<number> = whole(0, "use a number of bytes", undefined, "bytes");
/** A maximum count; `Infinity` sets no limit, because no count reaches it. */
export function limitFrom(least: number): Kind<number> {
  return whole(least, `use a whole number from ${least}, or Infinity for no limit`, Infinity);
}

export const statusCodes: Kind<readonly number[]> = list(
  whole(400, "", 599),
  "use an array of statuses from 400 to 599",
);

/** Matches an absolute path of a Unix domain socket, or the path of a named pipe on Windows. */
export const SOCKET_PATH: RegExp = /^(?:\/|\\\\)/;

export function text(form: RegExp, fix?: string): Kind<string> {
  return define((value) => typeof value === "string" && form.test(value), fix, "text");
}
/** One of several fixed texts; for use in `either`. */
export function choice<Text extends string>(...choices: Text[]): Kind<Text> {
  return { ...define((value) => choices.includes(value as Text)), choices };
}

/** The name of one field: a token without `*` and without a final `-`, because these stand for several names. */
const NAME = /^[!#$%&'+.^_`|~\w-]*[!#$%&'+.^_`|~\w]$/;
/** The characters of a field value (RFC 9110 §5.5); bytes above 0x7f are opaque. */
const FIELD_VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;

function checkNames(value: unknown): string | undefined {
  if (!Array.isArray(value)) return 'use an array of field names, such as ["cookie"]';
  for (const name of value as unknown[]) {
    if (typeof name !== "string" || !NAME.test(name)) {
      return `${quoteInput(name)} is not a field name`;
    }
  }
  return undefined;
}

export const names: Kind<readonly string[]> = { name: "names", check: checkNames };

/** A protocol of `Upgrade`, with or without a version (RFC 9110 §7.8); not with `*`, which stands for several names. */
const PROTOCOL = /^[!#$%&'+.^_`|~\w-]+(?:\/[!#$%&'+.^_`|~\w-]+)?$/;

/** Protocols of `Upgrade` other than HTTP itself. */
export const protocols: Kind<readonly string[]> = {
  name: "names",
  check(value) {
    const isList =
      Array.isArray(value) &&
      value.every(
        (each) =>
          typeof each === "string" && PROTOCOL.test(each) && !/^(?:h2c|http)(?:\/|$)/i.test(each),
      );
    return isList ? undefined : 'use an array of protocols other than HTTP, such as ["websocket"]';
  },
};

const OF_CONNECTION = "belongs to one connection or to the framing; leave it out";

export const forwardableNames: Kind<readonly string[]> = {
  name: "names",
  check(value) {
    const wrong = checkNames(value);
    if (wrong !== undefined) return wrong;
    const name = (value as string[]).find((each) => REQUEST_DERIVED.has(each));
    return name && `"${name}" ${OF_CONNECTION}`;
  },
};

/** Fields of the upstream request, by name; `null` deletes one. */
export const fields: Kind<Readonly<Record<string, string | null>>> = {
  name: "fields",
  check(value) {
    if (!isRecord(value)) return 'use an object such as { "x-name": "value" }';
    for (const name of Object.keys(value)) {
      if (!TOKEN.test(name)) return `${quoteInput(name)} is not a field name`;
      if (REQUEST_DERIVED.has(name)) {
        if (name.toLowerCase() === "host") return "set Host by the `host` option";
        return `"${name}" ${OF_CONNECTION}`;
      }
      const each = value[name];
      if (each !== null && (typeof each !== "string" || !FIELD_VALUE.test(each))) {
        return `"${name}" is of type ${typeof each}: use a string without control characters, or null to delete the field`;
      }
    }
    return undefined;
  },
};

/** An object whose values are texts that match `form`; for use in `either`. */
export function map(form: RegExp): Kind<Readonly<Record<string, string>>> {
  const test = (value: unknown): boolean =>
    isRecord(value) &&
    Object.values(value).every((each) => typeof each === "string" && form.test(each));
  return define(test, "", "map");
}

const replacements = map(/^/);
/** A map of regular expressions to their replacements; for use in `either`. */
export const patterns: Kind<Readonly<Record<string, string>>> = {
  name: "map",
  // If the value is a map of strings and the check fails, one of its regular expressions is wrong.
  contains: (value) => replacements.check(value) === undefined,
  check(value) {
    const wrong = replacements.check(value);
    if (wrong !== undefined) return wrong;
    try {
      for (const pattern of Object.keys(value as object)) new RegExp(pattern);
    } catch (error) {
      return (error as Error).message;
    }
    return undefined;
  },
};

/** An object whose properties are options, such as the value of `retry`. */
export function record(members: Table, fix = ""): Kind<object> {
  return {
    members,
    contains: isRecord,
    check(value) {
      if (!isRecord(value)) return fix;
      const [name, wrong] = findWrong(value, members) ?? [];
      return wrong && `${name}: ${wrong}`;
    },
  };
}

/** Any value that passes a test. */
export function object<T>(test: (value: unknown) => boolean, fix: string): Kind<T> {
  return define(test, fix);
}

/** A value of one of several kinds. */
export function either<Types extends unknown[]>(
  fix: string,
  ...parts: { [Index in keyof Types]: Kind<Types[Index]> }
): Kind<Types[number]> {
  return {
    parts,
    check(value) {
      for (const part of parts as Kind<never>[]) {
        const wrong = part.check(value);
        if (wrong === undefined) return undefined;
        if (part.contains?.(value)) return wrong;
      }
      return fix;
    },
  };
}
