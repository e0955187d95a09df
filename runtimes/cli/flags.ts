import { defaults } from "../../src/options/options.ts";
import { poolDefaults } from "../../src/options/pool.ts";
import type { Entry } from "./entry.ts";
import { poolFlags } from "./pool.ts";
import { proxyFlags } from "./proxy.ts";
import { asNumberFrom, asSwitch, asText, milliseconds } from "./read.ts";

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
  stats: boolean;
  help: boolean;
  version: boolean;
}

export const commandDefaults: Readonly<Command> = {
  port: 3000,
  host: "127.0.0.1",
  stopTimeout: 10_000,
  demo: false,
  stats: false,
  help: false,
  version: false,
};

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
  stats: {
    group: "Other",
    help: "print connection counters at the end; SIGUSR1 always does",
    read: asSwitch,
  },
  help: { group: "Other", short: "h", help: "show this", read: asSwitch },
  version: { group: "Other", short: "v", help: "show the version", read: asSwitch },
};

function toFlags(scope: Scope, entries: Record<string, Entry>, fallbacks: object): Flag[] {
  return Object.entries(entries).map(([option, entry]) =>
    Object.assign({}, entry, {
      scope,
      option,
      name: entry.name ?? option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
      fallback: toFallback((fallbacks as Record<string, unknown>)[option]),
    }),
  );
}

/** What the help shows: lists as they are typed; of other defaults that are objects, that they are on. */
function toFallback(preset: unknown): Flag["fallback"] {
  if (Array.isArray(preset)) return preset.join(",");
  return typeof preset === "object" ? true : (preset as Flag["fallback"]);
}

/** Every flag there is. */
export const flags: readonly Flag[] = [
  ...toFlags("command", commandFlags, commandDefaults),
  ...toFlags("proxy", proxyFlags, defaults),
  ...toFlags("pool", poolFlags, poolDefaults),
];
