import type { LookupAddress, LookupOptions } from "node:dns";
import type { Agent, AgentOptions } from "node:http";
import type { Socket as RawSocket } from "node:net";
import { ProxyError } from "../../src/error.ts";
import type {
  ResolvedAddress,
  Connector,
  ConnectScope,
  Destination,
  NameUser,
  Socket,
} from "../../src/http1/connector.ts";
import type { FilledPoolOptions } from "../../src/options/pooloptions.ts";
import { badOption } from "../../src/misuse.ts";
import { badTarget, type Upstream } from "../../src/target/target.ts";
import { Deadline } from "../../src/transport/deadline.ts";
import { Resolver } from "./dns.ts";
import { MemoryReader, NetSocket, type WatchReads } from "./netsocket.ts";
import { checkSocketPath } from "./socketpath.ts";
import { checkTlsNames } from "./tlsnames.ts";
import { sessionOptions } from "./tlssessions.ts";
import { removeMarks } from "./tlstexts.ts";

type AgentModule = { Agent: new (options: AgentOptions) => Agent };
type LookupCallback = (
  error: Error | null,
  address: string | LookupAddress[],
  family?: number,
) => void;

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): AgentModule };
};

/** The maximum number of milliseconds to connect to one of several addresses. The last address gets all remaining time. */
const ATTEMPT_TIMEOUT = 1000;

/** How a runtime sets up its sockets without TLS. */
export interface SocketParts {
  /**
   * Returns the memory into which a socket reads. All sockets may share it: each chunk is copied before the next read.
   * Undefined where the runtime allocates memory for each read.
   */
  readonly takeMemory?: (() => Uint8Array | undefined) | undefined;
  /** Finds out whether other code sees a chunk; undefined where the memory of chunks is never freed. */
  readonly watchReads?: WatchReads | undefined;
  /** Whether a socket stays writable after the upstream has closed its direction: a write then detects a reset. */
  readonly allowHalfOpen?: boolean;
  /** The TLS options that only this runtime has. */
  readonly tlsNames?: readonly string[];
}

const NO_PARTS: SocketParts = {};

/** Makes a socket that starts to connect. */
type CreateSocket = (options: object) => RawSocket;

/** Opens connections with `node:net` and `node:tls`, which Node, Bun and Deno have. */
export class NetConnector implements Connector {
  readonly #options: FilledPoolOptions;
  readonly #parts: SocketParts;
  /** The resolver of names; undefined if the runtime resolves them for each connection. */
  readonly #resolver: Resolver | undefined;
  /** The functions that make sockets, by destination. */
  readonly #creators: WeakMap<Destination, CreateSocket> = new WeakMap();

  /** @throws TypeError for a name server that is not an IP address, an unknown TLS option, and a socket path that is too long */
  constructor(options: FilledPoolOptions, parts: SocketParts = {}) {
    const { dns, socketPath, tls } = options;
    this.#options = options;
    this.#parts = parts;
    const wrong = checkSocketPath(socketPath);
    if (wrong !== undefined) throw badOption("socketPath", wrong);
    if (tls !== undefined) checkTlsNames(tls, parts.tlsNames ?? []);
    this.#resolver = dns === false ? undefined : new Resolver(dns);
  }

