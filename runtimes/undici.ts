import type { Dispatcher } from "undici";
import type { Transport } from "../src/transport.ts";
import { DispatcherTransport, UndiciTransport } from "./undici/transport.ts";

/**
 * Sends requests through undici on Node: for its proxy agents (`ProxyAgent`, `EnvHttpProxyAgent`, `Socks5ProxyAgent`),
 * for tests with `MockAgent`, for HTTP/2 (`new Agent({ allowH2: true })`) or an agent that the app already has. undici is
 * a package to install beside this one.
 *
 * Bodies stay encoded and whole, redirects are not followed, and requests are sent once, as with the proxy's own client.
 * The deadlines are the proxy's: undici's `headersTimeout` and `bodyTimeout` are off for these requests. The time to
 * connect is the dispatcher's: `connectTimeout` has no effect. Unix sockets and TLS options of a target are refused: set
 * them on the dispatcher.
 *
 * What a dispatcher does by itself is outside these guarantees: `RetryAgent` and the interceptors `retry` and `redirect`
 * send requests again and elsewhere, with their credentials, past `retry`, `followRedirects` and `redirectTargets`;
 * `decompress`, `cache` and `responseError` change responses. Interceptors that change the parsed headers of a response
 * must change `controller.rawHeaders`, too. Over HTTP/2, repeated fields, their case and reason phrases are lost.
 * @param dispatcher where requests go; it stays the app's to close. By default an `Agent` that keeps up to 256 connections
 * to an origin for 4 s, is closed by the transport's `close()` and `destroy()`, and speaks HTTP/1.1
 * @throws TypeError for what is no dispatcher of undici's
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
