import type { Agent, AgentOptions } from "node:http";
import type { LookupAddress, LookupOptions } from "node:dns";
import type { Socket } from "node:net";
import { ProxyError } from "../../src/error.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Address, Resolver } from "./dns.ts";
import type { Destination } from "../../src/http1/destination.ts";
import type { Spread } from "../../src/http1/spread.ts";
import { attemptTime } from "../../src/http1/times.ts";

type AgentModule = { Agent: new (options: AgentOptions) => Agent };
type Found = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/** Taken at run time: a bundle for another runtime has nothing of Node's in it. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): AgentModule };
};

/** What becomes of a connection. */
export interface Events {
  /** It is made, TLS included. */
  readonly onConnect: () => void;
  /**
   * The socket has read bytes.
   * @param mayTake whether their memory may be kept
   * @returns whether it has been
   */
  readonly onData: (bytes: Uint8Array, mayTake: boolean) => boolean;
}

/** `onread` of `net.connect`: how a socket reads into buffers of its user's. */
export interface OnRead {
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number, bytes: Uint8Array) => boolean;
}

/** How a runtime sets up its plain sockets. */
export interface SocketParts {
  /** Makes the `onread` of one socket, where its `data` events do not bring the bytes. */
  readonly createOnRead?: ((onData: Events["onData"]) => OnRead) | undefined;
  /** Whether they stay writable when the upstream has ended them: a write tells a reset from an orderly end. */
  readonly allowHalfOpen?: boolean;
}

/** A way to make connections. */
export type Connect = (events: Events) => Socket;

/**
 * How connections to an origin are made.
 * @param resolver undefined where the system is asked
 */
export function connectTo(
  { origin, hostname, secure, socketPath, tls }: Destination,
  options: FilledPoolOptions,
  resolver: Resolver | undefined,
  spread: Spread,
  { createOnRead, allowHalfOpen = false }: SocketParts,
): Connect {
  const { connectTimeout, keepAliveInitialDelay, noDelay } = options;
  // An agent knows the sessions of TLS connections that were made before.
  const { Agent } = process.getBuiltinModule(secure ? "node:https" : "node:http");
  const agent = new Agent({}) as Agent & { createConnection(options: object): Socket };
  const connectOptions = {
    ...tls,
    _agentKey: origin,
    ...(socketPath === undefined
      ? { host: hostname, port: Number(new URL(origin).port) || (secure ? 443 : 80) }
      : { path: socketPath }),
    // Otherwise SNI and certificate check would follow `Host`. An address has no name (RFC 6066 §3).
    ...(secure && {
      servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
    }),
    ...(keepAliveInitialDelay > 0 && { keepAlive: true, keepAliveInitialDelay }),
    noDelay: true,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: attemptTime(connectTimeout),
  };
  return ({ onConnect, onData }) => {
    let resolving = false;
    const lookup = async (name: string, { all }: LookupOptions, found: Found): Promise<void> => {
      let addresses: Address[] = [];
      let error: Error | null = null;
      resolving = true;
      try {
        addresses = spread.order(await (resolver as Resolver).resolve(name));
      } catch (thrown) {
        error = thrown as Error;
      }
      resolving = false;
      if (all) found(error, addresses);
      else found(error, addresses[0]?.address ?? "", addresses[0]?.family);
    };
    // A TLS socket has no `onread`.
    const onread = secure ? undefined : createOnRead?.(onData);
    const socket = agent.createConnection({
      ...connectOptions,
      ...(resolver !== undefined && { lookup }),
      ...(onread !== undefined && { onread }),
      ...(!secure && { allowHalfOpen }),
    });
    // A runtime may cut what several sockets have read from one slab.
    socket.on("data", (bytes) => onData(bytes, bytes.byteLength === bytes.buffer.byteLength));
    const late = (): void => {
      socket.destroy(new ProxyError(resolving ? "dns_timeout" : "connection_timeout"));
    };
    const timer = connectTimeout > 0 ? setTimeout(late, connectTimeout) : undefined;
    socket.on("close", () => clearTimeout(timer));
    socket.on(secure ? "secureConnect" : "connect", () => {
      clearTimeout(timer);
      // Bun has it on from the start, and knows of it only if told.
      if (!noDelay) socket.setNoDelay(false);
      onConnect();
    });
    if (resolver !== undefined) {
      const failed = (address: string): void => resolver.failed(hostname, address);
      socket.on("connectionAttemptFailed", failed).on("connectionAttemptTimeout", failed);
    }
    return socket;
  };
}
