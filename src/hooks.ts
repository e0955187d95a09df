/** A request about to be sent. `onRequest` may change every field of it. */
export interface RequestDraft {
  /** Method, as it goes into the request line. */
  method: string;
  /** Path and query in origin-form, the target's already joined. */
  path: string;
  /** Fields without hop-by-hop ones, forwarding fields and `headers` already set. `host` overrides `Host`. */
  headers: Headers;
  /**
   * `undefined` sends the request's own body, `null` none. A stream that ends within a few milliseconds is sent with
   * its length, any other chunked.
   */
  body: string | Uint8Array | ReadableStream<Uint8Array> | null | undefined;
}

/** What a hook may answer with: a response of its own, or nothing. */
export type MaybeResponse = Response | void | Promise<Response | void>;
