/** The options of the command itself, in the same form as those of a proxy. */
import { text, toggle, whole } from "../../src/options/kinds.ts";
import { defaultsOf, type Flags, type Kind, type Schema } from "../../src/options/schema.ts";
import type { LogForm } from "./log/requestlog.ts";
import { parseAdminAddress } from "./status/adminaddress.ts";

/** The options about the server that the command starts. */
export interface ListenOptions {
  /**
   * The port to listen on; `0` takes a free one.
   * @default 3000
   */
  port?: number;
  /**
   * The address to listen on; `"0.0.0.0"` for all.
   * @default "127.0.0.1"
   */
  host?: string;
  /**
   * Milliseconds for running requests to finish on SIGTERM or Ctrl+C.
   * @default 10000
   */
  stopTimeout?: number;
}

export const listenSchema: Schema<ListenOptions, keyof ListenOptions> = {
  port: {
    kind: whole(0, "use a whole number from 0 to 65535; 0 takes a free port", 65_535),
    default: 3000,
  },
  host: { kind: text(/./, 'use an address such as "0.0.0.0"'), default: "127.0.0.1" },
  stopTimeout: {
    kind: whole(0, "use whole milliseconds", 2 ** 31 - 1, "milliseconds"),
    default: 10_000,
  },
};

export const listenFlags: Flags<ListenOptions> = {
  heading: "Listening",
  flags: {
    port: { short: "p", help: "port to listen on; 0 takes a free one" },
    host: { value: "<address>", help: "address to listen on; 0.0.0.0 for all" },
    stopTimeout: "for requests to finish on SIGTERM or Ctrl+C",
  },
};

/** The options about what the server tells. */
export interface ReportOptions {
  /**
   * Whether the counters of the connections are printed at the end.
   * @default false
   */
  stats?: boolean;
  /**
   * The form of the log: `"pretty"` for people, Apache's `"common"` or `"combined"`, `"json"`, or `"off"`; `"auto"` is pretty on
   * a terminal, and common elsewhere. Failures are printed on stderr in any case.
   * @default "auto"
   */
  log?: LogForm | "auto";
  /**
   * The port, or host and port, of the status page; without a host, on the loopback interface. Whoever can connect to it can
   * read the last requests without their queries, so give it no address that others can reach.
   */
  admin?: number | string;
}

const LOG_FORMS = ["auto", "pretty", "common", "combined", "json", "off"] as const;
const logForm: Kind<LogForm | "auto"> = {
  choices: LOG_FORMS,
  check: (value) =>
    (LOG_FORMS as readonly unknown[]).includes(value)
      ? undefined
      : `use ${LOG_FORMS.slice(0, -1).join(", ")} or ${LOG_FORMS.at(-1)}`,
};
const adminAddress: Kind<number | string> = {
  name: "text",
  check: (value) =>
    (typeof value === "number" || typeof value === "string") && parseAdminAddress(value)
      ? undefined
      : 'use a port such as 9100, or host and port such as "10.0.0.1:9100"',
};

export const reportSchema: Schema<ReportOptions, Exclude<keyof ReportOptions, "admin">> = {
  log: { kind: logForm, default: "auto" },
  admin: { kind: adminAddress },
  stats: { kind: toggle, default: false },
};

export const reportFlags: Flags<ReportOptions> = {
  heading: "Reports",
  flags: {
    log: {
      value: "<form>",
      help: "pretty, common, combined, json, off, or auto: pretty on a terminal, else common",
    },
    admin: { value: "<port>", help: "status page, metrics and health on this port, or host:port" },
    stats: "print connection counters at the end; SIGUSR1 always does",
  },
};

/** Every option of the server that the command starts: the key `server` of a config file, and flags. */
export interface ServerOptions extends ListenOptions, ReportOptions {}

/** Every option of the server. */
export const serverSchema: Schema<ServerOptions, Exclude<keyof ServerOptions, "admin">> = {
  ...listenSchema,
  ...reportSchema,
};

/** The options about where requests go, and what the command does instead of serving. They are flags only. */
interface LineOptions {
  route?: readonly string[];
  config?: string;
  demo?: boolean;
  help?: boolean;
  version?: boolean;
}

/** Texts, one for each use of the flag. */
const list: Kind<readonly string[]> = {
  name: "list",
  check: (value) =>
    Array.isArray(value) && value.every((each) => typeof each === "string")
      ? undefined
      : "use an array of strings",
};

export const lineSchema: Schema<LineOptions, "demo" | "help" | "version"> = {
  route: { kind: list },
  config: { kind: text(/./, 'use a file such as "fetchway.config.mjs"') },
  demo: { kind: toggle, default: false },
  help: { kind: toggle, default: false },
  version: { kind: toggle, default: false },
};

export const routeFlags: Flags<Pick<LineOptions, "route" | "config" | "demo">> = {
  heading: "Routes",
  flags: {
    route: {
      value: "<host/path>=<target>",
      help: "another target for a path; in quotes with flags of its own",
    },
    config: { value: "<file>", help: "read routes and options from a .mjs, .ts or .json file" },
    demo: "start a small upstream, where no target is given",
  },
};

export const otherFlags: Flags<Pick<LineOptions, "help" | "version">> = {
  heading: "Other",
  flags: {
    help: { short: "h", help: "show this" },
    version: { short: "v", help: "show the version" },
  },
};

/** The options of the server, with defaults for those that were not given. */
export type ServerSettings = Readonly<
  Required<Omit<ServerOptions, "admin">> & Pick<ServerOptions, "admin">
>;

export const serverDefaults: ServerSettings = defaultsOf(serverSchema);

/** The options of the command line itself that were given. */
export type LineSettings = Readonly<LineOptions>;
