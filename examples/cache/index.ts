/**
 * Caches small public responses in memory for the time that the upstream allows, and answers repeated requests from there:
 *
 *     npx srvx index.ts     # or with bun run, deno serve -A
 */
import { createProxy } from "fetchway";
import { BytesBody, getHeader, type Interceptor, type UpstreamResponse } from "fetchway/transport";

/** The kept responses by `Host` and URL, each with the time until which it may be used. */
const stored = new Map<string, UpstreamResponse & { until: number }>();

export const cache: Interceptor = (next) => async (request, scope) => {
  const { method, path, headers, upstream, body: content, host = "" } = request;
  const isShared = !["authorization", "cookie", "range"].some((name) => getHeader(headers, name));
  // The key does not include the request body, so a response to a request with a body is not cached (a QUERY has one, a GET
  // may).
  if (method !== "GET" || content !== null || !isShared) return next(request, scope);
  const url = `${host} ${upstream.origin}${path}`;
  const hit = stored.get(url);
  if (hit !== undefined && hit.until > Date.now()) return { ...hit };

  const response = await next(request, scope);
  const { status, headers: fields, body } = response;
  const seconds = /^public, max-age=(\d+)$/.exec(getHeader(fields, "cache-control") ?? "")?.[1];
  const isPlain = !["set-cookie", "vary"].some((name) => getHeader(fields, name));
  // `whole()` returns only a body that has arrived together with the header section, so that no client waits for the cache.
  const bytes =
    status === 200 && seconds && isPlain ? body?.whole({ joinUpTo: 65_536 }) : undefined;
  if (bytes === undefined) return response;
  if (stored.size >= 1000) stored.clear();
  const kept = {
    ...response,
    body: new BytesBody(bytes),
    until: Date.now() + Number(seconds) * 1000,
  };
  stored.set(url, kept);
  return { ...kept };
};

export default createProxy({ target: "http://127.0.0.1:4000", interceptors: { request: [cache] } });
