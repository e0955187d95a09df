import { callback, object } from "../schema/kinds.ts";
import { isRecord, type Schema } from "../schema/schema.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import type { Transport } from "../transport/port.ts";
import type { Send } from "../transport/scope.ts";
import type { LimitOptions } from "./limitoptions.ts";

/** Another upstream that gets copies of requests: what `mirrorTo` of `fetchway/mirror` returns. */
export interface Mirror {
  /**
   * Returns the function that copies the requests of one proxy. For each request, that function returns the request to send
   * in its place.
   * @param send sends a request through the transport
   * @param limits the options of the proxy that also limit the copies
   * @throws TypeError if the transport cannot reach the mirror
   */
  readonly copyThrough: (
    transport: Transport,
    send: Send,
    limits: Pick<LimitOptions, "timeout" | "bodyLimit">,
  ) => (
    request: UpstreamRequest,
    waitUntil: ((promise: Promise<unknown>) => void) | undefined,
  ) => UpstreamRequest;
}

/** The options about copies of requests for another upstream. */
export interface MirrorOptions {
  /**
   * Sends a copy of each request to another upstream as well, and discards the responses to the copies. `mirrorTo` of
   * `fetchway/mirror` makes the value from an origin or an object of settings.
   *
   * The client does not wait for a copy, and does not notice its failure: a copy is sent when the request has been sent with
   * its whole body (a request without a body is copied even if it then waits or fails), and at most 100 copies run at the same
   * time; further requests are not copied then. A copy ends after `timeout`, or after 60 s if that is `0`. It has the method,
   * the path, the header fields (with cookies and credentials) and the body that the target gets, after `onRequest`. It passes
   * through no interceptors, is sent only once, and follows no redirects; upgrades are not copied. On Workers, a copy is lost
   * when the response is over, unless `fetch` of a proxy gets the Worker's third argument, or `waitUntil` is set.
   * @example mirrorTo({ target: "http://127.0.0.1:4001", sample: 0.1 })
   */
  mirror?: Mirror;
  /**
   * Keeps a Worker running until the copy for `mirror` has been sent; set it for calls of `proxyFetch`. The `fetch` of
   * a proxy takes this function from the third argument of the Worker's handler. It has no effect on other runtimes.
   * @example (promise) => ctx.waitUntil(promise)
   */
  waitUntil?: (promise: Promise<unknown>) => void;
}

function isMirror(value: unknown): boolean {
  return isRecord(value) && typeof value["copyThrough"] === "function";
}

export const mirrorSchema: Schema<MirrorOptions> = {
  mirror: {
    kind: object(isMirror, 'write `mirrorTo("http://…")`, from fetchway/mirror'),
  },
  waitUntil: { kind: callback },
};
