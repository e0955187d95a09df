import type { Observation } from "../exchange/observation.ts";
import type { Context } from "../options/forwardingoptions.ts";
import type { RequestDraft } from "../options/hookoptions.ts";
import type { Plan } from "../plan.ts";
import type { Incoming } from "../request/incoming.ts";
import type { Upstream } from "../target/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Scope } from "../transport/scope.ts";
import type { Target } from "../upstreams/upstreams.ts";

/**
 * A value, or a promise of it. A step that returns the value itself costs no promise, and the next step runs synchronously.
 */
export type MaybePromise<T> = T | Promise<T>;

/**
 * Makes the `Response` that the runtime's server sends to the client.
 * @param request the request that the upstream has answered; undefined for the proxy's own response
 */
export type Respond = (
  response: UpstreamResponse,
  incoming: Incoming,
  request?: UpstreamRequest,
) => MaybePromise<Response>;

/** One step of the pipeline. It returns undefined to continue with the next step, or a response that ends the exchange. */
export type Step = (exchange: Exchange) => MaybePromise<Response | undefined>;

/** The state of one exchange. A step reads what earlier steps have set. */
export interface Exchange {
  readonly incoming: Incoming;
  readonly plan: Plan;
  readonly context: Context;
  readonly respond: Respond;
  readonly observation: Observation | undefined;
  /** The target. If the app passes a function, `resolveTarget` replaces it by the target that the function returns. */
  target: Target;
  /** Resolves when the earlier requests on the client's connection are finished; undefined if there are none. */
  turn: Promise<void> | undefined;
  /** The scope of the exchange; undefined until the deadline starts. */
  scope: Scope | undefined;
  upstream: Upstream | undefined;
  path: string;
  /** The request to the upstream. */
  request: UpstreamRequest | undefined;
  /** The draft that `onRequest` may change; undefined without that hook. */
  draft: RequestDraft | undefined;
  /** The upstream's response: as received, and after `cleanReceived` without the fields that must not be forwarded. */
  cleaned: UpstreamResponse | undefined;
  /** The response to the client. */
  response: Response | undefined;
}

/** An exchange whose deadline has started. */
export type Started = Exchange & { scope: Scope };
/** An exchange whose request is prepared. */
export type Sendable = Started & { request: UpstreamRequest };
/** An exchange whose response headers have arrived. */
export type Answered = Sendable & { cleaned: UpstreamResponse; response: Response };
