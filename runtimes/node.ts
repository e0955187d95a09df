/**
 * The entry for Node: `fetchway/node`, and `fetchway` on Node.
 * @module
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import { inProcess } from "../src/fetch/standardapps.ts";
import { forward } from "../src/forward.ts";
import { explainWherePooled } from "../src/options/poolcheck.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ExplainingProxy,
  type Proxy,
  type ProxyFetch,
  type Route,
  type Runtime,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport/port.ts";
import { type AttachOptions, attachTo, plugInto, type SrvxServer } from "./node/attach.ts";
import { awaitingContinue } from "./node/incomingbody.ts";
import { createUpgradeListener, type UpgradeListener } from "./node/handleupgrade.ts";
import { MessageIncoming, readRequest } from "./node/nodeincoming.ts";
import { explainNodeMessage } from "./node/nodemessage.ts";
import { respond, sendResponse } from "./node/noderesponse.ts";
import { createNodeTransport } from "./node/nodetransport.ts";
import { addExplain } from "./sockets/explaining.ts";
import { findRequestChannel } from "./sockets/requestchannel.ts";

export * from "../src/index.ts";
export { applyAbsoluteForm } from "./absoluteform.ts";
export { endWhenLost } from "./sockets/http2/lostsessions.ts";
export type { RequestTrace } from "./sockets/requestchannel.ts";

// Fail when the module is loaded. Otherwise the first request would fail, with a message that does not name the cause.
if (globalThis.navigator?.userAgent === "Cloudflare-Workers") {
  throw new Error(
    'fetchway: this is the entry for Node; bundle with the condition "workerd" (wrangler sets it; ' +
      'with esbuild: conditions: ["workerd"])',
  );
}

/**
 * A handler for `node:http`, `node:http2`, Express and Fastify.
 *
 * It calls `next`, if the framework passes it, with the TypeError of a misuse, or with the exception of a hook that
 * `onError` does not answer. Without `next`, the client gets 500, and the exception goes to `console.error`.
 */
export type NodeHandler = (
  req: IncomingMessage | Http2ServerRequest,
  res: ServerResponse | Http2ServerResponse,
  next?: (error?: unknown) => void,
) => void;

/** A proxy on Node, which also has a handler for servers without web requests. */
export interface NodeProxy extends Proxy, ExplainingProxy {
  /**
   * Handles the requests of `node:http`, `node:http2`, Express and Fastify. It does not use `this`. Only proxies of the entry
   * for Node have this member.
   */
  readonly nodeHandler: NodeHandler;
  /**
   * Makes the proxy take the upgrades of a server, such as WebSockets: it forwards them by the same rules as requests. By
   * default it takes all upgrades to the protocols in the option `upgrades`; `match` selects some. Without `attach`,
   * `plugin` or `upgrade`, such a request gets 501.
   *
   * The server is one of `node:http`, `node:https` or `node:http2` (with `allowHTTP1`), or the result of `serve` of srvx, h3
   * or Hono. The app still handles its ordinary requests. Upgrades that do not match are left to the server's other
   * listeners for `upgrade`. An `Upgrade` to a protocol that no listener carries, such as `h2c`, is ignored, and the app
   * handles the request. The app's routes and middleware do not see the upgrades that the proxy takes: check logins in
   * `onRequest`.
   *
   * The proxy also passes `Expect: 100-continue` of the matching requests on to the upstream. Only proxies of the entry for
   * Node have this member.
   * @returns a function that detaches the proxy: later upgrades are left to others, and running tunnels go on
   * @throws TypeError for a value that is not such a server, and for a wrong option
   * @example proxy.attach(server, { match: (req) => req.url?.startsWith("/api/") ?? false });
   */
  readonly attach: (server: Server | SrvxServer, options?: AttachOptions) => () => void;
  /**
   * Does what `attach` does by default, as a plugin for `serve` of srvx and h3: the proxy takes all upgrades of the server.
   * On a server of another runtime, it does nothing. Only proxies of the entry for Node have this member.
   * @example serve(app, { plugins: [proxy.plugin] });
   */
  readonly plugin: (server: SrvxServer) => void;
  /**
   * Forwards one upgrade. Use it as a listener for `upgrade` of Node's servers, or call it from a listener of your own that
   * chooses the requests. It answers every request that it gets, whereas `attach` takes only matching upgrades to the
   * protocols in the option `upgrades`. No server calls it by default. Only proxies of the entry for
   * Node have this member.
   */
  readonly upgrade: UpgradeListener;
}

export type { AttachOptions, SrvxServer, UpgradeListener };

/**
 * Creates a transport that sends requests by HTTP/1.1 over Node's sockets, with a pool of connections to each upstream.
 * Idle connections do not keep the process alive.
 * @example const transport = createTransport({ maxSockets: 50 });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  return createNodeTransport(options);
}

const runtime: Runtime = {
  read: readRequest,
  respond,
  createTransport,
  explainOption: explainWherePooled,
  explainRequest: explainNodeMessage,
  upgradeHint: ": call proxy.attach(server), or give the server proxy.plugin",
  tracing: findRequestChannel(),
  inProcess,
};

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example app.all("/**", (event) => proxyFetch(event.req, "http://127.0.0.1:4000"));
 */
export const proxyFetch: ProxyFetch = /* @__PURE__ */ bindProxyFetch(runtime);

/**
 * Creates a proxy, which compiles its options once and has its own connections.
 * @throws TypeError that names a bad option and the fix
 * @example createServer(createProxy({ target: "http://127.0.0.1:4000" }).nodeHandler).listen(3000);
 */
export const createProxy: CreateProxy<NodeProxy> = /* @__PURE__ */ bindCreateProxy(
  runtime,
  addServerSide,
);

/**
 * Returns whether the client of a request waits for 100 (Continue) before it sends the body, and the proxy decides when it
 * gets one. A server that ends requests whose bodies do not arrive has to wait for these.
 */
export function isAwaitingContinue(req: IncomingMessage | Http2ServerRequest): boolean {
  return awaitingContinue.has(req as IncomingMessage);
}

function toError(thrown: unknown): Error {
  return new Error("fetchway: a hook threw a value that is not an Error", { cause: thrown });
}

/** Makes the members of a proxy that only Node's servers use. */
function addServerSide(route: Route): Omit<NodeProxy, keyof Proxy> {
  const { target, plan } = route;
  const upgrade = createUpgradeListener(route);
  return {
    ...addExplain(route, runtime),
    upgrade,
    attach: (server, attachOptions) => attachTo(server, { plan, upgrade }, attachOptions),
    plugin: (server) => plugInto(server, { plan, upgrade }),
    nodeHandler(request, response, next) {
      // The messages of `node:http2` have the same members. Where HTTP/2 differs, `isHttp2` recognizes them.
      const req = request as IncomingMessage;
      const res = response as ServerResponse;
      const fail = (thrown: unknown): void => {
        // Pass an Error in any case: Express calls the next handler for `undefined`, and takes some strings as commands.
        if (next) return next(thrown instanceof Error ? thrown : toError(thrown));
        // No other code reports the exception: `node:http` does not wait for its handler.
        // oxlint-disable-next-line no-console
        console.error(thrown);
        if (res.headersSent) res.destroy();
        else res.writeHead(500).end();
      };
      try {
        forward(new MessageIncoming(req, res), target, plan, { req, res }, respond).then(
          (answer) => {
            // `catch` after `then` would make one more promise for each request.
            try {
              return sendResponse(answer, res)?.catch(fail);
            } catch (error) {
              return fail(error);
            }
          },
          fail,
        );
      } catch (error) {
        fail(error);
      }
    },
  };
}
