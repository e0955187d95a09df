import { badOption } from "../options/misuse.ts";
import { BytesBody } from "../body/bytes.ts";
import { encodeText } from "../body/memory.ts";
import type { BodySource } from "../body/source.ts";
import { UnframedBody } from "../body/unframed.ts";
import { REQUEST_DERIVED, toHeaderList, toHeaders } from "../fields/headers.ts";
import type { ProxyOptions } from "../options/proxyoptions.ts";
import type { Incoming } from "../request/incoming.ts";
import { cleanRequestHeaders } from "../request/outgoing.ts";
import { assertSendable, isAsterisk } from "../request/target.ts";
import type { UpstreamRequest } from "../transport.ts";
import { type Client, replaceInform } from "./scope.ts";

/** A request that is about to be sent. `onRequest` may change every member of it. */
export interface RequestDraft {
  /** The method, as it goes into the request line. */
  method: string;
  /** The path and query in origin-form. They begin with the base path and the query of the target. */
  path: string;
  /**
   * The header fields. Hop-by-hop fields are removed already, and the forwarding fields and those of the option `headers`
   * are set. A field `host` sets the `Host` of the request to the upstream.
   */
  headers: Headers;
  /**
   * The body to send instead of the request's own body: `undefined` keeps the request's own body, and `null` sends no
   * body. A stream that ends within a few milliseconds is sent with its length, any other stream with the chunked coding.
   */
  body: string | Uint8Array | ReadableStream<Uint8Array> | null | undefined;
}

/** What a hook may return: a response to send to the client instead, or nothing. */
export type MaybeResponse = Response | void | Promise<Response | void>;

/**
 * Returns the response that a hook has returned, or undefined if it has returned nothing.
 * @param hook the name of the hook, for the message
 * @throws MisuseError for any other value: an arrow function may return a value by mistake
 */
export function readHookResponse(returned: unknown, hook: string): Response | undefined {
  if (!returned) return undefined;
  // Do not check the class: some servers have a `Response` class of their own.
  if (typeof returned === "object" && "status" in returned && "headers" in returned) {
    return returned as Response;
  }
  throw badOption(hook, `it returned a ${typeof returned}; return a Response, or nothing`);
}

/** Returns the client of an exchange whose interim responses the hook `onInformational` sees before the client does. */
export function observeInterim(
  incoming: Incoming,
  hook: NonNullable<ProxyOptions["onInformational"]>,
): Client {
  return replaceInform(incoming, (status, headers) => {
    const observed = hook(status, toHeaders(headers), incoming.request());
    void incoming.inform?.(status, headers);
    return observed;
  });
}

/** Makes the draft of a request for `onRequest`. */
export function toDraft(request: UpstreamRequest): RequestDraft {
  return {
    method: request.method,
    path: request.path,
    headers: toHeaders(request.headers),
    body: undefined,
  };
}

/**
 * Returns the request with the changes that `onRequest` has made in its draft. Framing fields in the draft are dropped:
 * the message framing always follows from the body.
 */
export function fromDraft(request: UpstreamRequest, draft: RequestDraft): UpstreamRequest {
  if (!isAsterisk(draft.path, draft.method)) assertSendable(draft.path);
  if (request.upgrade !== undefined && (draft.method !== "GET" || draft.body)) {
    throw badOption("onRequest", "leave the method and the body of an upgrade as they are");
  }
  const { headers, host } = cleanRequestHeaders(toHeaderList(draft.headers), REQUEST_DERIVED);
  const changed: UpstreamRequest = {
    ...request,
    method: draft.method,
    path: draft.path,
    headers,
    host: host ?? request.host,
  };
  if (draft.body === undefined) return changed;
  const body = toBodySource(draft.body);
  return { ...changed, body, contentLength: undefined, trailer: undefined };
}

function toBodySource(body: NonNullable<RequestDraft["body"]> | null): BodySource | null {
  if (body === null) return null;
  if (body instanceof ReadableStream) return new UnframedBody(body);
  return new BytesBody(typeof body === "string" ? encodeText(body) : body);
}
