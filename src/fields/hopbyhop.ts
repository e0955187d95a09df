/** The names of the fields that are dropped from requests, responses and interim responses. */
import { getHeaders, type HeaderList, NameSet, withoutNames, withoutNominated } from "./headers.ts";

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

/**
 * Fields of the client's request that are dropped, but that an app may set, or forward with the option
 * `forwardHeaders`.
 */
const REQUEST_REFUSED: readonly string[] = [
  // CGI-like upstreams store `Proxy` in the variable HTTP_PROXY, which sets a proxy for their own requests (httpoxy,
  // CVE-2016-5385).
  "proxy",
  // `Proxy-Authorization` is meant for this proxy (RFC 9110 §11.7.2).
  "proxy-authorization",
];

/** Fields of the client's request that are dropped unless an option forwards them, even if `trustProxy` trusts the peer. */
export const REQUEST_DROPPED: readonly string[] = [
  ...HOP_BY_HOP,
  "content-length",
  "expect",
  "host",
  ...REQUEST_REFUSED,
];

/**
 * Fields of a request that are derived from its connection, body and target. Hooks, and options that name fields, cannot set
 * them; only the `Host` that a hook sets is used.
 */
export const REQUEST_DERIVED: NameSet = new NameSet(
  REQUEST_DROPPED.filter((name) => !REQUEST_REFUSED.includes(name)),
);

/**
 * Fields by which an untrusted client could claim another address, host or scheme: the standard fields, and fields of certain
 * proxies and vendors, which many upstreams trust.
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

export const CONTENT_LENGTH: NameSet = new NameSet(["content-length"]);

/**
 * Drops the fields of an interim response that must not be forwarded. An interim response has no body, and so no
 * message framing.
 */
export function cleanInterimHeaders(raw: HeaderList): HeaderList {
  const headers = withoutNames(withoutNames(raw, RESPONSE_DROPPED), CONTENT_LENGTH);
  return withoutNominated(headers, getHeaders(raw, "connection").join());
}
