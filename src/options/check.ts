import { explainToProxy } from "./foreign.ts";
import { NameSet, REQUEST_DROPPED } from "../fields/headers.ts";
import { badOption } from "./misuse.ts";
import { nearest } from "./nearest.ts";
import type { ProxyOptions } from "./options.ts";
import type { Transport } from "../transport.ts";
import { checkRange } from "../request/trust.ts";

/** Says what is wrong with a value and how to put it right; nothing for a good one. */
export type Check = (value: unknown) => string | undefined;

export const isBoolean: Check = (value) =>
  typeof value === "boolean" ? undefined : "use true or false";
const isFunction: Check = (value) => (typeof value === "function" ? undefined : "use a function");
/** Beyond 2^31 - 1 a timer fires at once. */
export const isMilliseconds: Check = (value) =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31
    ? undefined
    : "use whole milliseconds, 0 for no limit";
export const isCount: Check = (value) =>
  Number.isSafeInteger(value) && (value as number) > 0 ? undefined : "use a whole number from 1";
const isBytes: Check = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? undefined : "use a number of bytes";

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/;
/** A field's name: a token, but for `*` and a `-` at its end, by which somebody means more than one. */
const NAME = /^[!#$%&'+.^_`|~\w-]*[!#$%&'+.^_`|~\w]$/;
/** A protocol of `Upgrade`, with or without a version (RFC 9110 §7.8). */
const PROTOCOL = /^[!#$%&'*+.^_`|~\w-]+(?:\/[!#$%&'*+.^_`|~\w-]+)?$/;
/** What a field value may not hold (RFC 9110 §5.5); bytes above 0x7f are opaque. */
const FIELD_VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;
const unforwardable = new NameSet(REQUEST_DROPPED.filter((name) => name !== "proxy-authorization"));

const isNames: Check = (value) => {
  if (!Array.isArray(value)) return 'use an array of field names, such as ["cookie"]';
  const wrong = (value as unknown[]).find((name) => typeof name !== "string" || !NAME.test(name));
  return wrong === undefined ? undefined : `${JSON.stringify(wrong)} is no field name`;
};

const isForwardable: Check = (value) => {
  const wrong = isNames(value);
  if (wrong) return wrong;
  const name = (value as string[]).find((each) => unforwardable.has(each));
  return name && `"${name}" belongs to one connection (RFC 9110 §7.6.1); leave it out`;
};

/** Whether a value is an object of named values: an array has indices for names, a `Map` or `Headers` hides its own. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

const isFields: Check = (value) => {
  if (!isRecord(value)) return 'use an object such as { "x-name": "value" }';
  for (const [name, each] of Object.entries(value)) {
    if (!TOKEN.test(name)) return `${JSON.stringify(name)} is no field name`;
    if (name.toLowerCase() === "host") return "set Host by the `host` option";
    if (unforwardable.has(name)) {
      return `"${name}" belongs to one connection or to the framing; leave it out`;
    }
    if (each !== null && (typeof each !== "string" || !FIELD_VALUE.test(each))) {
      return `the value of "${name}" must be a string without control characters, or null`;
    }
  }
  return undefined;
};

/** Whether all values of a map are texts of that form. */
function isMapTo(form: RegExp, value: unknown): boolean {
  if (!isRecord(value)) return false;
  return Object.values(value).every((text) => typeof text === "string" && form.test(text));
}

/** A text for all, or a map of texts to texts. */
function isRewrite(form: RegExp, fix: string): Check {
  return (value) =>
    isMapTo(form, typeof value === "string" ? { all: value } : value) ? undefined : fix;
}

const isRetry: Check = (value) => {
  if (value === false) return undefined;
  if (!isRecord(value)) return "use false, or an object such as { attempts: 2 }";
  const [name, wrong] = findWrong(value, RETRY_CHECKS) ?? [];
  return wrong && `${name}: ${wrong}`;
};

const RETRY_CHECKS: Record<string, Check> = {
  attempts: (value) => (value === 0 ? undefined : isCount(value)),
  methods: isNames,
  statusCodes: (value) =>
    Array.isArray(value) &&
    value.every((each) => Number.isInteger(each) && each >= 400 && each <= 599)
      ? undefined
      : "use an array of statuses from 400 to 599",
  delay: isMilliseconds,
};

const areFunctions: Check = (value) =>
  Array.isArray(value) && value.every((each) => typeof each === "function")
    ? undefined
    : "use an array of functions (next) => (request, scope) => next(request, scope)";

const INTERCEPTOR_CHECKS: Record<string, Check> = { request: areFunctions, attempt: areFunctions };

const isTransport: Check = (value) => {
  const { name, capabilities, send } = (value ?? {}) as Partial<Transport>;
  const isOne = typeof name === "string" && isRecord(capabilities) && typeof send === "function";
  return isOne
    ? undefined
    : "use what createTransport() returned, or a Transport with `name`, `capabilities` and `send`";
};

const CHECKS: Record<keyof ProxyOptions, Check> = {
  headers: isFields,
  filterHeaders: isNames,
  forwardHeaders: isForwardable,
  changeOrigin: isBoolean,
  host: (value) =>
    typeof value === "string" && /^[\w.~:[\]-]+$/.test(value)
      ? undefined
      : 'use "name" or "name:port"',
  xfwd: (value) =>
    value === "forwarded" || typeof value === "boolean"
      ? undefined
      : 'use true, false or "forwarded"',
  trustProxy: (value) => {
    if (typeof value === "boolean" || typeof value === "function") return undefined;
    if (!Array.isArray(value)) {
      return "use true, false, an array of addresses and CIDR ranges, or a predicate on an address";
    }
    return Array.from(value, checkRange).find((wrong) => wrong !== undefined);
  },
  clientAddress: isFunction,
  via: (value) =>
    value === false || (typeof value === "string" && TOKEN.test(value))
      ? undefined
      : "use a pseudonym of token characters, or false",
  stripPrefix: (value) =>
    typeof value === "string" && value.startsWith("/") ? undefined : 'use a path such as "/api"',
  pathRewrite: (value) => {
    if (typeof value === "function") return undefined;
    if (!isMapTo(/^/, value)) return "use a map of patterns to strings, or a function";
    try {
      for (const pattern of Object.keys(value as object)) new RegExp(pattern);
    } catch (error) {
      return (error as Error).message;
    }
    return undefined;
  },
  timeout: isMilliseconds,
  connectTimeout: isMilliseconds,
  idleTimeout: isMilliseconds,
  followRedirects: (value) =>
    typeof value === "boolean" || (Number.isSafeInteger(value) && (value as number) >= 0)
      ? undefined
      : "use true, false or a whole number of redirects",
  redirectTargets: (value) =>
    value === "same-origin" || value === "any" || typeof value === "function"
      ? undefined
      : 'use "same-origin", "any" or a predicate on the URL',
  replayLimit: isBytes,
  retry: isRetry,
  cookieDomainRewrite: isRewrite(
    /^[\w.-]*$/,
    'use a domain such as "shop.example", "" for none, or a map of domains to such',
  ),
  // Any other would be no path to a client (RFC 6265 §5.2.4).
  cookiePathRewrite: isRewrite(
    /^(?:\/[ -+\--:<-~\u0080-\u00ff]*)?$/,
    'use a path such as "/", "" for none, or a map of paths to such',
  ),
  locationRewrite: (value) =>
    typeof value === "boolean" ||
    (isMapTo(/^[!-~\u0080-\u00ff]+$/, value) && !Object.hasOwn(value as object, ""))
      ? undefined
      : 'use true, false or a map of URL prefixes such as { "http://internal:4000/": "/" }',
  bodyLimit: isBytes,
  onRequest: isFunction,
  onInformational: isFunction,
  onResponse: isFunction,
  onError: isFunction,
  interceptors: (value) => {
    if (!isRecord(value)) return "use an object such as { attempt: [(next) => next] }";
    const [name, wrong] = findWrong(value, INTERCEPTOR_CHECKS) ?? [];
    return wrong && `${name}: ${wrong}`;
  },
  upgrades: (value) =>
    Array.isArray(value) &&
    value.every((each) => typeof each === "string" && PROTOCOL.test(each)) &&
    !value.some((each: string) => /^(?:h2c|http)(?:\/|$)/i.test(each))
      ? undefined
      : 'use an array of protocols other than HTTP, such as ["websocket"]',
  tunnelTimeout: isMilliseconds,
  signal: (value) => (value instanceof AbortSignal ? undefined : "use an AbortSignal"),
  fetch: isFunction,
  transport: isTransport,
};

/** Options of `createProxy` that `proxyFetch` has not. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  target: "pass it as the second argument",
  pool: "it is createProxy's; pass `transport: createTransport(…)` instead, made once",
};

/** The names of all options. */
export const optionNames: readonly string[] = Object.keys(CHECKS);

/**
 * Makes sure that options are there and of the right kind.
 * @throws TypeError that names the option and the fix
 */
export function checkOptions(options: ProxyOptions): void {
  if (!isRecord(options)) {
    throw new TypeError("fetchway: options must be an object such as { timeout: 5000 }");
  }
  for (const [name, fix] of Object.entries(ELSEWHERE)) {
    if (Object.hasOwn(options, name)) throw badOption(name, fix);
  }
  check(options, CHECKS, explainToProxy);
}

/**
 * Makes sure that there are such options and that each is of the right kind.
 * @param explain what to write instead of an option that others have
 * @throws TypeError that names the option and the fix
 */
export function check(
  options: object,
  checks: Record<string, Check>,
  explain: (name: string, value: unknown) => string | undefined,
): void {
  const wrong = findWrong(options, checks, explain);
  if (wrong !== undefined) throw badOption(...wrong);
}

/** The first option that is wrong, and how to put it right. `Object.hasOwn` leaves out names that every object inherits. */
function findWrong(
  options: object,
  checks: Record<string, Check>,
  explain?: (name: string, value: unknown) => string | undefined,
): [string, string] | undefined {
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(checks, name)) {
      return [name, explain?.(name, value) ?? explainUnknown(name, checks)];
    }
    const wrong = value === undefined ? undefined : checks[name]?.(value);
    if (wrong !== undefined) return [name, wrong];
  }
  return undefined;
}

function explainUnknown(name: string, checks: Record<string, Check>): string {
  const names = Object.keys(checks);
  const meant = nearest(name, names);
  const fix = meant ? `did you mean \`${meant}\`?` : `there are ${names.join(", ")}`;
  return `there is no such option; ${fix}`;
}
