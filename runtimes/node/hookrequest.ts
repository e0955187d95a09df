import { isAuthority } from "../../src/request/host.ts";
import type { Incoming } from "../../src/request/incoming.ts";

/** Methods that the Fetch standard forbids in a `Request`. */
const FORBIDDEN = /^(?:CONNECT|TRACE|TRACK)$/i;

/**
 * Makes a web `Request` without a body of a request of `node:http`, for hooks. It succeeds for every request that a server
 * accepts. If `Host` is not an authority, the URL has a name that does not exist: no part of `Host` may be read as the
 * path, and no part of the path as the authority (CVE-2026-33131).
 */
export function toHookRequest(
  scheme: string,
  host: string,
  { method, path, headers }: Pick<Incoming, "method" | "path" | "headers">,
): Request {
  const isHost = isAuthority(host) && URL.canParse(`${scheme}://${host}`);
  const origin = `${scheme}://${isHost ? host : "_invalid_"}`;
  const isForbidden = FORBIDDEN.test(method);
  const request = new Request(origin + (path.startsWith("/") ? path : "/"), {
    method: isForbidden ? "GET" : method,
    headers: toPairs(headers),
  });
  return isForbidden ? Object.defineProperty(request, "method", { value: method }) : request;
}

function toPairs(list: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i < list.length; i += 2) result.push([list[i] as string, list[i + 1] as string]);
  return result;
}
