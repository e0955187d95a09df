/**
 * The entry for Node: `fetchway/node`, and `fetchway` on Node.
 * @module
 */
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport/port.ts";
import { addServerSide, nodeParts } from "./node/nodeparts.ts";
import type { NodeProxy } from "./node/nodeproxy.ts";
import { createNodeTransport } from "./node/nodetransport.ts";

export * from "../src/index.ts";
export { applyAbsoluteForm } from "./absoluteform.ts";
export * from "./node/nodeproxy.ts";

/**
 * Creates a transport that sends requests over Node's sockets, with a pool of connections to each upstream. It speaks HTTP/1.1,
 * or HTTP/2 with the option `http2`. Idle connections do not keep the process alive.
 * @example const transport = createTransport({ maxSockets: 50 });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  return createNodeTransport(options);
}

const runtime: Runtime = { ...nodeParts, createTransport };

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
  (route) => addServerSide(route, runtime),
);
