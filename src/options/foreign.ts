/** Explains what to write instead of an option of another library, or of an option in the wrong place. */
import { poolSchema } from "./pooloptions.ts";
import { proxySchema } from "./proxyoptions.ts";
import type { Table } from "./schema.ts";

/** Options of other libraries whose value is a connection pool. */
const AGENTS: ReadonlySet<string> = new Set(["agent", "httpAgent", "httpsAgent", "dispatcher"]);

/** Names that are no options of `proxyFetch`, because they belong elsewhere, and what to do instead. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ["ws", "WebSockets are tunnelled without one (`upgrades`); on Node, call `proxy.attach(server)`"],
  ["target", "pass it as the second argument"],
  ["pool", "it is createProxy's; pass `transport: createTransport(…)` instead, made once"],
]);

/**
 * Explains what to write instead of a name that is not an option of a proxy.
 * @returns undefined for a name that is not known at all
 */
export function explainToProxy(name: string, value: unknown): string | undefined {
  if (AGENTS.has(name)) {
    return value === false
      ? `connections are kept here; write ${inPool("keepAlive: false")} for one a request`
      : `connections are kept without one; write ${inPool("…")} to change how`;
  }
  const elsewhere = ELSEWHERE.get(name);
  if (elsewhere !== undefined) return elsewhere;
  const ours = findName(name, poolSchema);
  if (ours === undefined) return undefined;
  const what = ours === name ? "it is" : `it is called \`${ours}\` here,`;
  return `${what} an option of the connections; write ${inPool(ours)}`;
}

/**
 * Explains what to write instead of a name that is not an option of a pool.
 * @returns undefined for a name that is not known at all
 */
export function explainToPool(name: string): string | undefined {
  const ours = findName(name, poolSchema);
  if (ours !== undefined) return `it is called \`${ours}\` here`;
  if (AGENTS.has(name)) return "the pool is the agent; leave it out";
  if (!Object.hasOwn(proxySchema, name)) return undefined;
  return "it is an option of the proxy; pass it to createProxy() or proxyFetch()";
}

function inPool(options: string): string {
  return `\`createProxy({ pool: { ${options} } })\`, or \`transport: createTransport({ ${options} })\``;
}

/** Finds the name of an option in `table` by that name, or by its name in another library. */
function findName(name: string, table: Table): string | undefined {
  if (Object.hasOwn(table, name)) return name;
  return Object.keys(table).find((each) => table[each]?.aliases?.includes(name));
}
