/**
 * A transport for Node that sends requests with undici: `fetchway/undici`.
 * @module
 */
import type { Dispatcher } from "undici";
import type { Transport } from "../src/transport/port.ts";
import { DispatcherTransport, UndiciTransport } from "./undici/undicitransport.ts";

/**
 * Creates a transport that sends requests through undici on Node. Use it for undici's proxy agents (`ProxyAgent`,
 * `EnvHttpProxyAgent`, `Socks5ProxyAgent`), for tests with `MockAgent`, for HTTP/2 (`new Agent({ allowH2: true })`), or for
 * an agent that the app already has. Install the package `undici` beside this one.
 *
 * As with the proxy's own transport, bodies are neither decoded nor changed, redirects are not followed, and each request
 * is sent once. The proxy's deadlines apply; undici's `headersTimeout` and `bodyTimeout` are off for these requests. Only
 * the time to connect is limited by the dispatcher, so that `connectTimeout` has no effect. A target with a unix socket or
 * TLS options is refused: set these on the dispatcher.
 *
 * These guarantees do not cover what a dispatcher does on its own. `RetryAgent` and the interceptors `retry` and `redirect`
 * send requests again or to another origin, with their credentials, whatever the proxy's options `retry`,
 * `followRedirects` and `redirectTargets` say.
 * The interceptors `decompress`, `cache` and `responseError` change responses. An interceptor that changes the parsed
 * headers of a response must change `controller.rawHeaders`, too. HTTP/2 loses repeated header fields, the case of their
 * names, and reason phrases. With a dispatcher that the app passes, the lines of a repeated request field are sent together,
 * at the place of the first one.
 * @param dispatcher the dispatcher to send requests through, which the app itself closes. By default, the transport makes
 * an `Agent` that speaks HTTP/1.1, opens up to 256 connections to an origin, and keeps an idle one for 4 s; the transport's
 * `close()` and `destroy()` close it
 * @throws TypeError for a value that is not a dispatcher of undici
 * @example
 * ```ts
 * import { ProxyAgent } from "undici";
 * import { createProxy } from "fetchway";
 * import { createUndiciTransport } from "fetchway/undici";
 *
 * const transport = createUndiciTransport(new ProxyAgent("http://proxy.internal:3128"));
 * export default createProxy({ target: "https://api.example", transport });
 * ```
 */
export function createUndiciTransport(dispatcher?: Dispatcher): Transport {
  return dispatcher === undefined ? new UndiciTransport() : new DispatcherTransport(dispatcher);
}
