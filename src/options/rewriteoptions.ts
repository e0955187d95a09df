import { either, map, text, toggle } from "../schema/kinds.ts";
import { isRecord, type Schema } from "../schema/schema.ts";

/** The options about header fields of the response that name the target. */
export interface RewriteOptions {
  /**
   * Rewrites the domain in `Set-Cookie`: one domain for all cookies, or a map from old to new domains, in which `"*"`
   * means every other old domain; `""` removes the domain, so that the cookie belongs to the proxy.
   *
   * Letter case and a leading dot are ignored. A cookie without a domain is not changed.
   * @example { "internal.example": "shop.example", "*": "" }
   */
  cookieDomainRewrite?: string | Readonly<Record<string, string>>;
  /**
   * Rewrites the path in `Set-Cookie`: one path for all cookies, or a map from old to new paths, in which `"*"` means
   * every other old path; `""` removes the path.
   *
   * Paths are compared as a whole: `"/internal"` does not match `"/internal/x"`. A cookie without a path is not changed.
   * @example { "/internal": "/" }
   */
  cookiePathRewrite?: string | Readonly<Record<string, string>>;
  /**
   * Whether cookies keep the attribute `Secure`. For development over plain HTTP, `false` removes it, together with
   * `SameSite=None` and `Partitioned`, which browsers refuse without `Secure`.
   *
   * With `false`, clients also send the cookies over plain HTTP, where others can read them, so do not use it in production. A
   * cookie whose name begins with `__Secure-`, `__Host-` or `__Http-` keeps `Secure`, because browsers refuse the name
   * without it. Without `SameSite=None`, pages of other sites send the cookie in fewer cases, in most browsers as with `Lax`.
   * `Domain` stays: `cookieDomainRewrite: ""` removes it.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc6265#section-4.1.2.5
   */
  cookieSecure?: boolean;
  /**
   * Rewrites `Location`, `Content-Location` and `Refresh`: `true` turns URLs that point into the target into paths of
   * the proxy; a map replaces prefixes of URLs, the longest first, and treats all other URLs as `true` does; `false`
   * changes none.
   *
   * A URL points into the target if it has the target's origin, or the `Host` that was sent, and the target's base path.
   * The base path and the query of the target are removed. The prefix of `stripPrefix` is prepended again, and so is a
   * prefix that a framework has removed (`app.use("/api", …)` of Express, `mount`), if the framework exposes it. Other URLs
   * are not changed, nor are references that are relative to the path of the request. Changes by `pathRewrite` are not
   * undone: use a map for these.
   * @default true
   * @example { "http://internal:4000/": "https://shop.example/" }
   */
  locationRewrite?: boolean | Readonly<Record<string, string>>;
}

const DOMAIN = /^[\w.-]*$/;
/**
 * The values of the attribute `Path` that begin with a slash, because clients ignore others (RFC 6265 §5.2.4), and `""`, which
 * removes the attribute. No comma, because some libraries split `Set-Cookie` at commas.
 */
const PATH = /^(?:\/[ -+\--:<-~\u0080-\u00ff]*)?$/;
const prefixes = map(/^[!-~\u0080-\u00ff]+$/);

export const rewriteSchema: Schema<RewriteOptions, "cookieSecure" | "locationRewrite"> = {
  cookieDomainRewrite: {
    kind: either(
      'use a domain such as "shop.example", "" for none, or a map of old to new domains',
      text(DOMAIN),
      map(DOMAIN),
    ),
  },
  cookiePathRewrite: {
    kind: either(
      'use a path such as "/", "" for none, or a map of old to new paths',
      text(PATH),
      map(PATH),
    ),
  },
  cookieSecure: { kind: toggle, default: true },
  locationRewrite: {
    kind: either(
      'use true, false or a map of URL prefixes such as { "http://internal:4000/": "/" }',
      toggle,
      {
        ...prefixes,
        // Refuse the empty prefix, with which every URL begins.
        check: (value) =>
          isRecord(value) && Object.hasOwn(value, "") ? "" : prefixes.check(value),
      },
    ),
    default: true,
  },
};
