import { defaults, poolDefaults, type PoolOptions, type ProxyOptions } from "../../src/options.ts";
import {
  asBytes,
  asHeader,
  asNames,
  asNumber,
  asNumberFrom,
  asRewrite,
  asSwitch,
  asSwitchOrText,
  asText,
  type Read,
} from "./read.ts";

/** The headings of the help, in order. */
export const groups = ["Listening", "Headers", "Paths", "Limits", "Connections", "Other"] as const;

interface Entry {
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

/** Whose option a flag sets: the command's own, the proxy's, or its pool's. */
export type Scope = "command" | "proxy" | "pool";

/** A flag of the command line. */
export interface Flag extends Entry {
  readonly name: string;
  readonly scope: Scope;
  readonly option: string;
  readonly fallback: string | number | boolean | undefined;
}

/** What the command is told for itself. */
export interface Command {
  port: number;
  host: string;
  stopTimeout: number;
  demo: boolean;
  help: boolean;
  version: boolean;
}

export const commandDefaults: Readonly<Command> = {
  port: 3000,
  host: "127.0.0.1",
  stopTimeout: 10_000,
  demo: false,
  help: false,
  version: false,
};

/** The options that text can say: all but hooks and objects. One that is forgotten below does not compile. */
type Expressible<Options> = {
  [Name in keyof Options]-?: [Extract<Options[Name], Plain>] extends [never] ? never : Name;
}[keyof Options];
type Plain =
  | string
  | number
  | boolean
  | readonly string[]
  | Readonly<Record<string, string>>
  | Readonly<Record<string, string | null>>;

const milliseconds = asNumberFrom(0, 2 ** 31 - 1, "use whole milliseconds");
const count = asNumberFrom(1, Number.MAX_SAFE_INTEGER, "use a whole number, 1 or more");

const commandFlags: Record<keyof Command, Entry> = {
  port: {
    group: "Listening",
    short: "p",
    value: "<number>",
    help: "port to listen on; 0 takes a free one",
    read: asNumberFrom(0, 65_535, "use a whole number from 0 to 65535; 0 takes a free port"),
  },
  host: {
    group: "Listening",
    value: "<address>",
    help: "address to listen on; 0.0.0.0 for all",
    read: asText,
  },
  stopTimeout: {
    group: "Listening",
    value: "<ms>",
    help: "for requests to finish on SIGTERM or Ctrl+C",
    read: milliseconds,
  },
  demo: {
    group: "Other",
    help: "start a small upstream, where no target is given",
    read: asSwitch,
  },
  help: { group: "Other", short: "h", help: "show this", read: asSwitch },
  version: { group: "Other", short: "v", help: "show the version", read: asSwitch },
};

const proxyFlags: Record<Expressible<ProxyOptions>, Entry> = {
  headers: {
    group: "Headers",
    name: "header",
    value: '"name: value"',
    repeats: true,
    help: 'set a field of the upstream request; "name:" deletes it',
    read: asHeader,
  },
  filterHeaders: {
    group: "Headers",
    value: "<a,b>",
    repeats: true,
    help: "fields to drop from the request",
    read: asNames,
  },
  forwardHeaders: {
    group: "Headers",
    value: "<a,b>",
    repeats: true,
    help: "fields to forward although dropped by default",
    read: asNames,
  },
  changeOrigin: {
    group: "Headers",
    negatable: true,
    help: "send the target's Host, not the client's",
    read: asSwitch,
  },
  host: {
    group: "Headers",
    name: "host-header",
    value: "<name>",
    help: "send this Host",
    read: asText,
  },
  xfwd: {
    group: "Headers",
    value: "<true|false|forwarded>",
    negatable: true,
    help: "send X-Forwarded-*, nothing, or Forwarded",
    read: asSwitchOrText,
  },
  trustProxy: {
    group: "Headers",
    help: "keep the client's forwarding fields, behind your own proxy",
    read: asSwitch,
  },
  via: {
    group: "Headers",
    value: "<name>",
    help: "append this pseudonym to Via",
    read: asText,
  },
  stripPrefix: {
    group: "Paths",
    value: "</path>",
    help: "take this off the path before the target's goes in front",
    read: asText,
  },
  pathRewrite: {
    group: "Paths",
    value: '"from=to"',
    repeats: true,
    help: "rewrite the path; from is a regular expression",
    read: asRewrite,
  },
  timeout: {
    group: "Limits",
    value: "<ms>",
    help: "until the response headers; 0 waits for ever",
    read: asNumber,
  },
  connectTimeout: {
    group: "Limits",
    value: "<ms>",
    help: "to connect to the upstream",
    read: asNumber,
  },
  idleTimeout: {
    group: "Limits",
    value: "<ms>",
    help: "between two pieces of a response body",
    read: asNumber,
  },
  bodyLimit: {
    group: "Limits",
    value: "<size>",
    help: "largest request body, such as 512k or 10mb; over it 413",
    read: asBytes,
  },
};

const poolFlags: Record<Exclude<Expressible<PoolOptions>, keyof ProxyOptions>, Entry> = {
  maxSockets: {
    group: "Connections",
    value: "<number>",
    help: "connections to the target at the same time",
    read: count,
  },
  maxFreeSockets: {
    group: "Connections",
    value: "<number>",
    help: "idle connections that are kept",
    read: asNumberFrom(0, Number.MAX_SAFE_INTEGER, "use a whole number"),
  },
  freeSocketTimeout: {
    group: "Connections",
    value: "<ms>",
    help: "how long an idle connection is kept",
    read: asNumberFrom(1, 2 ** 31 - 1, "use whole milliseconds, 1 or more"),
  },
};

function toFlags(scope: Scope, entries: Record<string, Entry>, fallbacks: object): Flag[] {
  return Object.entries(entries).map(([option, entry]) =>
    Object.assign({}, entry, {
      scope,
      option,
      name: entry.name ?? option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
      fallback: (fallbacks as Record<string, Flag["fallback"]>)[option],
    }),
  );
}

/** Every flag there is. */
export const flags: readonly Flag[] = [
  ...toFlags("command", commandFlags, commandDefaults),
  ...toFlags("proxy", proxyFlags, defaults),
  ...toFlags("pool", poolFlags, poolDefaults),
];
