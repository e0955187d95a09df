/**
 * The types and classes for a transport or an interceptor of your own: `fetchway/transport`.
 * @module
 */
export { BytesBody } from "./body/bytes.ts";
export { type Ownership, type ReadMemory, type Release, sharedMemory } from "./body/memory.ts";
export { PassBody, PassSink } from "./body/pass.ts";
export { type Inlet, ResponseBody } from "./body/responsebody.ts";
export type { BodySource, Sink, StreamOptions, WholeOptions } from "./body/source.ts";
export { StreamBody } from "./body/stream.ts";
export { toWebStream } from "./body/web.ts";
export { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "./error.ts";
export type { OriginalFields } from "./fields/amend.ts";
export { deleteHeader, getHeader, type HeaderList, setHeader } from "./fields/headers.ts";
export {
  parseTarget,
  type TargetAddress,
  type TargetOptions,
  type TlsOptions,
  type Upstream,
} from "./target/target.ts";
export type { Hints, UpstreamRequest, UpstreamResponse } from "./transport/message.ts";
export type { Capabilities, Interceptor, Transport } from "./transport/port.ts";
export type {
  AbortTarget,
  Client,
  Listener,
  ObservedConnection,
  Scope,
  Send,
} from "./transport/scope.ts";
export type { OriginStats, PoolStats } from "./transport/stats.ts";
export type { HandedSocket, Tunnel, TunnelHandler } from "./transport/tunnel.ts";
