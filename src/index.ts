export type { CreateProxyOptions, Proxy, ProxyFetch } from "./proxy.ts";
export type { DnsOptions, PoolOptions } from "./pool.ts";
export type { MaybeResponse, RequestDraft } from "./hooks.ts";
export type { RetryOptions } from "./retry.ts";
export type { ProxyOptions } from "./options.ts";
export type { Target, TargetAddress, TargetOptions, TlsOptions } from "./target.ts";
export type { FetchTarget } from "./app.ts";
export type { Context } from "./incoming.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export type {
  Capabilities,
  HeaderList,
  Hop,
  OriginalFields,
  OriginStats,
  PoolStats,
  Reply,
  Transport,
} from "./transport.ts";
export type { Upstream } from "./target.ts";
export type { Abortable, Lifetime, Listener, Stoppable } from "./deadline.ts";
