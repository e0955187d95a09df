import { ProxyError } from "../error.ts";
import {
  getHeader,
  getHeaders,
  isName,
  withoutNames,
  type HeaderList,
  withoutNominated,
} from "../fields/headers.ts";
import { CONTENT_LENGTH, RESPONSE_DROPPED } from "../fields/hopbyhop.ts";
import { chooseProtocol, nominatesUpgrade } from "../fields/protocols.ts";
import { MisuseError } from "../misuse.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Mounted } from "./location.ts";
import { type ResponseRewrite, REWRITABLE } from "./rewrite.ts";

/**
 * Makes the response to the client from the response of the upstream.
 *
 * The method of the request to the upstream may differ from the client's, because a hook may change it. If only the
 * client's method is HEAD, the body is discarded: the server might never read it, and the upstream connection would
 * stay in use. If only the upstream's method is HEAD, `Content-Length` is dropped, because the client would wait for a
 * body of that length (RFC 9110 §8.6).
 *
 * @param clientMethod the method of the client's request
 * @param request the request to the upstream
 * @param rewrite rewrites references and cookies, if the options ask for it
 * @param client the request of the client
 * @throws ProxyError 502 for a response that must not be sent to any client
 */
export function cleanResponse(
  received: UpstreamResponse,
  clientMethod: string,
  request: UpstreamRequest,
  rewrite?: ResponseRewrite,
  client?: Mounted,
): UpstreamResponse {
  if (received === undefined || received === null) {
    throw new MisuseError("fetchway: a transport's `send` must resolve to a response");
  }
  const { status, body } = received;
  if (body !== null && typeof body?.whole !== "function") {
    throw new MisuseError(
      "fetchway: the body of a response must be null, new BytesBody(bytes) or new StreamBody(stream)",
    );
  }
  let headers: HeaderList;
  try {
    if ((status < 200 && !isSwitch(received, request)) || status > 599) {
      throw new ProxyError("http_protocol_error", {
        message: `the upstream's status was ${status}`,
      });
    }
    headers = cleanResponseHeaders(received, request, rewrite, client);
  } catch (error) {
    discardBody(received);
    throw error;
  }
  const bodyless = status === 204 || status === 205 || status === 304 || clientMethod === "HEAD";
  if (bodyless) discardBody(received);
  else if (request.method === "HEAD") headers = withoutNames(headers, CONTENT_LENGTH);
  return {
    status,
    statusText: cleanReason(received.statusText),
    headers,
    body: bodyless ? null : body,
    trailer: bodyless ? undefined : readTrailer(received),
    hints: received.hints,
    tunnel: received.tunnel,
    webSocket: received.webSocket,
  };
}

/**
 * Whether a response switches the connection to the protocol that the request asks for. The upstream must name the
 * protocol, and must not choose another one (RFC 9110 §7.8). It must also name `Upgrade` in `Connection`, because an
 * intermediary may otherwise have passed `Upgrade` on without switching its own connection (RFC 6455 §4.1).
 */
function isSwitch(
  { status, headers, tunnel, webSocket }: UpstreamResponse,
  { upgrade }: UpstreamRequest,
): boolean {
  if (status !== 101 || upgrade === undefined) return false;
  if (webSocket !== undefined) return upgrade === "websocket";
  if (tunnel === undefined) return false;
  const chosen = chooseProtocol(getHeader(headers, "upgrade") ?? "", [upgrade]);
  return chosen !== undefined && nominatesUpgrade(headers);
}

/**
 * Drops the fields of a response that must not be forwarded, and lets `rewrite` change those in `REWRITABLE`.
 *
 * `Content-Length` is dropped where it cannot be the length of the body: with `Transfer-Encoding` (RFC 9112 §6.3), and
 * on a 101, 204 or 205, which have no content (RFC 9110 §8.6, §15.3.6).
 * @throws ProxyError 502 for a transfer coding that the transport has not decoded
 */
export function cleanResponseHeaders(
  { status, headers: raw, body, request: followed }: UpstreamResponse,
  request: UpstreamRequest,
  rewrite?: ResponseRewrite,
  client?: Mounted,
): HeaderList {
  const headers: HeaderList = [];
  let connection: string | undefined;
  let hasNoLength = status === 204 || status === 205 || status === 101;
  let lengthAt = -1;
  let isRewritable = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (RESPONSE_DROPPED.has(name)) {
      if (isName(name, "connection")) {
        connection = connection === undefined ? value : `${connection},${value}`;
      } else if (isName(name, "transfer-encoding")) {
        // Not every parser removes the white space after a value.
        if (!/^(?:chunked|identity)[\t ]*$/i.test(value)) {
          throw new ProxyError("http_response_transfer_coding", {
            message: `the upstream sent Transfer-Encoding: ${value}`,
          });
        }
        hasNoLength = true;
      }
      continue;
    }
    if (isName(name, "content-length")) lengthAt = headers.length;
    else if (REWRITABLE.has(name)) isRewritable = true;
    headers.push(name, value);
  }
  if (hasNoLength && lengthAt >= 0) headers.splice(lengthAt, 2);
  if (isRewritable) rewrite?.(headers, request, followed, client);
  if (connection !== undefined && connection !== "keep-alive") {
    body?.restrictTrailers?.(undefined, connection);
  }
  return withoutNominated(headers, connection);
}

/** Returns the names of the trailer fields that a response announces and may have; undefined for none. */
function readTrailer({ headers, body }: UpstreamResponse): string | undefined {
  if (body?.announceTrailers === undefined || body.length !== undefined) return undefined;
  const names = getHeaders(headers, "trailer");
  return names.length === 0 ? undefined : body.announceTrailers(names.join());
}

const SENDABLE_REASON = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;

/** Returns the reason phrase; `""` for one with characters that `new Response` or node:http refuses (RFC 9112 §4). */
function cleanReason(statusText: string): string {
  return SENDABLE_REASON.test(statusText) ? statusText : "";
}
