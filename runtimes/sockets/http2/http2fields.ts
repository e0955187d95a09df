import type { OutgoingHttpHeaders } from "node:http2";
import { badRequest, ProxyError, unsendable } from "../../../src/error.ts";
import { trimOws, type HeaderList } from "../../../src/fields/headers.ts";
import { REQUEST_TARGET, TOKEN, NOT_IN_VALUE } from "../../../src/fields/token.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import { withoutHttp1 } from "../../../src/websocket/extendedconnect.ts";

/**
 * Fields that `pushFields` leaves out. HTTP/2 frames messages and connections itself (RFC 9113 §8.2.2), and has `:authority`
 * instead of `Host`. It does have `content-length` and `te: trailers`: the callers add them.
 */
const NOT_IN_HTTP2: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "transfer-encoding",
  "upgrade",
]);

/**
 * Returns the fields of a request for HTTP/2 (RFC 9113 §8.3.1): the pseudo-header fields, then all others in lower case. A
 * request for a WebSocket becomes an extended CONNECT (RFC 8441 §5).
 * @param length the length of the body in bytes; undefined if there is no body, or if its length is unknown
 * @throws ProxyError for a method, path or field that cannot be sent unchanged
 */
export function toHttp2Fields(request: UpstreamRequest, length: number | undefined): HeaderList {
  const { method, path, upstream, host, headers, acceptsTrailers, trailer, upgrade } = request;
  // A successful response to CONNECT opens a tunnel (RFC 9110 §9.3.6), so CONNECT cannot be sent as a request.
  if (method === "CONNECT" || !TOKEN.test(method)) throw unsendable(method);
  if (!REQUEST_TARGET.test(path)) throw badRequest("path");
  const scheme = upstream.secure ? "https" : "http";
  const list: HeaderList =
    upgrade === undefined ? [":method", method] : [":method", "CONNECT", ":protocol", upgrade];
  list.push(":scheme", scheme, ":authority", host ?? upstream.host, ":path", path);
  pushFields(list, upgrade === undefined ? headers : withoutHttp1(headers));
  if (acceptsTrailers === true) list.push("te", "trailers");
  if (trailer !== undefined) list.push("trailer", trailer);
  if (length !== undefined) list.push("content-length", String(length));
  return list;
}

/**
 * Returns the fields of a response, or trailer fields, for HTTP/2: in lower case, without `Content-Length` and the fields that
 * HTTP/2 does not have.
 * @throws ProxyError for a field that cannot be sent unchanged
 */
export function toRegularFields(fields: HeaderList): HeaderList {
  const list: HeaderList = [];
  pushFields(list, fields);
  return list;
}

function pushFields(list: HeaderList, fields: HeaderList): void {
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    if (NOT_IN_HTTP2.has(name)) continue;
    const value = fields[i + 1] as string;
    if (!TOKEN.test(name) || NOT_IN_VALUE.test(value)) throw badRequest(name);
    // White space around a value makes a message malformed (RFC 9113 §8.2.1).
    list.push(name, trimOws(value));
  }
}

/**
 * The maximum size of a header section in bytes, where each field counts 32 bytes more than its name and value (RFC 9113
 * §6.5.2).
 */
export const MAX_FIELD_BYTES = 32_768;
/** Characters that end a field value, or are dangerous in it (RFC 9113 §8.2.1). */
const FORBIDDEN = /[\0\r\n]/;

/**
 * Returns the fields of a response or its trailers without pseudo-header fields.
 * @throws ProxyError for a field section that is too large or malformed, which not every runtime checks
 */
export function fromHttp2Fields(raw: HeaderList): HeaderList {
  // A copy that is compacted takes less memory than a list that grows.
  const list = raw.slice();
  let end = 0;
  let size = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    size += name.length + value.length + 32;
    if (size > MAX_FIELD_BYTES) throw new ProxyError("http_response_header_section_size");
    if (name.startsWith(":")) continue;
    if (!TOKEN.test(name) || FORBIDDEN.test(value)) {
      throw new ProxyError("http_protocol_error", {
        message: "a field of the response is malformed",
      });
    }
    list[end++] = name;
    list[end++] = value;
  }
  list.length = end;
  return list;
}

/**
 * Returns fields as an object, for trailer fields, and for versions of Node that take no list. A repeated field becomes an
 * array with a value for each line.
 */
export function toFieldObject(list: HeaderList): OutgoingHttpHeaders {
  const fields = Object.create(null) as Record<string, string | string[]>;
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    const value = list[i + 1] as string;
    const before = fields[name];
    if (before === undefined) fields[name] = value;
    else if (typeof before === "string") fields[name] = [before, value];
    else before.push(value);
  }
  return fields;
}

/**
 * Returns fields in which each name occurs once, except `set-cookie`: the values are joined into a list (RFC 9110 §5.3). Node
 * refuses to send some fields twice.
 */
export function toJoinedFields(list: HeaderList): OutgoingHttpHeaders {
  const fields = toFieldObject(list);
  for (const [name, value] of Object.entries(fields)) {
    if (Array.isArray(value) && name !== "set-cookie") fields[name] = value.join(", ");
  }
  return fields;
}

/** Returns whether Node takes the header fields of requests and responses as a list, as it does since version 24.7. */
function takesLists({ node = "0" }: Partial<Record<string, string>>): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major > 24 || (major === 24 && minor >= 7);
}

let lists: boolean | undefined;

/** Calls `send` with fields in a form that this version of the runtime can send. */
export function sendFields<T>(
  list: HeaderList,
  send: (fields: OutgoingHttpHeaders | HeaderList) => T,
): T {
  lists ??= takesLists(
    (globalThis as unknown as { process: { versions: Record<string, string> } }).process.versions,
  );
  if (!lists) return sendFieldObject(list, send);
  try {
    return send(list);
  } catch (error) {
    return sendJoined(error, list, send);
  }
}

/** Calls `send` with fields as an object, such as the trailer fields of a message. */
export function sendFieldObject<T>(list: HeaderList, send: (fields: OutgoingHttpHeaders) => T): T {
  try {
    return send(toFieldObject(list));
  } catch (error) {
    return sendJoined(error, list, send);
  }
}

/**
 * Calls `send` with each name once, if Node has refused a field that occurs twice.
 * @param error the exception that Node has thrown
 */
function sendJoined<T>(
  error: unknown,
  list: HeaderList,
  send: (fields: OutgoingHttpHeaders) => T,
): T {
  if ((error as NodeJS.ErrnoException).code !== "ERR_HTTP2_HEADER_SINGLE_VALUE") throw error;
  return send(toJoinedFields(list));
}
