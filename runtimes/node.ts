import type { IncomingMessage, ServerResponse } from "node:http";
import { forward } from "../src/forward.ts";
import { checkPoolOptions, type PoolOptions } from "../src/options/pool.ts";
import {
  bindProxy,
  bindProxyFetch,
  createRoute,
  type CreateProxyOptions,
  type Proxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport.ts";
import { MessageIncoming, readRequest } from "./node/nodeincoming.ts";
import { createNodeTransport } from "./node/nodetransport.ts";
import { respond, sendResponse } from "./node/noderesponse.ts";
import { assertVersion } from "./sockets/versions.ts";

export * from "../src/index.ts";

// Fail when the module is loaded: the first request would fail with messages that do not name the cause.
if (globalThis.navigator?.userAgent === "Cloudflare-Workers") {
  throw new Error(
    'fetchway: this is the entry for Node; bundle with the condition "workerd" (wrangler sets it; ' +
      'with esbuild: conditions: ["workerd"])',
  );
}

/**
 * A handler for `node:http`, Express and Fastify.
 *
 * It calls `next`, if the framework passes it, with the TypeError of a misuse, or with the exception of a hook that
 * `onError` does not answer. Without `next`, the client gets 500, and the exception goes to `console.error`.
 */
export type NodeHandler = (
  req: IncomingMessage,
  res: ServerResponse,
  next?: (error?: unknown) => void,
) => void;

/** A proxy on Node, which also has a handler for servers without web requests. */
export interface NodeProxy extends Proxy {
  /** Handles the requests of `node:http`, Express and Fastify. Needs no `this`. */
  readonly nodeHandler: NodeHandler;
}

/**
 * Creates a transport: an HTTP/1.1 client on Node's sockets, with a pool of connections to upstreams. Idle connections do
 * not keep the process alive.
 * @example const transport = createTransport({ maxSockets: 50 });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  checkPoolOptions(options);
  assertVersion("Node", process.versions.node);
  return createNodeTransport(options);
}

const runtime: Runtime = { read: readRequest, respond, createTransport };

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example app.all("/**", (event) => proxyFetch(event.req, "http://127.0.0.1:4000"));
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

function toError(thrown: unknown): Error {
  return new Error("fetchway: a hook threw what is no Error", { cause: thrown });
}

/**
 * Creates a proxy, which compiles its options once and has its own connections.
 * @throws TypeError that names a bad option and the fix
 * @example createServer(createProxy({ target: "http://127.0.0.1:4000" }).nodeHandler).listen(3000);
 */
export function createProxy(options: CreateProxyOptions): NodeProxy {
  const route = createRoute(options, runtime);
  const { target, plan } = route;
  return {
    ...bindProxy(route, runtime),
    nodeHandler(req, res, next) {
      const fail = (thrown: unknown): void => {
        // Express calls the next handler for `undefined`, and takes some strings as commands.
        if (next) return next(thrown instanceof Error ? thrown : toError(thrown));
        // No other code reports the exception: `node:http` does not wait for its handler.
        // oxlint-disable-next-line no-console
        console.error(thrown);
        if (res.headersSent) res.destroy();
        else res.writeHead(500).end();
      };
      try {
        forward(new MessageIncoming(req, res), target, plan, { req, res }, respond)
          .then((response) => sendResponse(response, res))
          .catch(fail);
      } catch (error) {
        fail(error);
      }
    },
  };
}
