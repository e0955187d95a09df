import { badRequest, ProxyError } from "../error.ts";
import { isAuthority, NAME_AND_PORT } from "../request/host.ts";
import type { HeaderList } from "../transport.ts";
import { trimOws } from "./whitespace.ts";

/** Fields about one connection, never about the message: RFC 9110 §7.6.1, and what came before and after it. */
const HOP_BY_HOP = [
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
] as const;

/** Not forwarded from a client: beside the above, what this proxy answers for itself or derives anew. */
export const REQUEST_DROPPED: readonly string[] = [
  ...HOP_BY_HOP,
  "content-length",
  "expect",
  "host",
  "proxy-authorization",
];

/**
 * What a client may not assert to the upstream, unless it is trusted. `x-forwarded-` stands for all that begin so.
 * The others say the same in names that upstreams believe and no vendor owns.
 */
export const REQUEST_ASSERTIONS: readonly string[] = [
  "forwarded",
  "x-forwarded-",
  "x-real-ip",
  "x-client-ip",
  "x-cluster-client-ip",
];

/** Not forwarded from an upstream. `alt-svc` would send clients past the proxy. */
const RESPONSE_DROPPED: readonly string[] = [...HOP_BY_HOP, "alt-svc", "proxy-authenticate"];

/**
 * A set of field names that is quick to ask: by length first, so that most
 * names are never lowercased. A name that ends in `-` stands for all that begin
 * with it. `_` counts as `-`, since CGI-like upstreams cannot tell
 * `X_Forwarded_For` from `X-Forwarded-For` (CVE-2026-30851).
 */
export class NameSet {
  readonly #byLength: (readonly string[])[];
  readonly #prefixes: string[];

  /** @param base a set whose names are in this set as well */
  constructor(names: Iterable<string>, base?: NameSet) {
    this.#byLength = base === undefined ? [] : base.#byLength.slice();
    this.#prefixes = base === undefined ? [] : base.#prefixes.slice();
    for (const name of names) {
      const lower = normalize(name);
      if (lower.endsWith("-")) this.#prefixes.push(lower);
      // The lists of the base are shared with it, so a longer list is a new one.
      else this.#byLength[lower.length] = [...(this.#byLength[lower.length] ?? []), lower];
    }
  }

  has(name: string): boolean {
    const candidates = this.#byLength[name.length];
    if (candidates !== undefined) {
      const lower = normalize(name);
      for (let i = 0; i < candidates.length; i++) if (candidates[i] === lower) return true;
    }
    for (let i = 0; i < this.#prefixes.length; i++) {
      const prefix = this.#prefixes[i] as string;
      // The first letter tells most names apart without a copy.
      if (name.length > prefix.length && (name.charCodeAt(0) | 0x20) === prefix.charCodeAt(0)) {
        if (normalize(name.slice(0, prefix.length)) === prefix) return true;
      }
    }
    return false;
  }
}

function normalize(name: string): string {
  const lower = name.toLowerCase();
  return lower.includes("_") ? lower.replaceAll("_", "-") : lower;
}

/** A request's fields without those that end at this proxy, and what those said. */
export interface RequestHead {
  readonly headers: HeaderList;
  /** `Host` as the client sent it. */
  readonly host: string | undefined;
  /** `Content-Length` as the client sent it. */
  readonly contentLength: number | undefined;
  /** `Upgrade` as the client sent it. */
  readonly upgrade: string | undefined;
}

/**
 * Drops from a request what may not go through: the names in `dropped`, and
 * those nominated by `Connection`. Stripping comes before anything is added, so
 * that nominating a field of the proxy's own does not remove it (CVE-2021-33197).
 *
 * @param kept names that stay although `dropped` has them
 * @throws ProxyError 400 for two `Host` fields or one that is no authority, 501 for a
 * transfer coding other than `chunked`
 */
export function cleanRequest(raw: HeaderList, dropped: NameSet, kept?: NameSet): RequestHead {
  const headers: HeaderList = [];
  let host: string | undefined;
  let contentLength: number | undefined;
  let connection: string | undefined;
  let upgrade: string | undefined;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (!dropped.has(name)) {
      headers.push(name, value);
      continue;
    }
    switch (name.length) {
      case 4:
        if (name.toLowerCase() !== "host") break;
        // Two name two places (RFC 9112 §3.2); a malformed one changes the URL made of it (CVE-2026-33131).
        if (host !== undefined || !(NAME_AND_PORT.test(value) || isAuthority(value)))
          throw badRequest("Host");
        host = value;
        continue;
      case 7:
        if (name.toLowerCase() !== "upgrade") break;
        upgrade = upgrade === undefined ? value : `${upgrade},${value}`;
        continue;
      case 10:
        if (name.toLowerCase() !== "connection") break;
        connection = connection === undefined ? value : `${connection},${value}`;
        continue;
      case 14:
        if (name.toLowerCase() !== "content-length") break;
        if (contentLength !== undefined || !/^\d{1,15}$/.test(value)) {
          throw badRequest("Content-Length");
        }
        contentLength = Number(value);
        continue;
      case 17:
        // Servers undo `chunked` and nothing else: other codings would arrive without a name (RFC 9112 §6.1).
        if (name.toLowerCase() === "transfer-encoding" && value.toLowerCase() !== "chunked") {
          throw badRequest("Transfer-Encoding", 501);
        }
        break;
    }
    if (kept?.has(name)) headers.push(name, value);
  }
  return { headers: withoutNominated(headers, connection), host, contentLength, upgrade };
}

