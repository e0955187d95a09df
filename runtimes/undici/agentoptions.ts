import { type Agent, Client, Pool } from "undici";
import { badOption } from "../../src/misuse.ts";
import { checkPoolOptions } from "../../src/options/poolcheck.ts";
import { fillPoolOptions, type PoolOptions, poolSchema } from "../../src/options/pooloptions.ts";
import { fillIn } from "../../src/schema/schema.ts";
import { defaultMaxSockets } from "../sockets/openfiles.ts";
import { checkSocketPath } from "../sockets/socketpath.ts";
import { checkTlsNames } from "../sockets/tlsnames.ts";

/**
 * Options of undici's `Agent`, except `factory`: the transport makes the pools itself, to close them and to count their
 * connections.
 */
export type AgentOptions = Omit<Agent.Options, "factory">;

/** The options that both a pool and an agent have. */
const OF_BOTH: ReadonlySet<string> = new Set(["connectTimeout", "socketPath"]);

const KEPT =
  "undici keeps every idle connection for `freeSocketTimeout`; lower that, or set `keepAlive: false`";

/**
 * The options of a pool that undici does not have. Each has the only accepted value, which is what undici does, and the fix for
 * any other value.
 */
const FIXED: { readonly [Name in keyof PoolOptions]?: readonly [PoolOptions[Name], string] } = {
  maxFreeSockets: [Infinity, KEPT],
  maxTotalFreeSockets: [Infinity, KEPT],
  timeout: [0, "undici's connections have no such limit; set `idleTimeout` of the proxy"],
  maxQueued: [Infinity, "undici's queue has no limit; leave the option out"],
  queueTimeout: [0, "undici's queue has no such limit; set `timeout` of the proxy"],
  minRate: [0, "undici's queue does not know the clients; leave the option out"],
  minRateGrace: [undefined, "undici's queue does not know the clients; leave the option out"],
  proxyProtocol: [
    undefined,
    "undici's connections carry the requests of all clients; use `fetchway` itself, or leave the option out",
  ],
  noDelay: [true, "undici always sends small writes immediately; leave the option out"],
  dns: [
    false,
    "undici looks a name up for each connection; leave the option out, or pass " +
      "`transport: createUndiciTransport(new Agent().compose(interceptors.dns()))`",
  ],
};

/**
 * Converts the options of a pool into those of undici's `Agent`, with the defaults of a pool where undici has the option.
 * @throws TypeError that names an option that undici does not have, and the fix
 */
export function toAgentOptions(options: PoolOptions = {}): AgentOptions & { connect: object } {
  checkPoolOptions(options);
  for (const [name, [only, fix]] of Object.entries(FIXED)) {
    const value = options[name as keyof PoolOptions];
    if (value !== undefined && value !== only) throw badOption(name, fix);
  }
  const filled = fillPoolOptions({
    ...options,
    maxSockets: options.maxSockets ?? defaultMaxSockets(),
  });
  const { maxSockets, keepAliveInitialDelay, tls, socketPath } = filled;
  if (tls !== undefined) checkTlsNames(tls, []);
  const wrong = checkSocketPath(socketPath);
  if (wrong !== undefined) throw badOption("socketPath", wrong);
  const connect = {
    ...tls,
    ...(socketPath === undefined ? undefined : { socketPath }),
    keepAlive: keepAliveInitialDelay > 0,
    keepAliveInitialDelay,
  };
  return {
    connections: maxSockets === Infinity ? null : maxSockets,
    // With 0, undici closes a connection after its first request.
    pipelining: filled.keepAlive ? 1 : 0,
    keepAliveTimeout: filled.freeSocketTimeout,
    clientTtl: filled.socketTTL || null,
    // HTTP/2 loses repeated fields, the case of names and the reason phrase, so it is off by default.
    allowH2: filled.http2,
    h2Options: { useH2c: filled.http2 },
    connectTimeout: filled.connectTimeout,
    connect,
  };
}

/**
 * Returns the app's options of an `Agent`, with the defaults of a pool for the options that the app has not set.
 * @throws TypeError for an option that this transport or undici refuses
 */
export function fillAgentOptions(options: AgentOptions): AgentOptions {
  const names = Object.keys(options);
  if (names.includes("factory")) {
    throw badOption("factory", "pass the agent: `createUndiciTransport(new Agent({ factory }))`");
  }
  const defaults = toAgentOptions();
  const { connect = {} } = options;
  const filled: AgentOptions = {
    ...fillIn<AgentOptions>(defaults, options),
    connect: typeof connect === "function" ? connect : fillIn(defaults.connect, connect),
  };
  const ofPool = names.find((name) => Object.hasOwn(poolSchema, name) && !OF_BOTH.has(name));
  if (ofPool !== undefined) {
    throw badOption(ofPool, "it is an option of a pool; write `createTransport({ … })` for one");
  }
  try {
    // An agent checks its options only with the first request. Constructing these two classes checks them now, and opens no
    // connection.
    for (const Class of [Pool, Client]) void new Class("http://localhost", filled);
  } catch (error) {
    const message = `fetchway: undici refuses these options of an agent: ${(error as Error).message}`;
    throw new TypeError(message, { cause: error });
  }
  return filled;
}
