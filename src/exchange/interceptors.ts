import { LimitedBody, tooLarge } from "../body/limit.ts";
import { ReplayBody } from "../body/replay.ts";
import { type BodySource, mayGoUnread } from "../body/source.ts";
import { getHeaders } from "../fields/headers.ts";
import { badOption } from "../misuse.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Interceptor } from "../transport/port.ts";
import type { Send } from "../transport/scope.ts";

/**
 * Fields that the proxy itself writes, from the body and the target of a request. A second `Content-Length`, for example, could
 * make the upstream read a part of the body as another request.
 */
const FRAMING = /^(?:content-length|host|transfer-encoding)$/i;

/**
 * Wraps a `Send` in interceptors; the first interceptor is the outermost.
 */
export function compose(interceptors: readonly Interceptor[], send: Send): Send {
  return interceptors.reduceRight((next, intercept) => intercept(next), send);
}

/**
 * Wraps an interceptor of the app. The wrapper checks the request that the interceptor passes on, and the response that it
 * resolves to.
 * @throws TypeError that says what the interceptor must pass on or resolve to instead
 */
export function checkInterceptor(intercept: Interceptor): Interceptor {
  return (next) => {
    const send: unknown = intercept((request, scope) => next(checkRequest(request), scope));
    if (typeof send !== "function") {
      throw badOption(
        "interceptors",
        "return a function: (next) => (request, scope) => next(request, scope)",
      );
    }
    return async (request, scope) => checkResponse(await (send as Send)(request, scope));
  };
}

function checkRequest(request: UpstreamRequest): UpstreamRequest {
  const { upstream, body, contentLength } = request;
  if (typeof upstream?.host !== "string") {
    throw badOption("interceptors", "pass on an `upstream` that parseTarget(url) returned");
  }
  checkMessage(request, "pass on");
  if (request.headers.some((name, i) => i % 2 === 0 && FRAMING.test(name))) {
    throw badOption(
      "interceptors",
      "leave Content-Length, Transfer-Encoding and Host to the proxy",
    );
  }
  // The interceptor may have replaced the body, so take the length of the new body if it is known.
  const length = body?.length ?? contentLength;
  return length === contentLength ? request : { ...request, contentLength: length };
}

function checkResponse(response: UpstreamResponse | undefined): UpstreamResponse {
  if (response === undefined || response === null || response instanceof Response) {
    throw badOption(
      "interceptors",
      "resolve to { status, statusText, headers, body }, as `next` does, not to a web Response",
    );
  }
  checkMessage(response, "resolve to");
  const { headers, body } = response;
  const announced = getHeaders(headers, "content-length");
  // An upstream may send the same length several times (RFC 9110 §8.6).
  const lengths = new Set(announced.join().split(",").map(Number));
  if (announced.length > 0 && body?.length !== undefined) lengths.add(body.length);
  if (lengths.size > 1) {
    throw badOption("interceptors", "leave out the Content-Length of another body");
  }
  return response;
}

function checkMessage({ headers, body }: UpstreamRequest | UpstreamResponse, verb: string): void {
  const fix = !isHeaderList(headers)
    ? "`headers` as a list of strings, [name, value, name, value]"
    : !isBody(body)
      ? "a `body` that is null, new BytesBody(bytes) or new StreamBody(stream)"
      : undefined;
  if (fix !== undefined) throw badOption("interceptors", `${verb} ${fix}`);
}

function isHeaderList(value: unknown): boolean {
  if (!Array.isArray(value) || value.length % 2 !== 0) return false;
  return value.every((each) => typeof each === "string");
}

function isBody(value: BodySource | null): boolean {
  return (
    value === null || (typeof value?.whole === "function" && typeof value.cancel === "function")
  );
}

/**
 * Refuses request bodies above a limit with 413: immediately if the length is known, and otherwise when the bytes so far
 * exceed the limit. In the second case, the request to the upstream is aborted, so that the body cannot look complete to the
 * upstream.
 * @param limit the maximum length in bytes
 */
export function limitBody(limit: number): Interceptor {
  return (next) => (request, scope) => {
    const { body, contentLength } = request;
    if (body === null) return next(request, scope);
    if ((contentLength ?? body.length ?? 0) > limit) return Promise.reject(tooLarge(limit));
    return next({ ...request, body: new LimitedBody(body, limit, scope) }, scope);
  };
}

/**
 * Keeps a copy of each request body while it is sent, so that a redirect or another attempt can send it again.
 * @param limit the number of bytes above which no copy of a body is kept
 * @param methods the methods of the requests whose bodies are kept; undefined for all methods
 */
export function keepBody(limit: number, methods?: readonly string[]): Interceptor {
  return (next) => (request, scope) => {
    const { body, contentLength, method } = request;
    const isKept = limit > 0 && methods?.includes(method) !== false;
    // A body with `replay` is in memory already and needs no copy.
    if (body === null || body.replay !== undefined || !isKept || mayGoUnread(request)) {
      return next(request, scope);
    }
    return next({ ...request, body: new ReplayBody(body, limit, contentLength) }, scope);
  };
}
