import type { Incoming } from "../../src/incoming.ts";

/** Methods that the Fetch standard keeps from requests. */
const FORBIDDEN = /^(?:CONNECT|TRACE|TRACK)$/i;

/**
 * A request of `node:http` as a web one, without its body, for hooks: they can be asked about
 * all that a server takes. Where `Host` is no authority its URL names nobody: nothing after it
 * may be read as part of it, or it as part of the path (CVE-2026-33131).
 */
export function toRequest(
  scheme: string,
  host: string,
  { method, path, headers }: Pick<Incoming, "method" | "path" | "headers">,
): Request {
  const isHost = !/[\s/?#@\\]/.test(host) && URL.canParse(`${scheme}://${host}`);
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
