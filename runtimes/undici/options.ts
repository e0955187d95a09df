import { isIP } from "node:net";
import type { Dispatcher } from "undici";
import { unsendable } from "../../src/error.ts";
import type { UpstreamRequest } from "../../src/transport.ts";
import { groupFields } from "./fields.ts";
import { Upload } from "./upload.ts";

/** What undici takes beside its documented options. */
interface Options extends Dispatcher.DispatchOptions {
  /** The name for SNI and the certificate: otherwise undici takes the one in `Host`. */
  servername?: string | undefined;
}

/** A method whose body some upstreams do not read: they take it for the next request on the connection. */
const BODYLESS = /^(?:GET|HEAD|OPTIONS|TRACE)$/;

/**
 * A request as undici dispatches it.
 * @param body what is sent of the body
 * @param isOwn whether the dispatcher is a plain agent
 * @throws ProxyError for a method that opens a tunnel
 */
export function toOptions(
  request: UpstreamRequest,
  body: Uint8Array | Upload | null,
  isOwn: boolean,
): Options {
  const { upstream, method, path, host, headers, contentLength } = request;
  if (method === "CONNECT") throw unsendable(method);
  const { origin, hostname, secure } = upstream;
  let list: (string | string[])[] = headers;
  if (host !== undefined) list = ["Host", host, ...headers];
  // ProxyAgent makes an object of the list: of fields with the same name the last one would remain.
  if (!isOwn) list = groupFields(list as string[]);
  if (contentLength !== undefined && body instanceof Upload) {
    list = [...list, "Content-Length", String(contentLength)];
  }
  return {
    origin,
    path,
    method,
    headers: list as string[],
    body,
    // The deadlines of the proxy count.
    headersTimeout: 0,
    bodyTimeout: 0,
    // By default undici closes the connection after each HEAD.
    reset: body !== null && BODYLESS.test(method),
    // Without `Host`, undici takes the name of the origin, and none for an address.
    servername: secure && (host !== undefined || isIP(hostname) === 0) ? hostname : undefined,
  };
}
