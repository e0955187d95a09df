import type { ProxyError } from "../error.ts";
import type { AttemptOptions } from "../exchange/repeat.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Incoming } from "../request/incoming.ts";
import type { Reach, TargetAddress } from "../target/target.ts";
import type { UpstreamResponse } from "../transport/message.ts";
import type { Transport } from "../transport/port.ts";
import type { Claim } from "../transport/claim.ts";
import type { Lease, Scope } from "../transport/scope.ts";
import type { UpstreamState } from "../transport/stats.ts";

/** The type of `choose`, the function with which a target with several upstreams sends requests. */
export interface Choose {
  /**
   * @internal Picks the upstream of a request. Returns a promise if the request has to wait for an upstream.
   * @param reach parses a target, and throws for one that the transport cannot reach
   * @throws ProxyError 503 if no upstream can take the request
   */
  (
    upstreams: Upstreams,
    client: Incoming,
    transport: Transport,
    scope: Scope,
    options: AttemptOptions,
    reach?: Reach,
  ): Lease | Promise<Lease>;
}

/** The parts of a client's request on which the choice of an upstream may depend. */
export interface PickRequest {
  /** The method. */
  readonly method: string;
  /** The path and query, as the client sent them. */
  readonly path: string;
  /** The header fields, as the client sent them. */
  readonly headers: HeaderList;
  /** The IP address of the client's connection, where it is known. */
  readonly clientAddress: string | undefined;
  /** Whether the client has disconnected, or a deadline has passed, while the request waits for an upstream. */
  readonly isAborted?: boolean;
  /**
   * A function that a target may set when the request has to wait. The proxy calls it when the request no longer needs a
   * place, so that the request leaves the queue immediately.
   */
  leave?: (() => void) | undefined;
  /**
   * @internal What a queue needs to know about the request: which client it is from, and how many bytes that client has taken
   * or sent.
   */
  readonly claim?: Claim;
  /** @internal Set like `leave`: returns the error for a time limit that passes while the request waits. */
  explainTimeout?: (() => ProxyError | undefined) | undefined;
  /** @internal The error for the client, which a target sets when its queue refuses the request. */
  refusal?: ProxyError | undefined;
}

/** The outcome of an attempt. */
export interface Result {
  /** The target that `pick` returned. */
  readonly target: TargetAddress;
  /** The object with which `pick` was called for this attempt; each attempt has its own. The proxy always sets it. */
  readonly request?: PickRequest;
  /** The status of the response; undefined if there was none. */
  readonly status: number | undefined;
  /** Why there was no response, or why the body of the response broke off; undefined otherwise, as for a complete 500. */
  readonly error: ProxyError | undefined;
  /** Milliseconds until the response headers arrived, or until the attempt failed. */
  readonly latency: number;
  /**
   * Whether the attempt is over. A response is reported twice: when its headers have arrived, and when its body or its
   * tunnel has ended. An attempt without a response is reported once.
   */
  readonly isOver: boolean;
  /**
   * Whether the whole request body had been sent; true without a body. If it is false, a timeout says nothing about the
   * upstream, which may have waited for the client. Undefined in the second report of a response, and if the place was given
   * back.
   */
  readonly isUploaded?: boolean | undefined;
  /**
   * False if the attempt gave back its place at the upstream before it sent anything. In all other reports, the proxy does not
   * set it.
   */
  readonly isSent?: boolean;
}

/** Keeps clients at the upstream that has answered them, by a field that the clients send back, such as a cookie. */
export interface ClientKeeper {
  /** Removes the fields that no upstream may get from the header fields of a request, in place. */
  cut(headers: HeaderList): void;
  /**
   * Returns fields to add to the response to a client.
   * @param target the target that has answered
   * @param request the object with which `pick` was called for the attempt
   * @param response the response, as the client would get it
   * @param isSecure whether the client's connection has TLS, according to trusted proxies
   */
  fieldsFor(
    target: TargetAddress,
    request: PickRequest,
    response: UpstreamResponse,
    isSecure: boolean,
  ): HeaderList;
}

/** A change of an upstream's state, after which it gets no more requests, or gets requests again. */
export interface StateChange {
  /** The text that identifies the upstream, as in `UpstreamState`. */
  readonly name: string;
  /**
   * `up` includes the slow start. `ejected` lasts until the probe or enough checks have succeeded. `down` means that active
   * checks have failed.
   */
  readonly state: "up" | "ejected" | "down";
  /** The state before the change. */
  readonly previous: "up" | "ejected" | "down";
  /** The reason for the change, such as `5 failures in a row, last: connection_refused` or `3 checks failed, last: 404`. */
  readonly reason: string;
}

/**
 * A target with several upstreams, of which one is picked for each attempt. All upstreams need the same base path and
 * query.
 * @example
 * ```ts
 * import { choose, type Upstreams } from "fetchway/upstreams";
 *
 * const hosts = ["http://10.0.0.1:4000", "http://10.0.0.2:4000"];
 * let turn = 0;
 * const turns: Upstreams = {
 *   choose,
 *   pick(_, tried) {
 *     const left = hosts.filter((host) => !tried.includes(host));
 *     return left[turn++ % left.length];
 *   },
 * };
 * ```
 */
export interface Upstreams {
  /** Sends requests to the target that `pick` returns. Set it to `choose` of `fetchway/upstreams`. */
  readonly choose: Choose;
  /**
   * Returns the target for an attempt, or a promise if the attempt has to wait. Returns undefined if no upstream can take the
   * attempt. For the first attempt of a request, the client gets 503 in that case, unless the request waits (`wait`).
   * @param tried the targets that earlier attempts of the same request were sent to
   */
  pick(
    request: PickRequest,
    tried: readonly TargetAddress[],
  ): TargetAddress | undefined | Promise<TargetAddress | undefined>;
  /** Called with the result of an attempt. */
  report?(result: Result): void;
  /** Keeps clients at their upstream. */
  readonly keeper?: ClientKeeper | undefined;
  /**
   * Returns whether one more attempt may be made for a request that failed. Return false to stop retries during an outage.
   */
  mayRetry?(): boolean;
  /** Returns the number of seconds after which a client that got 503 may try again. */
  retryAfter?(): number;
  /**
   * One of the targets, to prepare a request that waits (`wait`) because `pick` has returned undefined. Without
   * `anyTarget`, that request gets 503 immediately.
   */
  readonly anyTarget?: TargetAddress | undefined;
  /** The number of requests that wait for an upstream, for `stats()`. */
  readonly waiting?: number;
  /** Returns the state of each upstream, for `stats()`. */
  states?(): readonly UpstreamState[];
  /**
   * Called with the transport of a proxy before the first request through that transport, and before its first request after
   * `close`.
   */
  start?(transport: Transport): void;
  /**
   * Stops checks and lookups in the background. A proxy calls this when it is closed; other proxies may use the target
   * later.
   */
  close?(): void;
}

/** One target, or several upstreams of which one is picked for each attempt. */
export type AnyTarget = TargetAddress | Upstreams;

/** A target, or a function that returns the target for each request. */
export type Target = AnyTarget | ((request: Request) => AnyTarget | Promise<AnyTarget>);
