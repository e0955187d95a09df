import { badOption } from "../options/misuse.ts";

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

/**
 * The response that a hook has answered with, or undefined for none.
 * @param hook its name, for the message
 * @throws MisuseError for any other value: an arrow function may return what it was only meant to set
 */
export function takeAnswer(answer: unknown, hook: string): Response | undefined {
  if (!answer) return undefined;
  // Not by its class: servers have `Response` classes of their own.
  if (typeof answer === "object" && "status" in answer && "headers" in answer) {
    return answer as Response;
  }
  throw badOption(hook, `it returned a ${typeof answer}; return a Response, or nothing`);
}
