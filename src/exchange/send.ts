import type { BodySource } from "../body/source.ts";
import type { Scope } from "./scope.ts";
import { badOption, MisuseError } from "../options/misuse.ts";
import { toProxyError } from "../error.ts";
import type { UpstreamRequest, UpstreamResponse, Transport } from "../transport.ts";

/**
 * Sends a request to an upstream. Resolves to the response when its headers have arrived.
 *
 * A scope serves one attempt: each further attempt takes a new scope from `scope.again()`.
 */
export type Send = (request: UpstreamRequest, scope: Scope) => Promise<UpstreamResponse>;

/**
 * A step around sending: it may change the request and the response, send another request, or none at all.
 * @example
 * ```ts
 * const log: Interceptor = (next) => async (request, scope) => {
 *   const response = await next(request, scope);
 *   console.log(request.method, request.path, response.status);
 *   return response;
 * };
 * ```
 */
export type Interceptor = (next: Send) => Send;

/**
 * Wraps a `Send` in interceptors; the first interceptor is the outermost.
 */
export function compose(interceptors: readonly Interceptor[], send: Send): Send {
  return interceptors.reduceRight((next, intercept) => intercept(next), send);
}

/**
 * Wraps an interceptor of the app's in checks of what it passes on, and of what it returns.
 * @throws TypeError that says what to pass or to return instead
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
  // Another body has another length.
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

/**
 * Returns the innermost `Send`. It sends to an app in this process where the upstream is one, else over the network; it
 * decides for each request, because a redirect may lead from one to the other.
 */
export function sendThrough(transport: Transport, inProcess: Transport): Send {
  return (request, scope) =>
    (request.upstream.app === undefined ? transport : inProcess).send(request, scope);
}

/**
 * Converts the errors of a transport of the app's own, which may reject with anything: all but misuse is about the
 * network, and becomes a response. The runtimes' transports reject with nothing but a `ProxyError` or misuse.
 */
export const convertErrors: Interceptor = (next) => async (request, scope) => {
  try {
    return await next(request, scope);
  } catch (thrown) {
    throw thrown instanceof MisuseError ? thrown : toProxyError(thrown);
  }
};
