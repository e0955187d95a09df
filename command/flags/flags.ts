import { poolSchema, type Check, type Table } from "#fetchway/options";
import type { Flags, FlagText } from "./flagtable.ts";
import {
  clientLimitFlags,
  lineSchema,
  listenFlags,
  otherFlags,
  recordFlags,
  reportFlags,
  routeFlags,
  securityFlags,
  serverSchema,
} from "./commandoptions.ts";
import {
  forwardingFlags,
  headerFlags,
  limitFlags,
  observationFlags,
  pathFlags,
  poolFlags,
  repeatFlags,
  rewriteFlags,
} from "./proxyflags.ts";
import { mirrorFlags } from "./mirrorflags.ts";
import { type Form, formOf } from "./read.ts";
import { balanceFlags, balanceSchema, routeSchema } from "./severalupstreams.ts";
import { streamFlags } from "./streamflags.ts";

/**
 * The group of the option that a flag sets: the command line itself, the server, `balance`, the proxy, or the proxy's pool.
 */
export type FlagGroup = "line" | "server" | "balance" | "proxy" | "pool";

/** A flag of the command line. */
export interface Flag extends Form {
  readonly scope: FlagGroup;
  readonly option: string;
  /** The heading in the help. */
  readonly heading: string;
  readonly name: string;
  readonly short?: string;
  readonly help: string;
  readonly check: Check;
  readonly instead?: string;
  /**
   * The words, besides `true` and `false`, that count as the flag's value if they follow the flag, although it needs no value.
   */
  readonly choices: readonly string[];
  /** The default as the help shows it. */
  readonly fallback: string | number | boolean | undefined;
}

/** Every group of flags, in the order of the help. */
const GROUPS: readonly [FlagGroup, Table, Flags<Record<string, never>>][] = [
  ["line", lineSchema, routeFlags],
  ["server", serverSchema, listenFlags],
  ["server", serverSchema, securityFlags],
  ["server", serverSchema, clientLimitFlags],
  ["balance", balanceSchema, balanceFlags],
  ["proxy", routeSchema, headerFlags],
  ["proxy", routeSchema, forwardingFlags],
  ["proxy", routeSchema, pathFlags],
  ["proxy", routeSchema, rewriteFlags],
  ["proxy", routeSchema, limitFlags],
  ["proxy", routeSchema, repeatFlags],
  ["proxy", routeSchema, streamFlags],
  ["proxy", routeSchema, mirrorFlags],
  ["proxy", routeSchema, observationFlags],
  ["pool", poolSchema, poolFlags],
  ["server", serverSchema, reportFlags],
  ["server", serverSchema, recordFlags],
  ["line", lineSchema, otherFlags],
];

function toFlag(
  scope: FlagGroup,
  heading: string,
  option: string,
  { kind, default: preset }: Table[string],
  { optional: choices = [], ...text }: FlagText,
): Flag {
  const form = formOf(kind);
  if (form === undefined) throw new Error(`no flag can express ${option}`);
  const name = option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  // The command line's own flags, such as `--demo`, are off by default, so `--no-demo` would have no effect.
  const negatable = form.negatable && scope !== "line";
  const { check } = kind;
  const fallback = toFallback(preset);
  const { value, ...reading } = form;
  return {
    ...reading,
    ...(choices.length === 0 && value !== undefined && { value }),
    scope,
    heading,
    option,
    name,
    check,
    choices,
    fallback,
    ...text,
    negatable,
  };
}

/** Returns a default as the help shows it: a list as it is typed, and `true` (which means on) for any other object. */
function toFallback(preset: unknown): Flag["fallback"] {
  if (Array.isArray(preset)) return preset.join(",");
  return typeof preset === "object" ? true : (preset as Flag["fallback"]);
}

export const flags: readonly Flag[] = GROUPS.flatMap(([scope, table, { heading, flags: group }]) =>
  Object.entries(group as Record<string, string | FlagText>).map(([option, text]) =>
    toFlag(
      scope,
      heading,
      option,
      table[option] as Table[string],
      typeof text === "string" ? { help: text } : text,
    ),
  ),
);
