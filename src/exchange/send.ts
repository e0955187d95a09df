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
 * Wraps an interceptor of the app's in checks of its results.
 * @throws TypeError if the interceptor does not return a function, or the function does not resolve to a response
 */
export function checkResults(intercept: Interceptor): Interceptor {
  return (next) => {
    const send: unknown = intercept(next);
    if (typeof send !== "function") {
      throw badOption("interceptors", "return a function: (next) => (request, scope) => …");
    }
    return async (request, scope) => {
      const response = await (send as Send)(request, scope);
      if (Array.isArray(response?.headers)) return response;
      throw badOption(
        "interceptors",
        "resolve to a response: (next) => async (request, scope) => …",
      );
    };
  };
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
