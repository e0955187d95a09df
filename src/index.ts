export type {
  CreateProxy,
  CreateProxyOptions,
  ExecutionContext,
  Proxy,
  ProxyFetch,
} from "./proxy.ts";
export type { DnsOptions, PoolOptions } from "./options/pooloptions.ts";
export type { MaybeResponse, RequestDraft } from "./exchange/hooks.ts";
export type { RequestEnd, RequestTimings } from "./exchange/observation.ts";
export type { ClientOptions } from "./options/clientoptions.ts";
export type { ForwardingOptions } from "./options/forwardingoptions.ts";
export type { HeaderOptions } from "./options/headeroptions.ts";
export type { HookOptions } from "./options/hookoptions.ts";
export type { LimitOptions } from "./options/limitoptions.ts";
export type { MirrorOptions, MirrorSettings } from "./options/mirroroptions.ts";
export type { ObservationOptions } from "./options/observationoptions.ts";
export type { PathOptions } from "./options/pathoptions.ts";
export type { ProxyOptions } from "./options/proxyoptions.ts";
export type { RepeatOptions, RetryOptions } from "./options/repeatoptions.ts";
export type { RewriteOptions } from "./options/rewriteoptions.ts";
export type {
  AnyTarget,
  Target,
  TargetAddress,
  TargetOptions,
  TlsOptions,
} from "./request/target.ts";
export type { Choose, PickRequest, Result, Upstreams } from "./upstreams/upstreams.ts";
export type { FetchTarget } from "./request/app.ts";
export type { Context } from "./request/incoming.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export type { OriginStats, PoolStats, Transport } from "./transport.ts";
