/**
 * The hosts: servers that contain the proxy, each in its own process. The suite, the storm, the matrix, the benchmark of
 * WebSockets and the tables of the docs take their lists from here.
 */

export interface HostEntry {
  runtime: "node" | "bun" | "deno" | "workerd";
  /**
   * The HTTP client of the proxy: Fetchway's own, undici, or the runtime's `fetch`. On Workers, the client is always `fetch`,
   * but counts as `own`.
   */
  client: "own" | "undici" | "fetch";
  /** The title of the host's column in docs/; a host without a title has no column. */
  column?: string;
  /** The host with the same server and Fetchway's own client. */
  server?: HostName;
}

export type HostName =
  | "node"
  /** On srvx, without any of the proxy's fast paths. */
  | "slow"
  | "srvx"
  | "h3"
  | "hono"
  | "bun"
  | "deno"
  | "workerd"
  | ClientHost;

/** The hosts whose proxy uses another HTTP client than the default of its runtime. */
export type ClientHost =
  | "undici"
  | "undici-h3"
  | "undici-hono"
  | "fetch-node"
  | "fetch-bun"
  | "fetch-deno";

export const HOSTS: Readonly<Record<HostName, HostEntry>> = {
  node: { runtime: "node", client: "own", column: "node:http" },
  slow: { runtime: "node", client: "own" },
  srvx: { runtime: "node", client: "own", column: "srvx" },
  h3: { runtime: "node", client: "own", column: "h3" },
  hono: { runtime: "node", client: "own", column: "Hono" },
  bun: { runtime: "bun", client: "own", column: "Bun" },
  deno: { runtime: "deno", client: "own", column: "Deno" },
  workerd: { runtime: "workerd", client: "own", column: "Workers" },
  undici: { runtime: "node", client: "undici", column: "undici", server: "node" },
  "undici-h3": { runtime: "node", client: "undici", server: "h3" },
  "undici-hono": { runtime: "node", client: "undici", server: "hono" },
  "fetch-node": { runtime: "node", client: "fetch", column: "Node's fetch", server: "node" },
  "fetch-bun": { runtime: "bun", client: "fetch", column: "Bun's fetch", server: "bun" },
  "fetch-deno": { runtime: "deno", client: "fetch", column: "Deno's fetch", server: "deno" },
};

export const hostNames: readonly HostName[] = Object.keys(HOSTS) as HostName[];

/** The hosts with Fetchway's own client, and the host on Workers, where the only client is `fetch`. */
export const OWN: readonly HostName[] = hostNames.filter((name) => HOSTS[name].client === "own");

/** The hosts on Node with Fetchway's own client. */
export const ON_NODE: readonly HostName[] = OWN.filter((name) => HOSTS[name].runtime === "node");

/** The names of all hosts of the type `ClientHost`. */
export const OTHER_CLIENTS: readonly ClientHost[] = hostNames.filter(
  (name): name is ClientHost => HOSTS[name].client !== "own",
);

/** Returns each given host that has a column in docs/, with the title of that column. */
export function columnsOf<Name extends HostName>(names: readonly Name[]): [Name, string][] {
  return names.flatMap((name): [Name, string][] => {
    const { column } = HOSTS[name];
    return column === undefined ? [] : [[name, column]];
  });
}
