/** What Node's own request says beside its fields. */
import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { TLSSocket } from "node:tls";
import { badRequest, type ProxyError } from "../../src/error.ts";
import { getHeader } from "../../src/fields/headers.ts";
import { authorityEnd } from "../../src/request/target.ts";
import type { HeaderList } from "../../src/transport.ts";

/** Not by the version: the client chooses that, and Node's HTTP/1 parser takes 0.9 and 2.0 as well. */
export function isHttp2(req: object): req is Http2ServerRequest {
  return "stream" in req;
}

/**
 * The error of a version that is not this protocol's.
 *
 * Node's HTTP/1 parser takes `HTTP/2.0` and `HTTP/0.9` in a request line, and a line without a version
 * for HTTP/0.9. A server that cannot answer in a request's major version says 505 (RFC 9110 §15.6.6).
 */
export function versionFault(req: IncomingMessage): ProxyError | undefined {
  return req.httpVersionMajor === 1 || isHttp2(req) ? undefined : badRequest("HTTP version", 505);
}

/** The authority of a target in absolute-form (RFC 9112 §3.2.2), or of `:authority` (RFC 9113 §8.3.1). */
export function namedAuthority(req: IncomingMessage): string | undefined {
  const { url = "" } = req;
  if (isHttp2(req)) return getHeader(req.rawHeaders, ":authority");
  if (url.startsWith("/") || !url.includes("://")) return undefined;
  return url.slice(url.indexOf("//") + 2, authorityEnd(url));
}

/** What URL parsers resolve or cut off: the router then saw another path than the one on the wire. */
const RESOLVED = /[\\#]|\/(?:\.|%2e){1,2}(?:[/?]|$)/i;

/**
 * The path of a request's URL with the bytes it came in, if the server only
 * escaped some of them: as UTF-8, what were other bytes before.
 */
export function wirePath(path: string, url: string, { url: wire = "" }: IncomingMessage): string {
  if (path === wire || !wire.startsWith("/") || RESOLVED.test(wire)) return path;
  const base = url.slice(0, authorityEnd(url));
  return URL.parse(base + wire)?.href === url ? wire : path;
}

/** Whether an HTTP/1 message has content (RFC 9112 §6.3). */
export function hasBody({ rawHeaders }: IncomingMessage): boolean {
  return (
    getHeader(rawHeaders, "transfer-encoding") !== undefined ||
    Number(getHeader(rawHeaders, "content-length") ?? 0) > 0
  );
}

/** The length of a message's content in bytes, where the message says it. */
export function contentLengthOf({ rawHeaders }: IncomingMessage): number | undefined {
  const length = getHeader(rawHeaders, "content-length");
  return length === undefined ? undefined : Number(length);
}

/** Whether a message of either version has content. */
export function messageHasBody(req: IncomingMessage): boolean {
  return isHttp2(req) ? !req.stream.endAfterHeaders : hasBody(req);
}

/**
 * The fields of an HTTP/2 request as HTTP/1 has them: without `:method` and its like, which are no fields
 * (RFC 9113 §8.3), and with one Cookie made of all its parts (RFC 9113 §8.2.3).
 */
export function toFields(raw: HeaderList): HeaderList {
  const fields: HeaderList = [];
  let cookieAt = -1;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (name.startsWith(":")) continue;
    if (name.toLowerCase() !== "cookie") fields.push(name, value);
    else if (cookieAt >= 0) fields[cookieAt] += `; ${value}`;
    else cookieAt = fields.push(name, value) - 1;
  }
  return fields;
}

const MAPPED_IPV4 = "::ffff:";

/** The peer's address; an IPv4 one as such, although a dual-stack socket maps it. */
export function addressOf(req: IncomingMessage): string | undefined {
  const address = req.socket.remoteAddress;
  return address?.startsWith(MAPPED_IPV4) && address.includes(".")
    ? address.slice(MAPPED_IPV4.length)
    : address;
}

/** Whether the request came over TLS. */
export function isSecure(req: IncomingMessage): boolean {
  return (req.socket as TLSSocket).encrypted;
}
