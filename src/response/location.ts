import { parseReference } from "./reference.ts";
import type { Upstream } from "../request/target.ts";
import type { UpstreamRequest } from "../transport.ts";

/**
 * What a reference of a response is for clients of the proxy.
 * @param request what the target was sent
 * @param followed the request that redirects led to, if any: what is relative is so to its URL
 */
export type LocationRewrite = (
  reference: string,
  request: UpstreamRequest,
  followed?: UpstreamRequest,
) => string;

/**
 * Rewrites references that point into the target to paths of the proxy.
 * @param rewrite `true`, or prefixes to replace first
 * @param prefix what `stripPrefix` takes off, without a slash at its end
 * @returns undefined if there is nothing to rewrite
 */
export function compileLocationRewrite(
  rewrite: boolean | Readonly<Record<string, string>>,
  prefix: string,
): LocationRewrite | undefined {
  if (rewrite === false) return undefined;
  const rules =
    rewrite === true ? [] : Object.entries(rewrite).toSorted(([a], [b]) => b.length - a.length);
  return (reference, request, followed) => {
    // URL parsers leave tabs out: what a reference with one means is anybody's guess.
    if (reference.includes("\t")) return reference;
    const absolute = followed === undefined ? reference : toAbsolute(reference, followed);
    return (
      replacePrefix(absolute, request, rules) ??
      toOwnReference(absolute, request, prefix) ??
      absolute
    );
  };
}

/** A client would take it as relative to what it asked for, which is elsewhere. */
function toAbsolute(reference: string, { upstream, path }: UpstreamRequest): string {
  if (URL.canParse(reference)) return reference;
  return parseReference(reference, upstream.origin + path)?.href ?? reference;
}

/** What URL parsers take for the begin of an authority, for some take `\` for `/`. */
const TWO_SLASHES = /^[/\\]{2}/;

/** A path that follows no authority: two slashes at its begin would make one of it (RFC 3986 §4.2). */
function asPath(path: string): string {
  return TWO_SLASHES.test(path) ? `/.${path}` : path;
}

/** Replaces the first prefix that matches, up to the end of a segment, so that no name grows a suffix. */
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
 * A reference into the target as one into the proxy: what was put in front of
 * the path and the query is taken off again. It has no authority, so that
 * neither the upstream's name nor a `Host` that somebody made up is told to anyone.
 *
 * @returns undefined for what points elsewhere, is relative to the request's path, or no URL
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
    const origin = originOf(scheme, authority);
    if (origin !== upstream.origin) {
      // Its name may be what it was sent as `Host`.
      if (host === undefined || origin === undefined || origin !== originOf(scheme, host)) {
        return undefined;
      }
      // Another scheme, such as the one to TLS, is what the upstream is after.
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

function originOf(scheme: string, authority: string): string | undefined {
  return URL.parse(`${scheme}//${authority}`)?.origin;
}

/** A path without what any client would resolve, and could leave the base path by. */
function resolveDots(path: string): string {
  if (!/\\|\/(?:\.|%2e){1,2}(?:\/|$)/i.test(path)) return path;
  return parseReference(`http://a${path}`)?.pathname ?? path;
}

/** A path relative to the base path; undefined outside it. */
function withoutBase(path: string, basePath: string): string | undefined {
  if (!path.startsWith(basePath)) return undefined;
  const inside = path.slice(basePath.length);
  // Without a slash the base path itself can be asked of no proxy.
  if (inside === "") return "/";
  return inside.startsWith("/") ? inside : undefined;
}

/** The target's query comes with every request again, and may hold a secret. */
function withoutQuery(rest: string, query: string): string {
  if (query === "" || !rest.startsWith(`?${query}`)) return rest;
  const after = rest.slice(query.length + 1);
  if (after === "" || after.startsWith("#")) return after;
  return after.startsWith("&") ? `?${after.slice(1)}` : rest;
}
