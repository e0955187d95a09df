/** Exports of every entry for Node: the types of a proxy on Node, and functions for servers. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import type { ExplainingProxy, Proxy, WaitingProxy } from "../../src/proxy.ts";
import type { AttachOptions, SrvxServer } from "./attach.ts";
import type { UpgradeListener } from "./handleupgrade.ts";
import { awaitingContinue } from "./incomingbody.ts";

// These functions are deprecated, so that editors strike them out.
// oxlint-disable-next-line typescript/no-deprecated
export { createProxyMiddleware, createProxyServer } from "./httpproxy.ts";
export { endWhenLost } from "../sockets/http2/lostsessions.ts";
export { limitOfOpenFiles } from "../sockets/openfiles.ts";
export type { RequestTrace } from "../sockets/requestchannel.ts";
export type { AttachOptions, SrvxServer, UpgradeListener };

/**
 * A handler for `node:http`, `node:http2`, Express and Fastify.
 *
 * If the arguments are not messages of Node, the handler throws a TypeError. Any other TypeError of a misuse, and the exception
 * of a hook that `onError` does not answer, go to `next` if the framework passes it. Without `next`, the client gets 500, and
 * the exception goes to `console.error`.
 */
export type NodeHandler = (
  req: IncomingMessage | Http2ServerRequest,
  res: ServerResponse | Http2ServerResponse,
  next?: (error?: unknown) => void,
) => void;

/** A proxy on Node, which also has a handler for servers without web requests, and methods for upgrades. */
export interface NodeProxy extends Proxy, ExplainingProxy, WaitingProxy {
  /**
   * Handles the requests of `node:http`, `node:http2`, Express and Fastify. It does not use `this`. Only proxies of the entry
   * for Node have this member.
   */
  readonly nodeHandler: NodeHandler;
  /**
   * Makes the proxy take the upgrades of a server, such as WebSockets: it forwards them by the same rules as requests. By
   * default it takes all upgrades to the protocols in the option `upgrades`; the option `match` selects some of them. Without
   * `attach`, `plugin` or `upgrade`, an upgrade gets 501.
   *
   * The server is one of `node:http`, `node:https` or `node:http2`, or the result of `serve` of srvx, h3 or Hono. On an HTTP/2
   * server, WebSockets use HTTP/2 streams (RFC 8441), or connections of HTTP/1.1 clients (`allowHTTP1`). The app still handles
   * its ordinary requests. Upgrades that do not match are left to the server's other listeners for `upgrade`. An `Upgrade` to
   * a protocol that no listener carries, such as `h2c`, is ignored, and the app handles the request.
   *
   * **The upgrades that the proxy takes skip the app's routes and middleware**, including middleware that checks a login: check
   * it in `onRequest`, or set the option `routes`. With `routes: true`, upgrades are ordinary requests to the app, and become
   * tunnels when the app passes them to a proxy.
   *
   * The proxy also forwards `Expect: 100-continue` of the matching requests to the upstream. Only proxies of the entry for
   * Node have this member.
   * @returns a function that detaches the proxy: later upgrades are left to others, and running tunnels continue
   * @throws TypeError for a value that is not such a server, and for a wrong option
   * @example proxy.attach(server, { match: (req) => req.url?.startsWith("/api/") ?? false });
   * @example proxy.attach(server, { routes: true });
   */
  readonly attach: (server: Server | SrvxServer, options?: AttachOptions) => () => void;
  /**
   * Does what `attach` does, as a plugin for `serve` of srvx and h3. On a server of another runtime, it does nothing. Only
   * proxies of the entry for Node have this member.
   * @example serve(app, { plugins: [proxy.plugin] });
   * @example serve(app, { plugins: [(server) => proxy.plugin(server, { routes: true })] });
   */
  readonly plugin: (server: SrvxServer, options?: AttachOptions) => void;
  /**
   * Forwards one upgrade. Use it as a listener for `upgrade` of an HTTP/1.1 server and for `connect` of an HTTP/2 server, or
   * call it from a listener of your own that chooses the requests. It answers every request that it gets, whereas `attach`
   * takes only matching upgrades to the protocols in the option `upgrades`. No server calls it by default. Only proxies of the
   * entry for Node have this member.
   */
  readonly upgrade: UpgradeListener;
}

/**
 * Returns whether the client of a request waits for 100 (Continue) before it sends the body, and the proxy decides when the
 * client gets it. A server that ends requests with slow bodies must spare these requests.
 */
export function isAwaitingContinue(req: IncomingMessage | Http2ServerRequest): boolean {
  return awaitingContinue.has(req as IncomingMessage);
}
