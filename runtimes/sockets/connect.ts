import type { Agent, AgentOptions } from "node:http";
import type { Socket as RawSocket } from "node:net";
import { ProxyError } from "../../src/error.ts";
import type {
  Connector,
  ConnectScope,
  Destination,
  FoundAddresses,
  NameUser,
  ResolvedAddress,
  Socket,
} from "../../src/http1/connector.ts";
import type { FilledPoolOptions } from "../../src/options/pooloptions.ts";
import { badOption } from "../../src/misuse.ts";
import { isIPAddress } from "../../src/target/address.ts";
import { badTarget, type Upstream } from "../../src/target/target.ts";
import { Deadline } from "../../src/transport/deadline.ts";
import { codeOf } from "../../src/transport/socketerror.ts";
import { Resolver } from "./dns.ts";
import { MemoryReader, NetSocket, type WatchReads } from "./netsocket.ts";
import { alternateFamilies, Race } from "./race.ts";
import { checkSocketPath } from "./socketpath.ts";
import { checkTlsNames } from "./tlsnames.ts";
import { sessionOptions } from "./tlssessions.ts";
import { removeMarks } from "./tlstexts.ts";

type AgentModule = { Agent: new (options: AgentOptions) => Agent };
/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): AgentModule };
};

/** How the sockets of a runtime differ from those of the other runtimes. */
export interface SocketParts {
  /**
   * Returns the memory into which a socket without TLS reads. All sockets may share this memory, because each chunk is copied
   * before the next read. If there is no function, or it returns undefined, the runtime allocates memory for each read.
   */
  readonly takeMemory?: (() => Uint8Array | undefined) | undefined;
  /** Finds out whether other code sees a chunk; undefined where the memory of chunks is never freed. */
  readonly watchReads?: WatchReads | undefined;
  /**
   * Whether a socket without TLS stays writable after the upstream has closed its direction, so that a write can detect a
   * reset.
   */
  readonly allowHalfOpen?: boolean;
  /** Whether the runtime itself looks the host name up for each connection, instead of `Resolver` (dns.ts). */
  readonly leavesNames?: boolean;
  /** The TLS options that only this runtime has. */
  readonly tlsNames?: readonly string[];
}

const NO_PARTS: SocketParts = {};

const ONE_CLIENT =
  "`proxyProtocol` names one client for a connection, and HTTP/2 shares a connection; leave `http2` or `proxyProtocol` out";

/** Makes a socket that starts to connect. */
type CreateSocket = (options: object) => RawSocket;

/** Opens connections with `node:net` and `node:tls`, which Node, Bun and Deno have. */
export class NetConnector implements Connector {
  readonly #options: FilledPoolOptions;
  readonly #parts: SocketParts;
  readonly #resolver: Resolver;
  /** The functions that make sockets, by destination. */
  readonly #creators: WeakMap<Destination, CreateSocket> = new WeakMap();
  /** Makes the header that names the client of a connection (`proxyProtocol`); undefined until `clientheader.ts` is loaded. */
  #makeHeader: ((client: string | undefined, raw: RawSocket) => Uint8Array) | undefined;

  /**
   * @throws TypeError for a socket path that is too long, for `proxyProtocol` with `http2`, for an unknown TLS option, and for
   * a name server that is not an IP address
   */
  constructor(options: FilledPoolOptions, parts: SocketParts = {}) {
    const { dns, socketPath, tls, proxyProtocol, http2 } = options;
    this.#options = options;
    this.#parts = parts;
    const wrong = checkSocketPath(socketPath);
    if (wrong !== undefined) throw badOption("socketPath", wrong);
    if (proxyProtocol !== undefined && http2) throw badOption("proxyProtocol", ONE_CLIENT);
    if (tls !== undefined) checkTlsNames(tls, parts.tlsNames ?? []);
    this.#resolver = new Resolver(dns);
  }

