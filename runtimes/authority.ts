import { isAuthority, isSameAuthority } from "../src/request/host.ts";
import { authorityEnd } from "../src/request/target.ts";

/** Where srvx shows Node's own request. */
interface OnNode {
  runtime?: { node?: { req?: { url?: string } } };
}

/**
 * Gives a request whose target is in absolute-form the target's authority as its `Host`: what `Host` says
 * is ignored then (RFC 9112 §3.2.2). Only for the first handler of a server: in an app, other code may
 * have read the field already, so that there such a request is refused.
 *
 * Bun and workerd show nothing of such a target: there `Host` counts for all.
 */
export function preferTarget(request: Request): void {
  const wire = (request as OnNode).runtime?.node?.req?.url;
  // Deno makes the URL's authority of `Host`, unless the target is in absolute-form.
  if (wire === undefined ? !("Deno" in globalThis) : wire.startsWith("/")) return;
  const host = request.headers.get("host");
  const { url } = request;
  const authority = url.slice(url.indexOf("//") + 2, authorityEnd(url));
  // A Host that is no authority is an error in any request (RFC 9112 §3.2).
  if (host === null || !isAuthority(host)) return;
  if (isSameAuthority(authority, host, url.startsWith("https:"))) return;
  // Not changed in place: Deno's are immutable.
  const headers = new Headers(request.headers);
  headers.set("host", authority);
  Object.defineProperty(request, "headers", { value: headers, configurable: true });
}
