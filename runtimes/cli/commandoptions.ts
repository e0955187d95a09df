/** The options of the command itself, in the same form as those of a proxy. */
import { text, toggle, whole } from "../../src/options/kinds.ts";
import { defaultsOf, type Flags, type Schema } from "../../src/options/schema.ts";

/** The options about the server that the command starts. */
interface ListenOptions {
  port?: number;
  host?: string;
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

/** The options about what the command does beside forwarding. */
interface OtherOptions {
  demo?: boolean;
  stats?: boolean;
  help?: boolean;
  version?: boolean;
}

export const otherSchema: Schema<OtherOptions, keyof OtherOptions> = {
  demo: { kind: toggle, default: false },
  stats: { kind: toggle, default: false },
  help: { kind: toggle, default: false },
  version: { kind: toggle, default: false },
};

export const otherFlags: Flags<OtherOptions> = {
  heading: "Other",
  flags: {
    demo: "start a small upstream, where no target is given",
    stats: "print connection counters at the end; SIGUSR1 always does",
    help: { short: "h", help: "show this" },
    version: { short: "v", help: "show the version" },
  },
};

/** The options of the command, with defaults for those that were not given. */
export type Command = Required<ListenOptions & OtherOptions>;

export const commandDefaults: Readonly<Command> = {
  ...defaultsOf(listenSchema),
  ...defaultsOf(otherSchema),
};
