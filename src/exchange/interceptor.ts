import type { BodySource } from "../body/source.ts";
import { badOption } from "../options/misuse.ts";
import type { Interceptor, Send } from "./send.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport.ts";

/**
 * Wraps a `Send` in interceptors; the first interceptor is the outermost.
 */
export function compose(interceptors: readonly Interceptor[], send: Send): Send {
  return interceptors.reduceRight((next, intercept) => intercept(next), send);
}

/**
 * Wraps an interceptor of the app in checks of the request that it passes on, and of the response that it resolves to.
 * @throws TypeError that says what to pass on or to resolve to instead
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
  // The interceptor may have replaced the body: take the length of the new body, where it is known.
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
