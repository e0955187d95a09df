import { isAuthority } from "../../src/request/host.ts";
import type { Incoming } from "../../src/request/incoming.ts";

/** Methods that the Fetch standard keeps from requests. */
const FORBIDDEN = /^(?:CONNECT|TRACE|TRACK)$/i;

/**
 * A request of `node:http` as a web one, without its body, for hooks: they can be asked about
 * all that a server takes. Where `Host` is no authority, the URL has a name that does not exist:
 * no part of `Host` may be read as the path, nor the path as part of the authority (CVE-2026-33131).
 */
export function toRequest(
  scheme: string,
  host: string,
  { method, path, headers }: Pick<Incoming, "method" | "path" | "headers">,
): Request {
  const isHost = isAuthority(host) && URL.canParse(`${scheme}://${host}`);
  const origin = `${scheme}://${isHost ? host : "_invalid_"}`;
  const isForbidden = FORBIDDEN.test(method);
  const request = new Request(origin + (path.startsWith("/") ? path : "/"), {
    method: isForbidden ? "GET" : method,
    headers: pairs(headers),
  });
  return isForbidden ? Object.defineProperty(request, "method", { value: method }) : request;
}

function pairs(list: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i < list.length; i += 2) result.push([list[i] as string, list[i + 1] as string]);
  return result;
}
