/**
 * The TLS versions of requests for the log. Only Node's server reports them. The end of a WebSocket has no reference to
 * Node's request, so its version is not known.
 */
import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { TLSSocket } from "node:tls";
import type { Server } from "srvx";

type Message = IncomingMessage | Http2ServerRequest;

/** The versions, such as `TLSv1.3`, by the request of Node's server. */
const versions: WeakMap<object, string> = new WeakMap();

/**
 * Notes the TLS version of each request of a server. It must be noted when the request begins, because a socket that has
 * been closed does not report it any more.
 */
export function noteTlsVersions(server: Server): void {
  server.node?.server?.prependListener("request", note);
}

function note(message: Message): void {
  const socket = "stream" in message ? message.stream.session?.socket : message.socket;
  const version = (socket as Partial<TLSSocket> | undefined)?.getProtocol?.();
  if (version) versions.set(message, version);
}

/** Returns the TLS version of a request; undefined without TLS, and if it was not noted. */
export function tlsVersionOf(request: Request): string | undefined {
  const message = (request as { runtime?: { node?: { req?: object } } }).runtime?.node?.req;
  return message && versions.get(message);
}
