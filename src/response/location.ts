import type { Upstream } from "../request/target.ts";
import type { UpstreamRequest } from "../transport.ts";

/**
 * Parses a URL reference of a response, such as `Location`, as browsers do.
 * @param base the URL that a relative reference is relative to
 * @returns null if the reference is not a URL
 */
export function parseReference(reference: string, base?: string | URL): URL | null {
  // Field values are read as Latin-1. Encode each byte above 0x7f as itself, not as the character that it looks like.
  const bytes = reference.replaceAll(
    /[\u0080-\u00ff]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16)}`,
  );
  return URL.parse(bytes, base);
}

/**
 * Rewrites a URL reference of a response for clients of the proxy.
 * @param request the request to the upstream
 * @param followed the request that redirects led to, if they were followed: a relative reference is relative to its URL
 */
export type LocationRewrite = (
  reference: string,
  request: UpstreamRequest,
  followed?: UpstreamRequest,
) => string;

/**
 * Compiles `locationRewrite`: references that point into the target become paths of the proxy.
 * @param rewrite `true`, or a map of prefixes to replace first
 * @param prefix the path that `stripPrefix` removes, without a slash at its end
 * @returns undefined if the option asks for no rewrite
 */
export function compileLocationRewrite(
  rewrite: boolean | Readonly<Record<string, string>>,
  prefix: string,
): LocationRewrite | undefined {
  if (rewrite === false) return undefined;
  const rules = Object.entries(rewrite === true ? {} : rewrite);
  rules.sort(([a], [b]) => b.length - a.length);
  return (reference, request, followed) => {
    // URL parsers remove tabs, other readers do not: such a reference has two meanings.
    if (reference.includes("\t")) return reference;
    const absolute = followed === undefined ? reference : toAbsolute(reference, followed);
    return (
      replacePrefix(absolute, request, rules) ??
      toOwnReference(absolute, request, prefix) ??
      absolute
    );
  };
}

/** Resolves a relative reference: a client would resolve it against the URL that it has requested, not the followed one. */
function toAbsolute(reference: string, { upstream, path }: UpstreamRequest): string {
  if (URL.canParse(reference)) return reference;
  return parseReference(reference, upstream.origin + path)?.href ?? reference;
}

/** Matches the two slashes in front of an authority. Some URL parsers read `\` as `/`. */
const TWO_SLASHES = /^[/\\]{2}/;

/** Writes a path so that no URL parser reads its first segment as an authority (RFC 3986 §4.2). */
function asPath(path: string): string {
  return TWO_SLASHES.test(path) ? `/.${path}` : path;
}

/** Replaces the first prefix that matches. A prefix matches only up to the end of a segment: `/a` does not match `/ab`. */
function replacePrefix(
  reference: string,
  { upstream }: UpstreamRequest,
  rules: readonly (readonly [from: string, to: string])[],
): string | undefined {
  const url = reference.startsWith("//") ? schemeOf(upstream) + reference : reference;
  for (const [from, to] of rules) {
    if (!url.startsWith(from)) continue;
    const rest = url.slice(from.length);
    if (rest !== "" && !from.endsWith("/") && !/^[/?#]/.test(rest)) continue;
    return TWO_SLASHES.test(to) ? to + rest : asPath(to + rest);
  }
  return undefined;
}

const REFERENCE = /^(?:(https?:)?[/\\]{2,}([^/\\?#]+))?([/\\][^?#]*)?([?#].*)?$/is;

/**
 * Converts a reference into the target to a reference into the proxy, by removing the target's base path and query.
 *
 * The result has no authority: it could be the upstream's name, or a `Host` that a client has invented.
 *
 * @returns undefined for a reference that points elsewhere, is relative to the request's path, or is not a URL
 */
function toOwnReference(
  reference: string,
  { upstream, host }: UpstreamRequest,
  prefix: string,
): string | undefined {
  const match = REFERENCE.exec(reference);
  if (match === null) return undefined;
  const [, scheme = schemeOf(upstream), authority, path, rest = ""] = match;
  let before = "";
  if (authority !== undefined) {
    const origin = parseOrigin(scheme, authority);
    if (origin !== upstream.origin) {
      // The upstream may call itself by the `Host` that it was sent.
      if (host === undefined || origin === undefined || origin !== parseOrigin(scheme, host)) {
        return undefined;
      }
      // Keep another scheme: the upstream wants the client to change it, such as from http to https.
      if (scheme.toLowerCase() !== schemeOf(upstream)) before = `${scheme}//${authority}`;
    }
  } else if (path === undefined || TWO_SLASHES.test(path)) return undefined;

  const { basePath, query } = upstream;
  if (authority === undefined && basePath === "" && prefix === "" && query === "") return undefined;
  const inside = withoutBase(resolveDots(path ?? "/"), basePath);
  if (inside === undefined) return undefined;
  const own = prefix + inside;
  return (before === "" ? asPath(own) : before + own) + withoutQuery(rest, query);
}

function schemeOf({ secure }: Upstream): string {
  return secure ? "https:" : "http:";
}

function parseOrigin(scheme: string, authority: string): string | undefined {
  return URL.parse(`${scheme}//${authority}`)?.origin;
}

/** Resolves the dot segments and backslashes of a path, as every client would: they could lead outside the base path. */
function resolveDots(path: string): string {
  if (!/\\|\/(?:\.|%2e){1,2}(?:\/|$)/i.test(path)) return path;
  return parseReference(`http://a${path}`)?.pathname ?? path;
}

/** Returns a path relative to the base path, or undefined for a path outside it. */
function withoutBase(path: string, basePath: string): string | undefined {
  if (!path.startsWith(basePath)) return undefined;
  const inside = path.slice(basePath.length);
  // A client cannot request the base path without its slash through the proxy.
  if (inside === "") return "/";
  return inside.startsWith("/") ? inside : undefined;
}

/** Removes the target's query: the proxy adds it to every request, and it may be a secret. */
function withoutQuery(rest: string, query: string): string {
  if (query === "" || !rest.startsWith(`?${query}`)) return rest;
  const after = rest.slice(query.length + 1);
  if (after === "" || after.startsWith("#")) return after;
  return after.startsWith("&") ? `?${after.slice(1)}` : rest;
}
