import type { BodySource } from "../body/source.ts";
import { badOption, type MisuseError } from "../options/misuse.ts";
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
      throw badOption("interceptors", "return a function: (next) => (request, scope) => …");
    }
    return async (request, scope) => checkResponse(await (send as Send)(request, scope));
  };
}

function checkRequest(request: UpstreamRequest): UpstreamRequest {
  const { upstream, headers, body, contentLength } = request;
  if (typeof upstream?.host !== "string") {
    throw badOption("interceptors", "pass on an `upstream` that parseTarget(url) returned");
  }
  if (!isHeaderList(headers)) throw badHeaders("pass on");
  if (!isBody(body)) throw badBody("pass on");
  // The interceptor may have replaced the body by one of another length.
  const length = body?.length ?? contentLength;
  return length === contentLength ? request : { ...request, contentLength: length };
}

function checkResponse(response: UpstreamResponse | undefined): UpstreamResponse {
  if (response === undefined || response === null || response instanceof Response) {
    const fix =
      "resolve to { status, statusText, headers, body }, as `next` does; a web Response is none";
    throw badOption("interceptors", fix);
  }
  if (!isHeaderList(response.headers)) throw badHeaders("resolve to");
  if (!isBody(response.body)) throw badBody("resolve to");
  return response;
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

function badHeaders(verb: string): MisuseError {
  return badOption(
    "interceptors",
    `${verb} \`headers\` as a list of strings, [name, value, name, value]`,
  );
}

function badBody(verb: string): MisuseError {
  const fix = `${verb} a \`body\` that is null, new BytesBody(bytes) or new StreamBody(stream)`;
  return badOption("interceptors", fix);
}
