import { createFetchTransport, STANDARD } from "./fetch.ts";
import type { ForwardedStyle } from "./forwarded.ts";
import { NameSet, REQUEST_ASSERTIONS, REQUEST_DROPPED } from "./headers.ts";
import { defaults, type ProxyOptions } from "./options.ts";
import type { HeaderList, Transport } from "./transport.ts";

/** Rewrites path and query of a request. */
export type PathRewrite = (path: string, request: () => Request) => string | Promise<string>;

/** Options, checked and compiled once, so that what is not used costs nothing per request. */
export interface Plan {
  readonly options: ProxyOptions;
  /** Fields dropped from an untrusted peer's request, and from a trusted one's. */
  readonly dropped: NameSet;
  readonly droppedIfTrusted: NameSet;
  /** Fields that stay although they are in `dropped`. */
  readonly kept: NameSet | undefined;
  /** Fields not to send although this proxy adds them; undefined if none. */
  readonly overridden: NameSet | undefined;
  /** The fields of `headers`. */
  readonly added: HeaderList;
  readonly forwarded: ForwardedStyle;
  readonly trusts: (address: string | undefined) => boolean;
  readonly rewrite: PathRewrite | undefined;
  readonly keepHost: boolean;
  readonly timeout: number;
  readonly idleTimeout: number;
  readonly transport: Transport;
}

const ADDED_BY_PROXY = new NameSet([...REQUEST_ASSERTIONS, "via"]);

/**
 * Checks options and compiles them.
 * @param transportFor the runtime's own transport, for these options
 * @throws TypeError that names the option and the fix
 */
export function compile(
  options: ProxyOptions,
  transportFor: (options: ProxyOptions) => Transport,
): Plan {
  checkOptions(options);
  const transport =
    options.transport ??
    (options.fetch
      ? createFetchTransport({ name: "fetch", capabilities: STANDARD, fetch: options.fetch })
      : transportFor(options));
  const xfwd = options.xfwd ?? defaults.xfwd;
  const headers = Object.entries(options.headers ?? {});
  const unwanted = [...(options.filterHeaders ?? []), ...headers.map(([name]) => name)];
  const filtered = new NameSet(unwanted);
  const dropped = [...REQUEST_DROPPED, ...unwanted];
  const plan: Plan = {
    options,
    dropped: new NameSet([...dropped, ...REQUEST_ASSERTIONS]),
    droppedIfTrusted: new NameSet(dropped),
    kept:
      options.forwardHeaders &&
      new NameSet(options.forwardHeaders.filter((name) => !filtered.has(name))),
    overridden: unwanted.some((name) => ADDED_BY_PROXY.has(name)) ? filtered : undefined,
    added: headers.flatMap(([name, value]) => (value === null ? [] : [name, value])),
    forwarded: xfwd === "forwarded" ? "forwarded" : xfwd ? "x-forwarded" : "none",
    trusts: compileTrust(options.trustProxy ?? defaults.trustProxy),
    rewrite: compileRewrite(options),
    keepHost: !(options.changeOrigin ?? defaults.changeOrigin),
    timeout: options.timeout ?? defaults.timeout,
    idleTimeout: options.idleTimeout ?? defaults.idleTimeout,
    transport,
  };
  if ((plan.keepHost || options.host !== undefined) && !transport.capabilities.host) {
    const option = plan.keepHost ? "changeOrigin: false" : "host";
    throw bad(option, `the ${transport.name} client cannot set Host; leave the option out`);
  }
  return plan;
}

function compileTrust(
  trust: boolean | ((address: string) => boolean),
): (address: string | undefined) => boolean {
  if (typeof trust === "boolean") return () => trust;
  return (address) => address !== undefined && trust(address);
}

function compileRewrite({ stripPrefix, pathRewrite }: ProxyOptions): PathRewrite | undefined {
  const prefix = stripPrefix?.replace(/\/$/, "");
  const strip = prefix ? (path: string): string => stripped(path, prefix) : undefined;
  if (pathRewrite === undefined) return strip;
  if (typeof pathRewrite === "function") {
    return (path, request) => pathRewrite(strip ? strip(path) : path, request());
  }
  const rules = Object.entries(pathRewrite).map(
    ([pattern, replacement]) => [new RegExp(pattern), replacement] as const,
  );
  return (path) => {
    let result = strip ? strip(path) : path;
    for (const [pattern, replacement] of rules) result = result.replace(pattern, replacement);
    return result;
  };
}

