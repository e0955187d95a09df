/**
 * What a config file may contain in addition to the options of a proxy itself: durations and sizes as texts, such as
 * `timeout: "10s"`, and options that are `undefined`, such as `host: process.env.HOST`.
 */
import { isRecord, type Kind, poolSchema, type Table, upstreamSchema } from "#fetchway/options";
import { serverSchema } from "../flags/commandoptions.ts";
import { isDoubtful, parseDuration, parseSize } from "../flags/duration.ts";
import { routeSchema } from "../flags/severalupstreams.ts";

type OnDoubt = (warning: string) => void;

const routeTable: Table = {
  ...routeSchema,
  pool: groupOf(poolSchema),
  balance: groupOf(upstreamSchema),
};
const configTable: Table = { ...routeTable, server: groupOf(serverSchema) };

function groupOf(members: Table): Table[string] {
  return { kind: { members, check: () => undefined } };
}

/**
 * Returns a config with milliseconds in place of durations, with bytes in place of sizes, and without the options that are
 * `undefined`, so that their defaults apply. All other values stay as they are, whether valid or not.
 * @param onDoubt called with a warning about each number that is probably meant in seconds
 */
export function normalizeConfig(config: unknown, onDoubt: OnDoubt = () => {}): unknown {
  const read = readMembers(config, configTable, "", onDoubt);
  if (!isRecord(read) || !Array.isArray(read["routes"])) return read;
  const routes = read["routes"].map((route: unknown, index) =>
    readMembers(route, routeTable, `routes[${index}].`, onDoubt),
  );
  return { ...read, routes };
}

/** @param label the text before the option names in warnings, such as `pool.` */
function readMembers(options: unknown, table: Table, label: string, onDoubt: OnDoubt): unknown {
  if (!isRecord(options)) return options;
  const read = Object.entries(options).flatMap(([name, value]): [string, unknown][] => {
    const kind = Object.hasOwn(table, name) ? table[name]?.kind : undefined;
    if (kind === undefined) return [[name, value]];
    return value === undefined ? [] : [[name, readValue(value, kind, name, label, onDoubt)]];
  });
  const isUnchanged =
    read.length === Object.keys(options).length &&
    read.every(([name, value]) => value === options[name]);
  // If no value has changed, return the object itself: a copy would lose its prototype, which a target that is an app needs.
  return isUnchanged ? options : Object.fromEntries(read);
}

function readValue(
  value: unknown,
  { name, members, parts = [] }: Kind<never>,
  option: string,
  label: string,
  onDoubt: OnDoubt,
): unknown {
  if (members !== undefined) return readMembers(value, members, `${label}${option}.`, onDoubt);
  if (name === "milliseconds") {
    if (typeof value === "string") return parseDuration(value) ?? value;
    if (typeof value === "number" && isDoubtful(option, value)) {
      onDoubt(`${label}${option}: ${value} is ${value} ms; for seconds write "${value}s"`);
    }
  }
  if (name === "bytes" && typeof value === "string") return parseSize(value) ?? value;
  for (const part of parts) {
    const read = readValue(value, part, option, label, onDoubt);
    if (read !== value) return read;
  }
  return value;
}
