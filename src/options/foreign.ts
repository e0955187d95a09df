/** Explains what to write instead of an option of another library, or of an option in the wrong place. */
import { poolSchema } from "./pooloptions.ts";
import { proxySchema } from "./proxyoptions.ts";
import type { Table } from "./schema.ts";

/** Options of other libraries whose value is a connection pool. */
const AGENTS = /^(?:agent|https?Agent|dispatcher)$/;

/** Groups of names that are no options, separated by spaces, each with what to write instead. */
export type ForeignNames = readonly (readonly [names: string, fix: string])[];

/**
 * Names that are no options of `proxyFetch`, because they belong elsewhere or are another library's. All entries have
 * these; Workers get no more, because each name adds to the code that they load.
 */
const ELSEWHERE: ForeignNames = [
  ["ws", "WebSockets are tunnelled without one (`upgrades`); on Node, call `proxy.attach(server)`"],
  ["target", "pass it as the second argument"],
  ["pool", "it is createProxy's; pass `transport: createTransport(…)`, made once"],
  ["customFetch", "write `fetch`"],
  ["redirect", "write `followRedirects`"],
  [
    "raw body cache credentials duplex fetchOptions integrity keepalive method mode referrer referrerPolicy window",
    "pass `new Request(request, …)`",
  ],
  ["propagateAbortError strictConnectionProcessing", "leave it out"],
];

/** Returns what to write instead of a name of `table`; undefined for any other name. */
export function findFix(name: string, table: ForeignNames): string | undefined {
  return table.find(([names]) => names.split(" ").includes(name))?.[1];
}

/**
 * Explains what to write instead of a name that is not an option of a proxy.
 * @returns undefined for a name that is not known at all
 */
export function explainToProxy(name: string, value: unknown): string | undefined {
  if (AGENTS.test(name)) {
    return value === false
      ? `connections are kept here; write ${inPool("keepAlive: false")} for one a request`
      : `connections are kept without one; write ${inPool("…")} to change how`;
  }
  const fix = findFix(name, ELSEWHERE);
  if (fix) return fix;
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
  if (AGENTS.test(name)) return "the pool is the agent; leave it out";
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
