import { isName, NameSet, type HeaderList } from "../fields/headers.ts";
import { type RewriteOptions, rewriteSchema } from "../options/rewriteoptions.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import { compileCookieRewrite } from "./cookies.ts";
import { compileLocationRewrite, type Mounted } from "./location.ts";

/**
 * Fields that a `ResponseRewrite` may change. The `ResponseRewrite` need not be called for a response without any of
 * them.
 */
export const REWRITABLE: NameSet = new NameSet([
  "content-location",
  "location",
  "refresh",
  "set-cookie",
]);

/**
 * Rewrites the header fields of a response for clients of the proxy, in place.
 * @param request the request to the upstream
 * @param followed the last request, if redirects were followed
 * @param client the request of the client
 */
export type ResponseRewrite = (
  headers: HeaderList,
  request: UpstreamRequest,
  followed?: UpstreamRequest,
  client?: Mounted,
) => void;

/**
 * Compiles the options that rewrite fields of a response.
 * @param prefix the path that `stripPrefix` removes, without a slash at its end
 * @returns undefined if no option asks for a rewrite
 */
export function compileResponseRewrite(
  options: RewriteOptions,
  prefix: string,
): ResponseRewrite | undefined {
  const cookie = compileCookieRewrite(
    options.cookieDomainRewrite,
    options.cookiePathRewrite,
    options.cookieSecure,
  );
  const { locationRewrite = rewriteSchema.locationRewrite.default } = options;
  const location = compileLocationRewrite(locationRewrite, prefix);
  if (cookie === undefined && location === undefined) return undefined;
  return (headers, request, followed, client) => {
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i] as string;
      const value = headers[i + 1] as string;
      // Compare the lengths first, so that most names are never lowercased.
      switch (name.length) {
        case 7:
          if (location === undefined || !isName(name, "refresh")) break;
          headers[i + 1] = rewriteRefresh(value, (url) => location(url, request, followed, client));
          break;
        case 8:
          if (location === undefined || !isName(name, "location")) break;
          headers[i + 1] = location(value, request, followed, client);
          break;
        case 10:
          if (cookie === undefined || !isName(name, "set-cookie")) break;
          headers[i + 1] = cookie(value);
          break;
        case 16:
          if (location === undefined || !isName(name, "content-location")) break;
          headers[i + 1] = location(value, request, followed, client);
          break;
      }
    }
  };
}

/**
 * Matches a value of `Refresh`, such as `5; url="/there"`, in all forms that browsers accept.
 * @see https://html.spec.whatwg.org/#attr-meta-http-equiv-refresh
 */
const REFRESH = /^([ \t]*[\d.]+[ \t]*[;, \t][ \t]*(?:url[ \t]*=[ \t]*)?)(["']?)(.*)$/is;

function rewriteRefresh(value: string, rewrite: (url: string) => string): string {
  const [, before = "", quote = "", url = ""] = REFRESH.exec(value) ?? [];
  if (url === "") return value;
  const closed = quote === "" ? -1 : url.indexOf(quote);
  const end = closed < 0 ? url.length : closed;
  return before + quote + rewrite(url.slice(0, end)) + url.slice(end);
}