  checkTarget({ socketPath, tls, http2, origin }: Upstream): void {
    const wrong = checkSocketPath(socketPath);
    if (wrong !== undefined) throw badTarget(`unix:${socketPath}`, wrong);
    if (http2 && this.#options.proxyProtocol !== undefined) throw badTarget(origin, ONE_CLIENT);
    if (tls !== undefined) checkTlsNames(tls, this.#parts.tlsNames ?? []);
  }

  watch({ hostname, socketPath, address }: Destination, user: NameUser): void {
    // Do not watch the name for connections to a fixed address. Another pool may have looked the name up, but the answers do
    // not concern these connections.
    const isFixed = socketPath !== undefined || address !== undefined;
    if (!isFixed && this.#options.dns !== false) this.#resolver.watch(hostname, user);
  }

  async resolve(hostname: string): Promise<readonly ResolvedAddress[]> {
    const { good, down } = await this.#resolver.resolve(hostname);
    return [...good, ...down];
  }

  connect(destination: Destination, scope: ConnectScope): Promise<Socket> {
    const { proxyProtocol } = this.#options;
    if (proxyProtocol !== undefined && this.#makeHeader === undefined) {
      return this.#loadAndConnect(proxyProtocol, destination, scope);
    }
    return new Promise((resolve, reject) => this.#start(destination, scope, resolve, reject));
  }

  async #loadAndConnect(
    version: NonNullable<FilledPoolOptions["proxyProtocol"]>,
    ...connection: [Destination, ConnectScope]
  ): Promise<Socket> {
    const { makeHeader } = await import("./clientheader.ts");
    this.#makeHeader = (client, raw) => makeHeader(version, client, raw);
    return this.connect(...connection);
  }

  #start(
    destination: Destination,
    scope: ConnectScope,
    resolve: (socket: Socket) => void,
    reject: (error: unknown) => void,
  ): void {
    const { noDelay } = this.#options;
    const { connectTimeout = this.#options.connectTimeout } = scope;
    const { hostname, secure, socketPath, address = hostname } = destination;
    const resolver = this.#resolver;
    const race = new Race(connectTimeout, {
      open: (host) => this.#open(destination, { host }),
      onWon: (connected) => {
        let socket = connected;
        const header = this.#makeHeader?.(scope.clientAddress, connected.raw);
        if (header !== undefined) {
          connected.raw.write(header);
          try {
            // TLS begins on the same socket, after the header.
            if (secure) socket = this.#open(destination, { socket: connected.raw });
          } catch (error) {
            return end(error);
          }
        }
        const { raw } = socket;
        raw.on("error", (error) => end(toCertificateError(socket, error)));
        raw.on("close", () => end(new ProxyError("connection_terminated")));
        if (secure) raw.on("secureConnect", () => establish(socket));
        else establish(socket);
      },
      onLost: end,
      onFailed(failed, isSlow) {
        // If the order is fixed, as for `localhost`, do not mark an address that has refused: the refusal costs no time, and
        // the address must be tried first again once its server has started.
        if (isSlow || found?.isOrder !== true) resolver.markFailed(hostname, failed);
      },
    });
    let found: FoundAddresses | undefined;
    const isFixed =
      socketPath !== undefined || isIPAddress(address) || this.#parts.leavesNames === true;
    const late = (): void => {
      race.stop(true);
      const isResolving = !isFixed && found === undefined;
      end(new ProxyError(isResolving ? "dns_timeout" : "connection_timeout"));
    };
    const deadline = connectTimeout > 0 ? new Deadline(connectTimeout, late) : undefined;
    function end(error: unknown): void {
      deadline?.clear();
      race.stop();
      reject(error);
    }
    const establish = (socket: NetSocket): void => {
      deadline?.clear();
      // Every socket is created with `noDelay: true`, because Bun always does so. Turn it off here if the option is false.
      if (!noDelay) socket.raw.setNoDelay(false);
      resolve(socket);
    };
    scope.onCancel(() => end(new ProxyError("connection_terminated")));
    if (isFixed) return race.start([address]);
    const take = (addresses: FoundAddresses): void => {
      found = addresses;
      // With `dns: false`, begin with the first good address in the system's order.
      const good = this.#options.dns === false ? found.good : scope.order(found);
      const all = [...alternateFamilies(good), ...found.down];
      race.start(all.map((each) => each.address));
    };
    resolver.resolve(hostname, true).then(take, end);
  }

  /**
   * Starts to connect to one address of a destination, or begins TLS on a connected socket.
   * @throws the error of a wrong TLS option
   */
  #open(destination: Destination, to: { host: string } | { socket: RawSocket }): NetSocket {
    const { secure, http2 = false } = destination;
    // TLS sockets do not support `onread`, and an HTTP/2 session reads by itself.
    const parts = secure || http2 ? NO_PARTS : this.#parts;
    const { takeMemory, allowHalfOpen = false } = parts;
    const memory = takeMemory?.();
    const onread = memory === undefined ? undefined : new MemoryReader(memory);
    const raw = this.#creatorFor(destination)({
      ...to,
      ...(onread !== undefined && { onread }),
      ...(!secure && { allowHalfOpen }),
    });
    const watchReads = onread === undefined ? this.#parts.watchReads : undefined;
    return new NetSocket(raw, onread, watchReads);
  }

  /**
   * Returns the function that makes sockets to a destination. Each destination has its own agent, which caches TLS sessions.
   */
  #creatorFor(destination: Destination): CreateSocket {
    let create = this.#creators.get(destination);
    if (create === undefined) {
      create = createCreator(destination, this.#options);
      this.#creators.set(destination, create);
    }
    return create;
  }
}

/**
 * Converts the error with which the app's own `checkServerIdentity` refuses a certificate. It may be any error, so it is
 * recognized by the socket's `authorizationError`, and by having no code.
 */
function toCertificateError({ raw }: NetSocket, error: unknown): unknown {
  const { authorizationError } = raw as { authorizationError?: unknown };
  const isKnown = !authorizationError || codeOf(error) !== "";
  return isKnown ? error : new ProxyError("tls_certificate_error", { cause: error });
}

function createCreator(
  { origin, hostname, secure, socketPath, tls, http2 }: Destination,
  { keepAliveInitialDelay, proxyProtocol }: FilledPoolOptions,
): CreateSocket {
  const agent = makeAgent(secure);
  const plain = secure && proxyProtocol !== undefined ? makeAgent(false) : agent;
  const connectOptions = {
    ...(tls && removeMarks(tls)),
    ...(secure && sessionOptions(agent, origin)),
    ...(socketPath === undefined
      ? { port: Number(new URL(origin).port) || (secure ? 443 : 80) }
      : { path: socketPath }),
    // Without `servername`, TLS would send no name, and would check the certificate for `host`, which is an IP address. An IP
    // address is not a server name (RFC 6066 §3).
    ...(secure && {
      servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
    }),
    ...(secure && http2 && { ALPNProtocols: ["h2", "http/1.1"] }),
    ...(keepAliveInitialDelay > 0 && { keepAlive: true, keepAliveInitialDelay }),
    noDelay: true,
  };
  return (options) =>
    ("socket" in options ? agent : plain).createConnection({ ...connectOptions, ...options });
}

function makeAgent(secure: boolean): { createConnection: CreateSocket } {
  const { Agent } = process.getBuiltinModule(secure ? "node:https" : "node:http");
  return new Agent({}) as unknown as { createConnection: CreateSocket };
}