/** Options of `Connection` that nominate no field. */
const CONNECTION_OPTIONS = new Set(["", "close", "keep-alive", "upgrade", "te"]);

/** Drops what `Connection` says belongs to the connection (RFC 9110 §7.6.1). */
function withoutNominated(headers: HeaderList, connection: string | undefined): HeaderList {
  // Nearly every Connection field says just this.
  if (connection === undefined || connection === "keep-alive" || connection === "close") {
    return headers;
  }
  const nominated = new Set<string>();
  for (const option of connection.split(",")) {
    const name = normalize(trimOws(option));
    if (!CONNECTION_OPTIONS.has(name)) nominated.add(name);
  }
  if (nominated.size === 0) return headers;
  const left: HeaderList = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!nominated.has(normalize(name))) left.push(name, headers[i + 1] as string);
  }
  return left;
}

const responseDropped = new NameSet(RESPONSE_DROPPED);

/**
 * Drops from a response what may not go through. `Content-Length` goes where it
 * cannot be true of what follows: beside `Transfer-Encoding` (RFC 9112 §6.3), and
 * on a 204 or 205, which have no content (RFC 9110 §8.6, §15.3.6).
 * @throws ProxyError 502 for a transfer coding that is still on the body
 */
export function cleanResponse(status: number, raw: HeaderList): HeaderList {
  const headers: HeaderList = [];
  let connection: string | undefined;
  let unsized = status === 204 || status === 205;
  let lengthAt = -1;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (responseDropped.has(name)) {
      if (name.length === 10 && name.toLowerCase() === "connection") {
        connection = connection === undefined ? value : `${connection},${value}`;
      } else if (name.length === 17 && name.toLowerCase() === "transfer-encoding") {
        // Not every parser cuts off the white space behind a value.
        if (!/^(?:chunked|identity)[\t ]*$/i.test(value)) {
          throw new ProxyError("http_response_transfer_coding", {
            message: `upstream sent ${value}`,
          });
        }
        unsized = true;
      }
      continue;
    }
    if (name.length === 14 && name.toLowerCase() === "content-length") lengthAt = headers.length;
    headers.push(name, value);
  }
  if (unsized && lengthAt >= 0) headers.splice(lengthAt, 2);
  return withoutNominated(headers, connection);
}

/** A list without the fields in `names`. */
export function withoutNames(list: HeaderList, names: NameSet): HeaderList {
  const left: HeaderList = [];
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    if (!names.has(name)) left.push(name, list[i + 1] as string);
  }
  return left;
}

/** Returns a list with one field of this name, in place of all that the list has. */
export function setHeader(headers: HeaderList, name: string, value: string): HeaderList {
  return [...deleteHeader(headers, name), name, value];
}

/** Returns a list without the fields of this name. */
export function deleteHeader(headers: HeaderList, name: string): HeaderList {
  return withoutNames(headers, new NameSet([name]));
}

/** The first value of a field, compared without case. */
export function getHeader(headers: HeaderList, lower: string): string | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (name.length === lower.length && name.toLowerCase() === lower) return headers[i + 1];
  }
  return undefined;
}

/** Whether a response is a stream of events, which may be silent for as long as it likes. */
export function isEventStream(headers: HeaderList): boolean {
  return /^text\/event-stream\b/i.test(getHeader(headers, "content-type") ?? "");
}

/** A flat list as `Headers`. */
export function toHeaders(list: HeaderList): Headers {
  const headers = new Headers();
  for (let i = 0; i < list.length; i += 2) headers.append(list[i] as string, list[i + 1] as string);
  return headers;
}

/** `Headers` as a flat list; several `Set-Cookie` stay several. */
export function toHeaderList(headers: Headers): HeaderList {
  const list: HeaderList = [];
  // Iteration yields each Set-Cookie by itself on every runtime.
  for (const [name, value] of headers) list.push(name, value);
  return list;
}
