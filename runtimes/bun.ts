/**
 * The entry for Bun: `fetchway/bun`, and `fetchway` on Bun.
 * @module
 */
import { makeSharedMembers, makeSharedParts } from "./sockets/sharedparts.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ExplainingProxy,
  type Proxy,
  type ProxyFetch,
  type Runtime,
  type WaitingProxy,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport/port.ts";
import { readRequest } from "./bun/readrequest.ts";
import { respond } from "./bun/respond.ts";
import { readHandlers, WEBSOCKET_HINT, type WebSocketHandlers } from "./bun/websocket.ts";
import { refuseNodeMembers } from "./nodemembers.ts";
import { createSocketTransport } from "./sockets/sockettransport.ts";

export * from "../src/index.ts";
export { applyAbsoluteForm } from "./absoluteform.ts";
export type { RequestTrace } from "./sockets/requestchannel.ts";
export { type BunSocket, type WebSocketHandlers, websocket } from "./bun/websocket.ts";

/** The names of the TLS options that only Bun has: https://bun.com/reference/bun/TLSOptions. */
const TLS_NAMES = [
  "caFile",
  "certFile",
  "clientRenegotiationLimit",
  "clientRenegotiationWindow",
  "dhParamsFile",
  "keyFile",
  "lowMemoryMode",
];

/** The members of the global `Bun` that are used here. */
interface BunGlobal {
  readonly version: string;
  readonly env: { readonly NODE_ENV?: string };
}

/**
 * Creates a transport that sends requests over Bun's sockets, with a pool of connections to each upstream. It speaks HTTP/1.1,
 * or HTTP/2 with the option `http2`.
 *
 * It does not use Bun's `fetch`, which cannot forward requests unchanged. Bun's `fetch` sends a GET again for each stale
 * connection that it holds (51 times in one measurement), removes leading slashes from a path that begins with two, sends
 * a method that it does not know as GET, adds `Accept` and `User-Agent`, and obeys `HTTP_PROXY`.
 * @throws TypeError that names a bad option and the fix, or says that this version of Bun is too old
 * @example const transport = createTransport({ maxSockets: 50 });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  const { Bun } = globalThis as { Bun?: BunGlobal };
  return createSocketTransport("Bun", Bun?.version, options, { sockets: { tlsNames: TLS_NAMES } });
}

/** A proxy on Bun. If it is the default export of the module that Bun runs, Bun starts a server with it. */
export interface BunProxy extends Proxy, ExplainingProxy, WaitingProxy {
  /**
   * The server's limit for request bodies in bytes, which Bun reads from a default export. It is the highest possible
   * number instead of Bun's 128 MB, so that only the option `bodyLimit` limits bodies.
   */
  readonly maxRequestBodySize: number;
  /**
   * Answers a request for which a hook threw an exception. Bun reads this member from a default export, and calls it with the
   * exception. The exception goes to `console.error`, and the client gets 500 with an empty body. Bun's own error page would
   * show the message and source code to the client, unless `NODE_ENV` is `production`.
   */
  readonly error: (error: unknown) => Response;
  /**
   * Handles the WebSockets of Bun's server, which reads this member from a default export. A server that is started otherwise
   * needs this member as an option: `Bun.serve({ fetch: proxy.fetch, websocket: proxy.websocket })`, under srvx and h3
   * `serve(app, { bun: { websocket: proxy.websocket } })`. Your own handlers may call the handlers of this member. If no code
   * has read this member, a WebSocket handshake gets 501.
   */
  readonly websocket: WebSocketHandlers;
}

function reportError(error: unknown): Response {
  // oxlint-disable-next-line no-console
  console.error(error);
  return new Response(null, { status: 500 });
}

const runtime: Runtime = {
  ...makeSharedParts(() => (globalThis as { Bun?: BunGlobal }).Bun?.env.NODE_ENV),
  read: readRequest,
  createTransport,
  respond,
  upgradeHint: `: ${WEBSOCKET_HINT}, and call proxy.fetch(request, server)`,
};

/**
 * Forwards a request to a target and resolves to the response to return.
 *
 * This function does not get Bun's server. That has three effects: the server's own idle timeout applies (10 s by default),
 * unless the handler turns it off; the upstream does not learn the client's address; and a WebSocket handshake gets 501. None
 * of these effects occurs with `createProxy(…).fetch`, which gets the server, nor with this function under srvx and h3, which
 * keep the server on the request.
 * @example
 * ```ts
 * export default {
 *   fetch(request, server) {
 *     server.timeout(request, 0);
 *     return proxyFetch(request, "http://127.0.0.1:4000");
 *   },
 * };
 * ```
 */
export const proxyFetch: ProxyFetch = /* @__PURE__ */ bindProxyFetch(runtime);

/**
 * Creates a proxy that compiles its options once and has its own connections.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "http://127.0.0.1:4000" });
 */
export const createProxy: CreateProxy<BunProxy> = /* @__PURE__ */ bindCreateProxy(
  runtime,
  (route) =>
    refuseNodeMembers({
      ...makeSharedMembers(route, runtime),
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
      error: reportError,
      // A getter, because `readHandlers` records that code has read the handlers: see `isRead` in bun/websocket.ts.
      get websocket() {
        return readHandlers();
      },
    }),
);
