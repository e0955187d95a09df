import { amend } from "../../src/fields/amend.ts";
import { getHeader, toHeaders } from "../../src/fields/headers.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { checkChoices } from "../../src/websocket/handshake.ts";

/** workerd's `ResponseInit`. */
interface Init extends ResponseInit {
  /** `manual` means that the body is encoded already. By default, workerd encodes a body as `Content-Encoding` says. */
  encodeBody: "manual" | undefined;
}

/** Builds the `Response` that a Worker returns. */
export function respond(
  { status, statusText, headers, body, webSocket, hints = {} }: UpstreamResponse,
  _incoming?: Incoming,
  request?: UpstreamRequest,
): Response {
  const { fields, isEncoded } = hints;
  const init: Init = {
    status,
    // workerd throws for a reason phrase with characters outside of printable ASCII.
    statusText: /^[ -~]*$/.test(statusText) ? statusText : "",
    headers: fields ? amend(fields, headers) : toHeaders(headers),
    encodeBody: isEncoded ? "manual" : undefined,
  };
  if (webSocket !== undefined) {
    // workerd has checked the other fields of an upstream's 101. The 101 of an app in this isolate needs no check, because it
    // answers no handshake that the proxy has sent.
    if (request?.upstream.app === undefined) checkChoices(headers, request?.headers ?? []);
    // workerd connects the client with this WebSocket.
    return new Response(null, Object.assign(init, { webSocket: webSocket.socket }));
  }
  const content = (body?.whole() ?? body?.stream() ?? null) as BodyInit | null;
  const source = hasSources && fields && content !== null ? sources.get(fields.headers) : undefined;
  if (source !== undefined && getHeader(headers, "content-encoding") !== undefined) {
    return correctClone(copyResponse(source, content, init));
  }
  const response = new Response(content, init);
  return isEncoded ? correctClone(response) : response;
}

/** The responses of apps in the same isolate, by their `Headers`. The hints of an upstream response contain these `Headers`. */
const sources = new WeakMap<Headers, Response>();
/** Whether `sources` was ever used. If not, `respond` skips the lookup. */
let hasSources = false;

/** Remembers a response of an app in the same isolate, which `respond` may have to copy, and returns it. */
export function rememberResponse(response: Response): Response {
  hasSources = true;
  sources.set(response.headers, response);
  return response;
}

/**
 * Copies an app's response, with other header fields. Only a copy keeps whether the body is encoded already
 * (`encodeBody: "manual"`) or workerd has to encode it: no property of a response shows this. A copy also keeps the status,
 * even if an interceptor has changed it.
 */
function copyResponse(source: Response, content: BodyInit | null, init: Init): Response {
  const response = new Response(content, source);
  const names = Array.from(response.headers.keys());
  for (const name of names) response.headers.delete(name);
  for (const [name, value] of init.headers as Headers) response.headers.append(name, value);
  return response;
}

/**
 * Corrects `clone()` of a response whose body is encoded already. workerd's own `clone()` loses `encodeBody: "manual"`, so
 * that a clone in a cache would be encoded twice.
 */
function correctClone(response: Response): Response {
  const clone = (): Response => {
    const { body } = Response.prototype.clone.call(response);
    // A response that is constructed with another response as its `init` keeps the `encodeBody` of that response.
    return correctClone(new Response(body, response));
  };
  return Object.defineProperty(response, "clone", { value: clone });
}
