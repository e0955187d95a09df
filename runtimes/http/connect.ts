import type { Agent, AgentOptions } from "node:http";
import type { Socket } from "node:net";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type { Resolver } from "../dns.ts";

type AgentModule = { Agent: new (options: AgentOptions) => Agent };

/** Taken at run time: a bundle for another runtime has nothing of Node's in it. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): AgentModule };
};

/** Milliseconds before the next address of a name is tried, where the time to connect has no limit. */
const ATTEMPT_TIMEOUT = 2500;

/** A way to make connections to an upstream; `onConnect` is called once one is made. */
export type Connect = (onConnect: () => void) => Socket;

/** How connections to an upstream are made. */
export function connectTo(
  upstream: Upstream,
  options: FilledPoolOptions,
  resolver: Resolver | undefined,
): Connect {
  const { origin, hostname, secure } = upstream;
  const { connectTimeout, keepAliveInitialDelay, noDelay } = options;
  const socketPath = upstream.socketPath ?? options.socketPath;
  const tls = upstream.tls ?? options.tls;
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
    ...(resolver !== undefined && {
      lookup: resolver.lookup.bind(resolver),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: connectTimeout / 4 || ATTEMPT_TIMEOUT,
    }),
  };
  return (onConnect) => {
    const socket = agent.createConnection(connectOptions);
    const late = (): void => {
      socket.destroy(Object.assign(new Error("connect timeout"), { code: "ETIMEDOUT" }));
    };
    const timer = connectTimeout > 0 ? setTimeout(late, connectTimeout) : undefined;
    socket.once("close", () => clearTimeout(timer));
    socket.once(secure ? "secureConnect" : "connect", () => {
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