  checkTarget({ socketPath, tls }: Upstream): void {
    const wrong = checkSocketPath(socketPath);
    if (wrong !== undefined) throw badTarget(`unix:${socketPath}`, wrong);
    if (tls !== undefined) checkTlsNames(tls, this.#parts.tlsNames ?? []);
  }

  watch({ hostname, socketPath, address }: Destination, user: NameUser): void {
    // Another pool may look up the same name, which says nothing about the connections to a fixed address.
    const isFixed = socketPath !== undefined || address !== undefined;
    if (!isFixed) this.#resolver?.watch(hostname, user);
  }

  async resolve(hostname: string): Promise<readonly ResolvedAddress[]> {
    // With `dns: false`, ask the system each time, as each connection does.
    const resolver = this.#resolver ?? new Resolver({ ttl: 0 });
    const { good, down } = await resolver.resolve(hostname);
    return [...good, ...down];
  }

  connect(destination: Destination, scope: ConnectScope): Promise<Socket> {
    // If `#start` throws, for example for an invalid certificate, the promise rejects with that error.
    return new Promise((resolve, reject) => this.#start(destination, scope, resolve, reject));
  }

  #start(
    destination: Destination,
    scope: ConnectScope,
    resolve: (socket: Socket) => void,
    reject: (error: Error) => void,
  ): void {
    const { noDelay } = this.#options;
    const { connectTimeout = this.#options.connectTimeout } = scope;
    const { hostname, secure, http2 = false } = destination;
    const resolver = this.#resolver;
    let resolving = false;
    const lookup = async (
      name: string,
      { all }: LookupOptions,
      found: LookupCallback,
    ): Promise<void> => {
      let addresses: ResolvedAddress[] = [];
      let error: Error | null = null;
      resolving = true;
      try {
        addresses = scope.order(await (resolver as Resolver).resolve(name, true));
      } catch (thrown) {
        error = thrown as Error;
      }
      resolving = false;
      if (all) found(error, addresses);
      else found(error, addresses[0]?.address ?? "", addresses[0]?.family);
    };
    // TLS sockets do not support `onread`, and an HTTP/2 session reads by itself.
    const parts = secure || http2 ? NO_PARTS : this.#parts;
    const { takeMemory, allowHalfOpen = false } = parts;
    const memory = takeMemory?.();
    const onread = memory === undefined ? undefined : new MemoryReader(memory);
    const raw = this.#creatorFor(destination)({
      ...(resolver !== undefined && { lookup }),
      ...(onread !== undefined && { onread }),
      ...(!secure && { allowHalfOpen }),
      autoSelectFamilyAttemptTimeout: attemptTimeoutOf(connectTimeout),
    });
    const watchReads = onread === undefined ? this.#parts.watchReads : undefined;
    const socket = new NetSocket(raw, onread, watchReads);
    scope.onCancel(() => raw.destroy());
    if (resolver !== undefined) {
      const failed = (address: string): void => resolver.markFailed(hostname, address);
      raw.on("connectionAttemptFailed", failed).on("connectionAttemptTimeout", failed);
    }
    const late = (): void => {
      raw.destroy(new ProxyError(resolving ? "dns_timeout" : "connection_timeout"));
    };
    const deadline = connectTimeout > 0 ? new Deadline(connectTimeout, late) : undefined;
    let isEstablished = false;
    raw.on("error", reject).on("close", () => {
      deadline?.clear();
      if (!isEstablished) reject(new ProxyError("connection_terminated"));
    });
    raw.on(secure ? "secureConnect" : "connect", () => {
      deadline?.clear();
      // Every socket is created with `noDelay: true`, because Bun does so in any case. Turn it off here if asked to.
      if (!noDelay) raw.setNoDelay(false);
      isEstablished = true;
      resolve(socket);
    });
  }

  /** Returns the function that makes sockets. Each destination has an agent of its own, which caches TLS sessions. */
  #creatorFor(destination: Destination): CreateSocket {
    let create = this.#creators.get(destination);
    if (create === undefined) {
      create = createCreator(destination, this.#options);
      this.#creators.set(destination, create);
    }
    return create;
  }
}

/** Returns how long one of several addresses may take: at most half of `connectTimeout`, where that is limited. */
function attemptTimeoutOf(connectTimeout: number): number {
  if (connectTimeout === 0) return ATTEMPT_TIMEOUT;
  return Math.min(ATTEMPT_TIMEOUT, Math.ceil(connectTimeout / 2));
}

function createCreator(
  { origin, hostname, secure, socketPath, address = hostname, tls, http2 }: Destination,
  { keepAliveInitialDelay }: FilledPoolOptions,
): CreateSocket {
  const { Agent } = process.getBuiltinModule(secure ? "node:https" : "node:http");
  const agent = new Agent({}) as unknown as { createConnection: CreateSocket };
  const connectOptions = {
    ...(tls && removeMarks(tls)),
    ...(secure && sessionOptions(agent, origin)),
    ...(socketPath === undefined
      ? { host: address, port: Number(new URL(origin).port) || (secure ? 443 : 80) }
      : { path: socketPath }),
    // Without `servername`, SNI and the certificate check would follow the field `Host`. An IP address is not a server
    // name (RFC 6066 §3).
    ...(secure && {
      servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
    }),
    ...(secure && http2 && { ALPNProtocols: ["h2", "http/1.1"] }),
    ...(keepAliveInitialDelay > 0 && { keepAlive: true, keepAliveInitialDelay }),
    noDelay: true,
    autoSelectFamily: true,
  };
  return (options) => agent.createConnection({ ...connectOptions, ...options });
}
