import { type HeaderList, NameSet, trimOws, withoutNames, withoutNominated } from "./headers.ts";
import { HOP_BY_HOP, REQUEST_ASSERTIONS } from "./hopbyhop.ts";

/**
 * The maximum number of fields in one trailer section. The parser that reads the section limits its bytes: to 16 KiB in
 * the HTTP/1.1 client, and to the limit of header sections in the servers.
 */
export const MAX_TRAILERS = 128;

/**
 * Fields that no trailer section may have, because recipients need them before the content, and because some recipients
 * merge trailers into the header section (RFC 9110 §6.5.1). Fields about the whole content, such as `Content-Digest`,
 * are allowed, because trailers exist for them.
 */
const FORBIDDEN: NameSet = new NameSet(
  [
    // Message framing and the connection
    ...HOP_BY_HOP,
    "content-length",
    // Routing
    "host",
    "origin",
    "via",
    // Authentication
    "authentication-info",
    "authorization",
    "cookie",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
    "www-authenticate",
    // Request modifiers
    "cache-control",
    "expect",
    "max-forwards",
    "pragma",
    "range",
    // Response control data
    "age",
    "alt-svc",
    "clear-site-data",
    "content-security-policy",
    "date",
    "expires",
    "location",
    "refresh",
    "retry-after",
    "strict-transport-security",
    "vary",
    "warning",
    // The format of the content
    "content-disposition",
    "content-encoding",
    "content-location",
    "content-range",
    "content-type",
  ],
  // What proxies say about the client
  REQUEST_ASSERTIONS,
  ["if-", "access-control-"],
);

/**
 * Drops the trailer fields that must not be forwarded.
 * @param dropped further names to drop
 * @param connection the value of the message's `Connection`, which nominates further names (RFC 9110 §7.6.1)
 * @returns undefined if no field is left
 */
export function cleanTrailers(
  trailers: HeaderList,
  dropped?: NameSet,
  connection?: string,
): HeaderList | undefined {
  let left = withoutNominated(withoutNames(trailers, FORBIDDEN), connection);
  if (dropped !== undefined) left = withoutNames(left, dropped);
  return left.length === 0 ? undefined : left;
}

/**
 * Returns the names in a `Trailer` field that may be announced; undefined if there are none.
 * @param value the value of the field; several lines are joined by commas
 */
export function cleanTrailerNames(value: string, dropped?: NameSet): string | undefined {
  const names = value.split(",").map(trimOws);
  const left = names.filter(
    (name) => name !== "" && !FORBIDDEN.has(name) && dropped?.has(name) !== true,
  );
  return left.length === 0 ? undefined : left.join(", ");
}

/** Returns the value of `Trailer` that announces these trailer fields. */
export function namesOf(trailers: HeaderList): string {
  return [...new Set(trailers.filter((_, i) => i % 2 === 0))].join(", ");
}
