/** The listener of `--redirect-http`, which answers each client without TLS with a redirect to HTTPS. */
import { STATUS_CODES } from "node:http";
import { applyAbsoluteForm } from "#fetchway";
import { isAuthority, pathOf } from "#fetchway/requests";
import type { ServerHandler, ServerRequest } from "srvx";
import type { NameServerOption } from "../config/settings.ts";
import type { ServerSettings } from "../flags/commandoptions.ts";
import { UsageError } from "../flags/read.ts";
import { type Report, toEnd } from "../limits/ownanswers.ts";
import { readSocketPath } from "./socketfile.ts";

/**
 * Makes sure that there is an HTTPS server to which `redirectHttp` can send clients.
 * @throws UsageError that says why there is none
 */
export function checkRedirect(
  { redirectHttp, host, port, cert }: ServerSettings,
  nameOption: NameServerOption,
): void {
  if (redirectHttp === undefined) return;
  const name = nameOption("redirectHttp");
  if (readSocketPath(host) !== undefined) {
    throw new UsageError(`${name}: the host is a socket, which has no https:; leave it out`);
  }
  if (cert === undefined) {
    throw new UsageError(
      `${name} needs ${nameOption("cert")} and ${nameOption("key")}: without them, there is no https:`,
    );
  }
  if (redirectHttp === port && port !== 0) {
    throw new UsageError(`${name} ${port}: this is also the port for https:; use 80, and port 443`);
  }
}

/**
 * Returns a function that answers each request with 308, or with 400 if it names no host. After a 308, the client repeats the
 * request with its method and body (RFC 9110 §15.4.9); after a 301, it may repeat a POST as a GET. Caddy also answers with
 * 308.
 * @param port the port of the HTTPS server; `""` for 443
 * @param report receives the end of each request
 */
export function createRedirect(port: string, report: Report): ServerHandler {
  return (request) => {
    const isUsable = namesResource(request);
    applyAbsoluteForm(request);
    const host = request.headers.get("host") ?? "";
    const path = pathOf(request.url);
    const location = `https://${host.replace(/:\d*$/, "")}${port && `:${port}`}${path}`;
    const status = isUsable ? 308 : 400;
    const known = { method: request.method, path, authority: host, address: request.ip };
    const cause = isUsable ? undefined : "the request names no host to redirect to";
    report({ ...toEnd(known, status, cause), request });
    return new Response(null, {
      status,
      statusText: STATUS_CODES[status] ?? "",
      headers: { "content-length": "0", ...(isUsable && { location }) },
    });
  };
}

/** Whether a request names a host, and a resource of that host. `OPTIONS *` asks about the server itself. */
function namesResource({ headers, runtime }: ServerRequest): boolean {
  const host = headers.get("host") ?? "";
  return host !== "" && isAuthority(host) && runtime?.node?.req?.url !== "*";
}
