export type {
  CreateProxy,
  CreateProxyOptions,
  ExecutionContext,
  ExplainedField,
  ExplainingProxy,
  Explanation,
  Proxy,
  ProxyFetch,
  WaitingProxy,
} from "./proxy.ts";
export type { DnsOptions, PoolOptions } from "./options/pooloptions.ts";
export type { MaybeResponse, RequestDraft, HookOptions } from "./options/hookoptions.ts";
export type {
  RequestEnd,
  RequestTimings,
  WaitChange,
  ObservationOptions,
} from "./options/observationoptions.ts";
export type { ClientOptions } from "./options/clientoptions.ts";
export type { ForwardingOptions, Context } from "./options/forwardingoptions.ts";
export type { HeaderOptions } from "./options/headeroptions.ts";
export type { LimitOptions } from "./options/limitoptions.ts";
export type { Mirror, MirrorOptions } from "./options/mirroroptions.ts";
export type { PathOptions } from "./options/pathoptions.ts";
export type { ProxyOptions } from "./options/proxyoptions.ts";
export type { RepeatOptions, RetryOptions } from "./options/repeatoptions.ts";
export type { RewriteOptions } from "./options/rewriteoptions.ts";
export type {
  AnyTarget,
  Target,
  Choose,
  PickRequest,
  Result,
  Upstreams,
} from "./upstreams/upstreams.ts";
export type { TargetAddress, TargetOptions, TlsOptions } from "./target/target.ts";
export type { FetchTarget } from "./target/app.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export type { OriginStats, PoolStats } from "./transport/stats.ts";
export type { Transport } from "./transport/port.ts";
