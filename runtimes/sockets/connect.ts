import type { Agent, AgentOptions } from "node:http";
import type { LookupAddress, LookupOptions } from "node:dns";
import type { Socket as RawSocket } from "node:net";
import { ProxyError } from "../../src/error.ts";
import type { Connector, ConnectScope, Socket, SocketHandler } from "../../src/http1/connector.ts";
import type { Destination } from "../../src/http1/destination.ts";
import type { Address } from "../../src/http1/spread.ts";
import { attemptTime } from "../../src/http1/times.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import { Resolver } from "./dns.ts";
import { NetSocket } from "./netsocket.ts";

type AgentModule = { Agent: new (options: AgentOptions) => Agent };
type Found = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/** Looked up at run time: a bundle for another runtime contains no module of Node's. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): AgentModule };
};

/** The option `onread` of `net.connect`: a socket reads into the buffers that it is given. */
export interface OnRead {
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number, bytes: Uint8Array) => boolean;
}

/** How a runtime sets up its plain sockets. */
export interface SocketParts {
  /** Makes the `onread` of one socket; undefined where sockets read into buffers of their own. */
  readonly createOnRead?: ((onData: SocketHandler["onData"]) => OnRead) | undefined;
  /** Whether sockets stay writable when the upstream has ended them: a write tells a reset from an orderly end. */
  readonly allowHalfOpen?: boolean;
}

/** Makes a socket that starts to connect. */
type CreateSocket = (options: object) => RawSocket;

/** Connects through `node:net` and `node:tls`, as Node, Bun and Deno have them. */
export class NetConnector implements Connector {
  readonly #options: FilledPoolOptions;
  readonly #parts: SocketParts;
  /** Undefined where the system looks names up. */
  readonly #resolver: Resolver | undefined;
  readonly #creators: WeakMap<Destination, CreateSocket> = new WeakMap();

  /** @throws TypeError for a name server that is no address */
  constructor(options: FilledPoolOptions, parts: SocketParts = {}) {
    const { dns } = options;
    this.#options = options;
    this.#parts = parts;
    this.#resolver = dns === false ? undefined : new Resolver(dns);
  }

  connect(destination: Destination, scope: ConnectScope): Promise<Socket> {
    // What throws in here, such as a certificate that cannot be read, rejects.
    return new Promise((resolve, reject) => this.#start(destination, scope, resolve, reject));
  }

  #start(
    destination: Destination,
    scope: ConnectScope,
    resolve: (socket: Socket) => void,
    reject: (error: Error) => void,
  ): void {
    const { connectTimeout, noDelay } = this.#options;
    const { hostname, secure } = destination;
    const resolver = this.#resolver;
    let resolving = false;
    const lookup = async (name: string, { all }: LookupOptions, found: Found): Promise<void> => {
      let addresses: Address[] = [];
      let error: Error | null = null;
      resolving = true;
      try {
        addresses = scope.order(await (resolver as Resolver).resolve(name));
      } catch (thrown) {
        error = thrown as Error;
      }
      resolving = false;
      if (all) found(error, addresses);
      else found(error, addresses[0]?.address ?? "", addresses[0]?.family);
    };
    const { createOnRead, allowHalfOpen = false } = this.#parts;
    // A TLS socket has no `onread`.
    const onread = secure
      ? undefined
      : createOnRead?.((bytes, mayTake) => socket.onRead(bytes, mayTake));
    const raw = this.#creatorFor(destination)({
      ...(resolver !== undefined && { lookup }),
      ...(onread !== undefined && { onread }),
      ...(!secure && { allowHalfOpen }),
    });
    const socket = new NetSocket(raw);
    scope.onCancel(() => raw.destroy());
    if (resolver !== undefined) {
      const failed = (address: string): void => resolver.failed(hostname, address);
      raw.on("connectionAttemptFailed", failed).on("connectionAttemptTimeout", failed);
    }
    const late = (): void => {
      raw.destroy(new ProxyError(resolving ? "dns_timeout" : "connection_timeout"));
    };
    const timer = connectTimeout > 0 ? setTimeout(late, connectTimeout) : undefined;
    let isEstablished = false;
    raw.on("error", reject).on("close", () => {
      clearTimeout(timer);
      if (!isEstablished) reject(new ProxyError("connection_terminated"));
    });
    raw.on(secure ? "secureConnect" : "connect", () => {
      clearTimeout(timer);
      // Sockets begin with `noDelay: true`, which Bun has on in any case, so that this turns it off on Bun as well.
      if (!noDelay) raw.setNoDelay(false);
      isEstablished = true;
      resolve(socket);
    });
  }

  /** Each destination has one agent: agents remember the TLS sessions of connections that were made before. */
  #creatorFor(destination: Destination): CreateSocket {
    let create = this.#creators.get(destination);
    if (create === undefined) {
      create = creatorFor(destination, this.#options);
      this.#creators.set(destination, create);
    }
    return create;
  }
}

function creatorFor(
  { origin, hostname, secure, socketPath, tls }: Destination,
  { connectTimeout, keepAliveInitialDelay }: FilledPoolOptions,
): CreateSocket {
  const { Agent } = process.getBuiltinModule(secure ? "node:https" : "node:http");
  const agent = new Agent({}) as unknown as { createConnection: CreateSocket };
  const connectOptions = {
    ...tls,
    _agentKey: origin,
    ...(socketPath === undefined
      ? { host: hostname, port: Number(new URL(origin).port) || (secure ? 443 : 80) }
      : { path: socketPath }),
    // Without it, SNI and the certificate check would follow the field `Host`. An IP address is no server name
    // (RFC 6066 §3).
    ...(secure && {
      servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
    }),
    ...(keepAliveInitialDelay > 0 && { keepAlive: true, keepAliveInitialDelay }),
    noDelay: true,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: attemptTime(connectTimeout),
  };
  return (options) => agent.createConnection({ ...connectOptions, ...options });
}
