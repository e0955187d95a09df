import type { Agent, AgentOptions } from "node:http";
import type { LookupAddress, LookupOptions } from "node:dns";
import type { Socket } from "node:net";
import { ProxyError } from "../../src/error.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Address, Resolver } from "../pool/dns.ts";
import type { Destination } from "../pool/destination.ts";
import type { Spread } from "../pool/spread.ts";
import { attemptTime } from "../pool/times.ts";
import { readTo } from "./read.ts";

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
  /** Bytes have come. */
  readonly onData: (piece: Uint8Array) => void;
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
    // With TLS, and on Bun, whose buffers are as long as what came, bytes come as events.
    const onread = secure || "Bun" in globalThis ? undefined : readTo(onData);
    const socket = agent.createConnection({
      ...connectOptions,
      ...(resolver !== undefined && { lookup }),
      ...(onread !== undefined && { onread }),
    });
    socket.on("data", onData);
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
