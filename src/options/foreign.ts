import type { PoolOptions } from "./pool.ts";

/** The options of a pool, each with the names that agentkeepalive, Node's `Agent` and undici have for it. */
const POOL_NAMES: Readonly<Record<keyof PoolOptions, readonly string[]>> = {
  maxSockets: ["connections"],
  maxFreeSockets: [],
  maxTotalFreeSockets: [],
  freeSocketTimeout: ["freeSocketKeepAliveTimeout", "keepAliveTimeout"],
  timeout: [],
  socketTTL: ["socketActiveTTL", "clientTtl"],
  connectTimeout: [],
  maxQueued: [],
  queueTimeout: [],
  keepAlive: [],
  keepAliveInitialDelay: ["keepAliveMsecs"],
  noDelay: [],
  dns: ["lookup"],
  reuseBuffers: [],
  http2: ["allowH2"],
  tls: [],
  socketPath: [],
};

/** Options that hold a whole pool of somebody else's. */
const AGENTS: ReadonlySet<string> = new Set(["agent", "httpAgent", "httpsAgent", "dispatcher"]);

/**
 * What to write instead of an option of a pool that was given to a proxy.
 * @returns undefined for one that no pool has under any name
 */
export function explainToProxy(name: string, value: unknown): string | undefined {
  if (AGENTS.has(name)) {
    return value === false
      ? `connections are kept here; write ${inPool("keepAlive: false")} for one a request`
      : `connections are kept without one; write ${inPool("…")} to change how`;
  }
  const ours = ourNameOf(name);
  if (ours === undefined) return undefined;
  const what = ours === name ? "it is" : `it is called \`${ours}\` here,`;
  return `${what} an option of the connections; write ${inPool(ours)}`;
}

/**
 * What to write instead of an option that a pool does not have.
 * @param proxyOptions the names of a proxy's options
 * @returns undefined for a name that is not known
 */
export function explainToPool(name: string, proxyOptions: readonly string[]): string | undefined {
  const ours = ourNameOf(name);
  if (ours !== undefined) return `it is called \`${ours}\` here`;
  if (AGENTS.has(name)) return "the pool is the agent; leave it out";
  if (!proxyOptions.includes(name)) return undefined;
  return "it is an option of the proxy; pass it to createProxy() or proxyFetch()";
}

function inPool(options: string): string {
  return `\`createProxy({ pool: { ${options} } })\`, or \`transport: createTransport({ ${options} })\``;
}

function ourNameOf(name: string): string | undefined {
  if (Object.hasOwn(POOL_NAMES, name)) return name;
  return Object.entries(POOL_NAMES).find(([, theirs]) => theirs.includes(name))?.[0];
}
