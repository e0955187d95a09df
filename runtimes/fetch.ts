/**
 * The thin entry over a runtime's own HTTP client, its `fetch`: `fetchway/fetch`, and `fetchway` on runtimes without
 * a separate entry. On Bun and Deno, it is the alternative to Fetchway's own HTTP client; on Node, `fetchway/undici` is.
 *
 * It lacks everything that `fetch` does not support; docs/clients.md lists what each runtime's `fetch` loses. There are no unix
 * sockets, no TLS options, no options of connections (`pool`), and no `stats()`. The entry reads web requests only, so that
 * `X-Forwarded-For` lacks the client's address, unless the option `clientAddress` returns it.
 * @module
 */
import { createFetchTransport, STANDARD } from "../src/fetch/fetchtransport.ts";
import { inProcess } from "../src/fetch/standardapps.ts";
import { toHeaders } from "../src/fields/headers.ts";
import { refusePoolOptions } from "../src/options/check.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import { WebIncoming } from "../src/request/incoming.ts";
import type { Transport } from "../src/transport/port.ts";

export * from "../src/index.ts";

/**
 * Creates a transport that sends requests through the global `fetch`, which keeps its own connections.
 * @throws TypeError for any pool option except `connectTimeout`, which is accepted but has no effect
 */
export function createTransport(options: PoolOptions = {}): Transport {
  refusePoolOptions(options, "the connections are those of the global fetch");
  return createFetchTransport({
    name: "fetch",
    capabilities: STANDARD,
    fetch: (url, init) => fetch(url, init),
  });
}

const runtime: Runtime = {
  read: (request) => new WebIncoming(request, undefined),
  createTransport,
  respond: ({ status, statusText, headers, body }) =>
    new Response(body?.stream() ?? null, { status, statusText, headers: toHeaders(headers) }),
  inProcess,
};

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example export default { fetch: (request) => proxyFetch(request, "https://api.example") };
 */
export const proxyFetch: ProxyFetch = /* @__PURE__ */ bindProxyFetch(runtime);

/**
 * Creates a proxy that compiles its options once.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "https://api.example" });
 */
export const createProxy: CreateProxy = /* @__PURE__ */ bindCreateProxy(runtime);