function stripped(path: string, prefix: string): string {
  if (!path.startsWith(prefix)) return path;
  const rest = path.slice(prefix.length);
  if (rest === "" || rest[0] === "?") return `/${rest}`;
  return rest[0] === "/" ? rest : path;
}

type Check = (value: unknown) => string | undefined;

const isBoolean: Check = (value) => (typeof value === "boolean" ? undefined : "use true or false");
const isFunction: Check = (value) => (typeof value === "function" ? undefined : "use a function");
/** Beyond 2^31 - 1 a timer fires at once. */
const isMilliseconds: Check = (value) =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31
    ? undefined
    : "use whole milliseconds, 0 for no limit";
const isBytes: Check = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? undefined : "use a number of bytes";

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/;
/** What a field value may not hold (RFC 9110 §5.5); bytes above 0x7f are opaque. */
// oxlint-disable-next-line no-control-regex
const FIELD_VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;
const unforwardable = new NameSet(REQUEST_DROPPED.filter((name) => name !== "proxy-authorization"));

const isNames: Check = (value) => {
  if (!Array.isArray(value)) return 'use an array of field names, such as ["cookie"]';
  const wrong = value.find((name) => typeof name !== "string" || !TOKEN.test(name));
  return wrong === undefined ? undefined : `${JSON.stringify(wrong)} is no field name`;
};

const isForwardable: Check = (value) => {
  const wrong = isNames(value);
  if (wrong) return wrong;
  const name = (value as string[]).find((each) => unforwardable.has(each));
  return name && `"${name}" belongs to one connection (RFC 9110 §7.6.1); leave it out`;
};

const isFields: Check = (value) => {
  if (
    typeof value !== "object" ||
    value === null ||
    Array.isArray(value) ||
    value instanceof Headers
  ) {
    return 'use an object such as { "x-name": "value" }';
  }
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

const isTransport: Check = (value) =>
  typeof (value as Transport | null)?.send === "function"
    ? undefined
    : "use what createTransport() returned";

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
  trustProxy: (value) =>
    typeof value === "boolean" || typeof value === "function"
      ? undefined
      : "use true, false or a predicate on the peer's address",
  clientAddress: isFunction,
  via: (value) =>
    value === false || (typeof value === "string" && TOKEN.test(value))
      ? undefined
      : "use a pseudonym of token characters, or false",
  stripPrefix: (value) =>
    typeof value === "string" && value.startsWith("/") ? undefined : 'use a path such as "/api"',
  pathRewrite: (value) => {
    if (typeof value === "function") return undefined;
    if (typeof value !== "object" || value === null) return "use a map of patterns or a function";
    try {
      for (const pattern of Object.keys(value)) new RegExp(pattern);
    } catch (error) {
      return (error as Error).message;
    }
    return undefined;
  },
  timeout: isMilliseconds,
  connectTimeout: isMilliseconds,
  idleTimeout: isMilliseconds,
  bodyLimit: isBytes,
  onRequest: isFunction,
  onResponse: isFunction,
  onError: isFunction,
  signal: (value) => (value instanceof AbortSignal ? undefined : "use an AbortSignal"),
  fetch: isFunction,
  transport: isTransport,
};

/** The names of all options. */
export const optionNames: readonly string[] = Object.keys(CHECKS);

function checkOptions(options: ProxyOptions): void {
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(CHECKS, name)) {
      throw bad(name, `there is no such option; there are ${optionNames.join(", ")}`);
    }
    const wrong = value === undefined ? undefined : CHECKS[name as keyof ProxyOptions](value);
    if (wrong !== undefined) throw bad(name, wrong);
  }
}

function bad(option: string, fix: string): TypeError {
  return new TypeError(`fetchway: bad option \`${option}\`: ${fix}`);
}
