import type { Upstream } from "../target/target.ts";
import type { UpstreamRequest } from "../transport/message.ts";

/**
 * Parses a URL reference of a response, such as `Location`, as browsers do.
 * @param base the URL that a relative reference is relative to
 * @returns null if the reference is not a URL
 */
export function parseReference(reference: string, base?: string | URL): URL | null {
  // Field values are read as Latin-1. Percent-encode each byte above 0x7f as one byte; a URL parser would encode the
  // Latin-1 character as two bytes of UTF-8.
  const bytes = reference.replaceAll(
    /[\u0080-\u00ff]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16)}`,
  );
  return URL.parse(bytes, base);
}

/** The part of the client's request that shows where a framework has mounted the proxy. */
export interface Mounted {
  /** The prefix that a framework has removed from the path; `""` for none. */
  readonly mount?: string;
}

/**
 * Rewrites a URL reference of a response for clients of the proxy.
 * @param request the request to the upstream
 * @param followed the last request, if redirects were followed: a relative reference is relative to the URL of this
 * request
 * @param client the request of the client
 */
export type LocationRewrite = (
  reference: string,
  request: UpstreamRequest,
  followed?: UpstreamRequest,
  client?: Mounted,
) => string;

/**
 * Compiles `locationRewrite` into a function that replaces references to URLs of the target with paths of the proxy.
 * @param rewrite `true`, or a map of prefixes to replace first
 * @param prefix the path that `stripPrefix` removes, without a slash at its end
 * @returns undefined if the option asks for no rewrite
 */
export function compileLocationRewrite(
  rewrite: boolean | Readonly<Record<string, string>>,
  prefix: string,
): LocationRewrite | undefined {
  if (rewrite === false) return undefined;
  const rules =
    rewrite === true ? [] : Object.entries(rewrite).toSorted(([a], [b]) => b.length - a.length);
  return (reference, request, followed, client) => {
    // Do not rewrite a reference with a tab: URL parsers remove tabs and other readers do not, so it has two meanings.
    if (reference.includes("\t")) return reference;
    const absolute = followed === undefined ? reference : toAbsolute(reference, followed);
    return (
      replacePrefix(absolute, request, rules) ??
      toOwnReference(absolute, request, joinPrefix(client?.mount, prefix)) ??
      absolute
    );
  };
}

/**
 * Returns the prefix of the proxy's paths: the mount, then the prefix that `stripPrefix` removes. The option `stripPrefix`
 * may repeat the mount, or its end, for requests that do not pass through the mount, such as WebSockets.
 */
function joinPrefix(mount: string | undefined, prefix: string): string {
  if (mount === undefined || mount === "") return prefix;
  return mount.endsWith(prefix) ? mount : mount + prefix;
}

/**
 * Resolves a relative reference against the URL of the last request, after the redirects. The client does not know that
 * URL, and would resolve the reference against the URL that it has requested.
 */
function toAbsolute(reference: string, { upstream, path }: UpstreamRequest): string {
  if (URL.canParse(reference)) return reference;
  return parseReference(reference, upstream.origin + path)?.href ?? reference;
}

/** Matches the two slashes that precede an authority. It also matches `\`, which some URL parsers read as `/`. */
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
 * Converts a reference to a URL of the target into one for clients of the proxy: replaces the target's base path by `prefix`,
 * and removes the target's query.
 *
 * The result has no authority, because an authority could be the upstream's name, or a `Host` that a client has
 * invented. The only exception is a reference that names the `Host` of the request with another scheme.
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
      // The upstream may call itself by the `Host` that it has received.
      if (host === undefined || origin === undefined || origin !== parseOrigin(scheme, host)) {
        return undefined;
      }
      // Keep a scheme that differs from the target's, because the upstream wants the client to change to it, as from
      // http to https.
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

/**
 * Resolves the dot segments and backslashes of a path as every client would, because they may lead out of the base
 * path.
 */
function resolveDots(path: string): string {
  if (!/\\|\/(?:\.|%2e){1,2}(?:\/|$)/i.test(path)) return path;
  return parseReference(`http://a${path}`)?.pathname ?? path;
}

/** Returns a path relative to the base path, or undefined for a path outside it. */
function withoutBase(path: string, basePath: string): string | undefined {
  if (!path.startsWith(basePath)) return undefined;
  const inside = path.slice(basePath.length);
  // Through the proxy, the base path can be requested only with a slash at its end.
  if (inside === "") return "/";
  return inside.startsWith("/") ? inside : undefined;
}

/** Removes the target's query, which the proxy adds to every request, and which may be a secret. */
function withoutQuery(rest: string, query: string): string {
  if (query === "" || !rest.startsWith(`?${query}`)) return rest;
  const after = rest.slice(query.length + 1);
  if (after === "" || after.startsWith("#")) return after;
  return after.startsWith("&") ? `?${after.slice(1)}` : rest;
}
