/**
 * The entry for Node over undici: `fetchway/undici`. It has the exports of `fetchway/node`, but sends requests through undici's
 * `Agent` instead of Fetchway's own client, which it does not load.
 * @module
 */
import { Agent, type Dispatcher } from "undici";
import { isRecord } from "../src/schema/schema.ts";
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
import { type AgentOptions, fillAgentOptions, toAgentOptions } from "./undici/agentoptions.ts";
import { DispatcherTransport, UndiciTransport } from "./undici/undicitransport.ts";

export * from "../src/index.ts";
export { applyAbsoluteForm } from "./absoluteform.ts";
export * from "./node/nodeproxy.ts";
export type { AgentOptions };

// Fail when the module is loaded. Otherwise the first request would fail, with a message that does not name the cause.
if (typeof Agent.prototype.dispatch !== "function") {
  throw new Error(
    "fetchway: this runtime replaces the package undici by a part of it that sends no requests, as Bun does; " +
      'import "fetchway", which has a client of its own',
  );
}

/**
 * Creates a transport that sends requests through an `Agent` of undici, which is configured by the options of a pool. undici
 * does not have the options `maxFreeSockets`, `maxTotalFreeSockets`, `timeout`, `maxQueued`, `queueTimeout`, `minRate`,
 * `minRateGrace`, `proxyProtocol`, `noDelay` and `dns`: they are refused, unless the value is what undici does anyway.
 * `createUndiciTransport` takes undici's own options.
 * @throws TypeError that names a bad option and the fix
 * @example const transport = createTransport({ maxSockets: 50, http2: true });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  return new UndiciTransport(toAgentOptions(options));
}

/**
 * Creates a transport that sends requests through a dispatcher of undici, or through an `Agent` that it creates from undici's
 * own options. Use it for undici's proxy agents (`ProxyAgent`, `EnvHttpProxyAgent`, `Socks5ProxyAgent`), for tests with
 * `MockAgent`, for an agent that the app already has, or for options that a pool lacks. Install the package `undici` beside
 * this one.
 *
 * As with the proxy's own transport, bodies are neither decoded nor changed, redirects are not followed, and each request is
 * sent once. The proxy's deadlines apply; undici's `headersTimeout` and `bodyTimeout` are off for these requests. Only the
 * dispatcher limits the time to connect, so that `connectTimeout` of a request has no effect. A target with a unix socket or
 * TLS options is refused: set these on the dispatcher.
 *
 * These guarantees do not cover what a dispatcher does on its own. `RetryAgent` and the interceptors `retry` and `redirect`
 * send requests again or to another origin, with their credentials, whatever the proxy's options `retry`, `followRedirects` and
 * `redirectTargets` say. The interceptors `decompress`, `cache` and `responseError` change responses. An interceptor that
 * changes the parsed headers of a response must change `controller.rawHeaders`, too. HTTP/2 loses repeated header fields, the
 * case of their names, and reason phrases. With a dispatcher or a `connect` function of the app, the lines of a repeated
 * request field are sent together, at the place of the first line.
 * @param dispatcher a dispatcher, which the app itself closes; or options of an `Agent`, which the transport's `close()` and
 * `destroy()` close. By default, that agent speaks HTTP/1.1, opens as many connections to an origin as the default of the pool
 * option `maxSockets` allows, and keeps an idle one for 4 s
 * @throws TypeError for a value that is neither, and for options that undici refuses
 * @example
 * ```ts
 * import { ProxyAgent } from "undici";
 * import { createProxy, createUndiciTransport } from "fetchway/undici";
 *
 * const transport = createUndiciTransport(new ProxyAgent("http://proxy.internal:3128"));
 * export default createProxy({ target: "https://api.example", transport });
 * ```
 */
export function createUndiciTransport(dispatcher: Dispatcher | AgentOptions = {}): Transport {
  return isRecord(dispatcher) && !("dispatch" in dispatcher)
    ? new UndiciTransport(fillAgentOptions(dispatcher))
    : new DispatcherTransport(dispatcher as Dispatcher);
}

const runtime: Runtime = {
  ...nodeParts,
  createTransport,
  explainOption: (name, value) =>
    name === "dispatcher"
      ? "pass `transport: createUndiciTransport(dispatcher)`, made once"
      : nodeParts.explainOption?.(name, value),
};

/**
 * Forwards a request to a target and resolves to the response to return. All calls share the connections of one `Agent`.
 * @example app.all("/**", (event) => proxyFetch(event.req, "http://127.0.0.1:4000"));
 */
export const proxyFetch: ProxyFetch = /* @__PURE__ */ bindProxyFetch(runtime);

/**
 * Creates a proxy, which compiles its options once and has its own `Agent`. The option `pool` sets the options of that agent:
 * those that `createTransport` takes.
 * @throws TypeError that names a bad option and the fix
 * @example createServer(createProxy({ target: "http://127.0.0.1:4000" }).nodeHandler).listen(3000);
 */
export const createProxy: CreateProxy<NodeProxy> = /* @__PURE__ */ bindCreateProxy(
  runtime,
  (route) => addServerSide(route, runtime),
);
