/**
 * The entry for Cloudflare Workers and workerd: `fetchway/workerd`, and `fetchway` on these runtimes.
 * @module
 */
import { createFetchTransport } from "../src/fetch/fetchtransport.ts";
import { createInProcessTransport } from "../src/fetch/inprocess.ts";
import { refusePoolOptions } from "../src/options/check.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport/port.ts";
import {
  WORKERS_CAPABILITIES,
  describeAppClient,
  describeNativeClient,
} from "./workerd/clients.ts";
import { readRequest } from "./workerd/readrequest.ts";
import { respond } from "./workerd/respond.ts";

export * from "../src/index.ts";

/**
 * Creates a transport that sends requests through workerd's `fetch`, which keeps its own connections.
 * @throws TypeError for any pool option except `connectTimeout`, which is accepted but has no effect
 */
export function createTransport(options: PoolOptions = {}): Transport {
  refusePoolOptions(options, "Workers have no connections of their own");
  return createFetchTransport(describeNativeClient((url, init) => fetch(url, init)));
}

const runtime: Runtime = {
  read: readRequest,
  createTransport,
  respond,
  inProcess: /* @__PURE__ */ createInProcessTransport(describeAppClient, WORKERS_CAPABILITIES),
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
