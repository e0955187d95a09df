/** The names of the fields that are dropped, from requests, responses and interim responses. */
import {
  foldName,
  getHeaders,
  type HeaderList,
  NameSet,
  trimOws,
  withoutNames,
} from "./headers.ts";

/**
 * Fields that describe one connection, not the message (RFC 9110 §7.6.1). They include `Proxy-Connection`, which is not
 * standard, and `HTTP2-Settings`, which belongs to an upgrade to HTTP/2.
 */
export const HOP_BY_HOP: readonly string[] = [
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** Fields that are not forwarded, although an app may set them, and `forwardHeaders` may make an exception. */
const REQUEST_REFUSED: readonly string[] = [
  // CGI-like upstreams take it for the variable HTTP_PROXY, the proxy of their own requests (httpoxy, CVE-2016-5385).
  "proxy",
  // It is meant for this proxy (RFC 9110 §11.7.2).
  "proxy-authorization",
];

/** Fields of the client's request that are not forwarded: they are meant for this proxy, or it writes its own values. */
export const REQUEST_DROPPED: readonly string[] = [
  ...HOP_BY_HOP,
  "content-length",
  "expect",
  "host",
  ...REQUEST_REFUSED,
];

/** Fields of a request that follow from its connection, body and target. No option and no hook sets them. */
export const REQUEST_DERIVED: NameSet = new NameSet(
  REQUEST_DROPPED.filter((name) => !REQUEST_REFUSED.includes(name)),
);

/**
 * Fields by which an untrusted client could claim another address, host or scheme: the standard ones, and those of proxies
 * and vendors that many upstreams trust.
 */
export const REQUEST_ASSERTIONS: NameSet = new NameSet(
  [
    "forwarded",
    "x-forwarded",
    "forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
  ],
  undefined,
  ["x-forwarded-"],
);

/** Fields that are never forwarded from an upstream. `Alt-Svc` would make clients bypass the proxy. */
export const RESPONSE_DROPPED: NameSet = new NameSet([
  ...HOP_BY_HOP,
  "alt-svc",
  "proxy-authenticate",
]);

/**
 * Options of `Connection` that lead to no removal here: `close` is not the name of a field, `keep-alive`, `upgrade` and
 * `te` are removed as members of `HOP_BY_HOP`, and `""` is an empty member of the list.
 */
const CONNECTION_OPTIONS = new Set(["", "close", "keep-alive", "upgrade", "te"]);

/**
 * Drops the fields that the `Connection` field nominates: they belong to the connection (RFC 9110 §7.6.1).
 * @param connection the value of `Connection`, if there is one
 * @returns the list itself if no field is nominated
 */
export function withoutNominated(headers: HeaderList, connection: string | undefined): HeaderList {
  // Nearly every `Connection` field has one of these two values.
  if (connection === undefined || connection === "keep-alive" || connection === "close") {
    return headers;
  }
  const nominated = new Set<string>();
  for (const option of connection.split(",")) {
    const name = trimOws(option).toLowerCase();
    if (!CONNECTION_OPTIONS.has(name)) nominated.add(foldName(name));
  }
  if (nominated.size === 0) return headers;
  const left: HeaderList = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!nominated.has(foldName(name))) left.push(name, headers[i + 1] as string);
  }
  return left;
}

export const CONTENT_LENGTH: NameSet = new NameSet(["content-length"]);

/** Drops the fields of an interim response that must not be forwarded. It has no body, and so no message framing. */
export function cleanInterimHeaders(raw: HeaderList): HeaderList {
  const headers = withoutNames(withoutNames(raw, RESPONSE_DROPPED), CONTENT_LENGTH);
  return withoutNominated(headers, getHeaders(raw, "connection").join());
}
