import type { Scope } from "./scope.ts";
import { badOption, MisuseError } from "./misuse.ts";
import { toProxyError } from "./error.ts";
import type { UpstreamRequest, UpstreamResponse, Transport } from "./transport.ts";

/**
 * Sends a request to an upstream, and resolves to the response when its headers have arrived.
 *
 * The scope ends with the attempt: another one takes `scope.again()`.
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
 * Puts interceptors around a `Send`; the first of them is the outermost.
 */
export function compose(interceptors: readonly Interceptor[], send: Send): Send {
  return interceptors.reduceRight((next, intercept) => intercept(next), send);
}

/**
 * An interceptor of the app's, whose results are checked.
 * @throws TypeError for one that does not return a function, or does not resolve to a response
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
 * Sends to the app that the upstream is, or over the network. A redirect may lead from the one to the other.
 * @param converts whether its errors become those of the network here, so that exceptions of the app's code around it
 * can be told from them; else the caller converts them, which saves each request a promise
 */
export function sendThrough(transport: Transport, inProcess: Transport, converts: boolean): Send {
  const send: Send = (request, scope) =>
    (request.upstream.app === undefined ? transport : inProcess).send(request, scope);
  if (!converts) return send;
  return async (request, scope) => {
    try {
      return await send(request, scope);
    } catch (thrown) {
      throw toNetworkError(thrown);
    }
  };
}

/** An error of a transport, which may be of the app's own and reject with anything: all but misuse is the network's. */
export function toNetworkError(thrown: unknown): unknown {
  return thrown instanceof MisuseError ? thrown : toProxyError(thrown);
}
