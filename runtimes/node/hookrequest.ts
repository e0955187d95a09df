import { isAuthority } from "../../src/request/host.ts";
import type { Incoming } from "../../src/request/incoming.ts";

/** Methods that the Fetch standard forbids in a `Request`. */
const FORBIDDEN = /^(?:CONNECT|TRACE|TRACK)$/i;

/**
 * Converts a request of `node:http` to a web `Request` without a body, for hooks. It succeeds for every request that Node's
 * server accepts. If `Host` is not an authority, the URL gets a host name that does not exist: no part of `Host` may be
 * read as the path, and no part of the path as the authority (CVE-2026-33131).
 */
export function toHookRequest(
  scheme: string,
  host: string,
  { method, path, headers }: Pick<Incoming, "method" | "path" | "headers">,
): Request {
  const isHost = isAuthority(host) && URL.canParse(`${scheme}://${host}`);
  const origin = `${scheme}://${isHost ? host : "_invalid_"}`;
  const isForbidden = FORBIDDEN.test(method);
  const url = origin + (path.startsWith("/") ? path : "/");
  // Without options, undici allocates less memory for a `Request`.
  const request = isForbidden || method === "GET" ? new Request(url) : new Request(url, { method });
  // A list of pairs in the constructor's options would cost 4 KB more: undici iterates over each pair to convert it.
  for (let i = 0; i < headers.length; i += 2) {
    request.headers.append(headers[i] as string, headers[i + 1] as string);
  }
  return isForbidden ? Object.defineProperty(request, "method", { value: method }) : request;
}
