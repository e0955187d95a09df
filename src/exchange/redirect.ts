import { replayOf } from "../body/replay.ts";
import { mayGoUnread } from "../body/source.ts";
import { getHeader, NameSet, toHeaders, withoutNames, type HeaderList } from "../fields/headers.ts";
import { refusePromise } from "../misuse.ts";
import { parseReference } from "../response/location.ts";
import { parseTarget, type Upstream } from "../target/target.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Interceptor } from "../transport/port.ts";

/** Returns whether a redirect may lead from one URL to another. */
export type RedirectPolicy = (from: URL, to: URL) => boolean;

export function compileRedirectPolicy(
  targets: "same-origin" | "any" | ((url: URL) => boolean),
): RedirectPolicy {
  if (targets === "same-origin") return (from, to) => from.origin === to.origin;
  if (targets === "any") return (from, to) => from.protocol === "http:" || to.protocol === "https:";
  return (_, to) => refusePromise(targets(to), "redirectTargets");
}

/** Fields that describe the content, and are dropped together with it (Fetch standard: request-body-header name). */
const ABOUT_CONTENT = new NameSet([
  "content-encoding",
  "content-language",
  "content-length",
  "content-location",
  "content-type",
]);

/**
 * Fields that authenticate a client to one origin. They must not be sent to another origin (CVE-2023-45143,
 * CVE-2024-30260).
 */
const CREDENTIALS: readonly string[] = ["authorization", "cookie", "proxy-authorization"];

/**
 * Follows redirects, up to a maximum number.
 *
 *     request → send → response
 *        ↑ nextHop(request, response) ↓
 *
 * @param max the maximum number of redirects
 * @param secrets names of further fields that only the first origin may get. Fields that hooks and interceptors have set
 * need no entry, because they are never sent to another origin
 */
export function followRedirects(
  max: number,
  allows: RedirectPolicy,
  secrets: readonly string[],
): Interceptor {
  return (next) => async (request, scope) => {
    // The fields that hooks and interceptors have set. If an interceptor has made a new request without
    // `headersBeforeHooks`, all of its fields count as set by the app, so that no other origin gets them.
    const added = changedFields(request.headersBeforeHooks ?? [], request.headers);
    const visited: string[] = [];
    // The upstream to which failover has sent the first request: references to it are rewritten in the last response.
    let home: Upstream | undefined;
    for (;;) {
      const response = await next(request, scope);
      home ??= response.upstream;
      request = { ...request, upstream: response.upstream ?? request.upstream };
      const finalResponse =
        visited.length === 0 ? response : { ...response, request, upstream: home };
      visited.push(describeHop(request));
      if (visited.length > max) return finalResponse;
      let following: UpstreamRequest | undefined;
      try {
        following = nextHop(request, response, allows, [...secrets, ...added]);
      } catch (thrown) {
        // `redirectTargets` has thrown.
        discardBody(response);
        throw thrown;
      }
      // Stop at a loop, because the same request would get the same response.
      if (following === undefined || visited.includes(describeHop(following))) return finalResponse;
      discardBody(response);
      request = following;
      scope = scope.again();
      // The redirect itself names the upstream of the next request, so no upstream is picked for it.
      scope.lease = undefined;
      if (scope.error !== undefined) throw scope.error;
    }
  };
}

/** Returns a text that is equal for two requests if they have the same method, origin and path. */
function describeHop({ method, upstream, path }: UpstreamRequest): string {
  return `${method} ${upstream.origin}${path}`;
}

/** Returns the names of the fields that were added or changed between two lists. */
export function changedFields(before: HeaderList, after: HeaderList): string[] {
  const known = toHeaders(before);
  return [...toHeaders(after)]
    .filter(([name, value]) => known.get(name) !== value)
    .map(([name]) => name);
}

/**
 * Makes the request that a redirect leads to. `request` is the previous request, not the first one, so that a field that
 * was dropped at an earlier redirect stays dropped.
 *
 * @param secrets names of fields that only the first origin may get
 * @returns undefined if the response is not a redirect, or is a redirect that must not or cannot be followed
 * @see https://fetch.spec.whatwg.org/#http-redirect-fetch
 */
export function nextHop(
  request: UpstreamRequest,
  { status, headers }: UpstreamResponse,
  allows: RedirectPolicy,
  secrets: readonly string[],
): UpstreamRequest | undefined {
  // A WebSocket client need not follow a redirect (RFC 6455 §4.1), and another upstream may not speak the protocol.
  if (!isRedirect(status) || request.upgrade !== undefined) return undefined;
  // `OPTIONS *` has no URL to which the reference in `Location` could be relative.
  if (request.path === "*") return undefined;
  const from = new URL(request.upstream.origin + request.path);
  const url = parseLocation(headers, from);
  if (url === undefined || !allows(from, url)) return undefined;

  const toGet =
    status === 303 ? !isSafe(request.method) : status < 303 && request.method === "POST";
  const body = toGet ? null : mayGoUnread(request) ? undefined : replayOf(request.body);
  if (body === undefined) return undefined;
  let fields = toGet ? withoutNames(request.headers, ABOUT_CONTENT) : request.headers;

  const next = {
    ...request,
    method: toGet ? "GET" : request.method,
    path: url.pathname + url.search,
    body,
    // A body with trailer fields is sent chunked, without a length.
    contentLength: body?.trailers === undefined ? body?.length : undefined,
    newConnection: false,
  };
  if (url.origin === request.upstream.origin) return { ...next, headers: fields };
  fields = withoutNames(fields, new NameSet([...CREDENTIALS, ...secrets]));
  // Drop the Unix socket, the client certificate and an explicit `Host`: they belong to the previous origin.
  return { ...next, headers: fields, upstream: parseTarget(url.origin), host: undefined };
}

function isRedirect(status: number): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

function isSafe(method: string): boolean {
  return method === "GET" || method === "HEAD";
}

/** Returns the URL in `Location`; undefined unless it is an HTTP or HTTPS URL without user and password. */
function parseLocation(headers: HeaderList, base: URL): URL | undefined {
  const location = getHeader(headers, "location");
  if (location === undefined) return undefined;
  const url = parseReference(location, base);
  if (url === null || url.username + url.password !== "") return undefined;
  return /^https?:$/.test(url.protocol) ? url : undefined;
}
