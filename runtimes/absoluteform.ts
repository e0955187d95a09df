import { isAuthority, isSameAuthority } from "../src/request/host.ts";
import { authorityOf } from "../src/target/target.ts";

/** The members of srvx's web request that lead to Node's request. */
interface OnNode {
  runtime?: { node?: { req?: { url?: string } } };
}

/**
 * Replaces the `Host` of a request whose request target is in absolute-form (`GET http://a.example/ HTTP/1.1`) with the
 * authority of the request target: a server must then ignore `Host` (RFC 9112 §3.2.2).
 *
 * Call this before all other code that handles the request. Code that ran earlier may have read the old `Host`, and would then
 * disagree with the proxy about the request's host. That is why the proxy itself does not replace `Host`: it answers a request
 * whose authority differs from `Host` with 400.
 *
 * On Node, the request must be one of srvx, also under h3. Other requests on Node, and all requests on Bun and workerd, do not
 * show the authority of the request target. They are left unchanged, so that `Host` applies.
 */
export function applyAbsoluteForm(request: Request): void {
  const requestTarget = (request as OnNode).runtime?.node?.req?.url;
  // Without Node's request, only Deno shows the authority: Deno takes the URL's authority from `Host`, unless the request
  // target is in absolute-form.
  if (requestTarget === undefined ? !("Deno" in globalThis) : requestTarget.startsWith("/")) return;
  const host = request.headers.get("host");
  const { url } = request;
  const authority = authorityOf(url);
  // Keep a `Host` that is not an authority: the proxy answers that request with 400, whatever the request target is (RFC 9112
  // §3.2).
  if (host === null || !isAuthority(host)) return;
  if (isSameAuthority(authority, host, url.startsWith("https:"))) return;
  // Copy the fields, because Deno's `Headers` of a request are immutable.
  const headers = new Headers(request.headers);
  headers.set("host", authority);
  Object.defineProperty(request, "headers", { value: headers, configurable: true });
}
