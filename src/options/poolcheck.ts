/**
 * The checks of pool options, and the errors that name them. Only the runtimes on which a proxy has its own connections
 * import this file, so that other bundles contain no option of a pool.
 */
import { assertOptions, type Explain, isRecord } from "../schema/schema.ts";
import { explainOtherLibrary } from "./otherlibraries.ts";
import { type PoolOptions, poolSchema } from "./pooloptions.ts";
import { proxySchema } from "./proxyoptions.ts";

/** Options of other libraries whose value is a connection pool. */
const AGENTS = /^(?:agent|https?Agent)$/;

/**
 * Checks that every option of a pool exists and has a value of the right kind.
 * @throws TypeError that names the option and the fix
 */
export function checkPoolOptions(options: PoolOptions): void {
  if (!isRecord(options)) {
    throw new TypeError(
      "fetchway: the options of a pool must be an object such as { maxSockets: 50 }",
    );
  }
  assertOptions(options, poolSchema, explainToPool);
}

/** Explains what to write instead of a name that is not an option of a proxy, on runtimes where a proxy has a pool. */
export const explainWherePooled: Explain = (name, value) =>
  explainOtherLibrary(name) ?? explainConnections(name, value);

/** Explains names that concern connections: `pool` itself, options of other libraries that take an agent, and pool options. */
function explainConnections(name: string, value: unknown): string | undefined {
  if (name === "pool")
    return "it is an option of createProxy; pass `transport: createTransport(…)`, made once";
  if (AGENTS.test(name)) {
    return value === false
      ? `connections are reused by default; for a new one for each request, write ${inPool("keepAlive: false")}`
      : `connections are reused by default; to configure them, write ${inPool("…")}`;
  }
  const ours = findPoolOption(name);
  if (ours === undefined) return undefined;
  const what = ours === name ? "it is" : `it is called \`${ours}\` here,`;
  return `${what} an option of the connections; write ${inPool(ours)}`;
}

/** Explains what to write instead of a name that is not an option of a pool. */
function explainToPool(name: string): string | undefined {
  const ours = findPoolOption(name);
  if (ours !== undefined) return `it is called \`${ours}\` here`;
  if (AGENTS.test(name)) return "the pool is the agent; leave it out";
  if (name === "dispatcher") return explainOtherLibrary(name);
  if (!Object.hasOwn(proxySchema, name)) return undefined;
  return "it is an option of the proxy; pass it to createProxy() or proxyFetch()";
}

function inPool(options: string): string {
  return `\`createProxy({ pool: { ${options} } })\`, or \`transport: createTransport({ ${options} })\``;
}

/** Returns the name of the pool option that has this name here or in another library; undefined if there is none. */
function findPoolOption(name: string): string | undefined {
  if (Object.hasOwn(poolSchema, name)) return name;
  const options = Object.entries(poolSchema) as [string, { aliases?: readonly string[] }][];
  return options.find(([, { aliases }]) => aliases?.includes(name))?.[0];
}
