/** Durations in a config file, such as `timeout: "10s"`, for which the options of a proxy have numbers only. */
import {
  isRecord,
  type Kind,
  poolSchema,
  proxySchema,
  type Table,
  upstreamSchema,
} from "#fetchway/options";
import { serverSchema } from "../flags/commandoptions.ts";
import { parseDuration } from "../flags/duration.ts";

const routeTable: Table = {
  ...proxySchema,
  pool: groupOf(poolSchema),
  balance: groupOf(upstreamSchema),
};
const configTable: Table = { ...routeTable, server: groupOf(serverSchema) };

function groupOf(members: Table): Table[string] {
  return { kind: { members, check: () => undefined } };
}

/** Returns a config with milliseconds in place of durations. All other values stay as they are, whether valid or not. */
export function readDurations(config: unknown): unknown {
  const read = readMembers(config, configTable);
  if (!isRecord(read) || !Array.isArray(read["routes"])) return read;
  const routes = read["routes"].map((route: unknown) => readMembers(route, routeTable));
  return { ...read, routes };
}

function readMembers(options: unknown, table: Table): unknown {
  if (!isRecord(options)) return options;
  const entries = Object.entries(options).map(([name, value]) => {
    const kind = Object.hasOwn(table, name) ? table[name]?.kind : undefined;
    return [name, kind === undefined ? value : readValue(value, kind)] as const;
  });
  // An object without durations is returned itself, because it may be more than its own members, as an app is.
  return entries.some(([name, value]) => value !== options[name])
    ? Object.fromEntries(entries)
    : options;
}

function readValue(value: unknown, { name, members, parts = [] }: Kind<never>): unknown {
  if (members !== undefined) return readMembers(value, members);
  if (name === "milliseconds" && typeof value === "string") return parseDuration(value) ?? value;
  for (const part of parts) {
    const read = readValue(value, part);
    if (read !== value) return read;
  }
  return value;
}
