/**
 * Converts the opening handshake of a WebSocket between HTTP/2 (RFC 8441 §5) and HTTP/1.1 (RFC 6455 §4). Every other part of
 * the proxy sees the handshake of HTTP/1.1. In HTTP/2, a handshake has neither `Upgrade` nor a key, and its response is 200,
 * not 101.
 */
import { badRequest } from "../error.ts";
import {
  getHeader,
  getHeaders,
  NameSet,
  withoutNames,
  type HeaderList,
} from "../fields/headers.ts";
import { TOKEN } from "../fields/token.ts";
import { acceptOf, createKey, isKey } from "./handshake.ts";

/** The header fields of a handshake that exist only in HTTP/1.1. */
const OF_HTTP1 = /* @__PURE__ */ new NameSet([
  "connection",
  "sec-websocket-accept",
  "sec-websocket-key",
  "upgrade",
]);

const NAME: string = TOKEN.source.slice(1, -1);
const VALUE = `(?:${NAME}|"(?:[^"\\\\]|\\\\.)*")`;
const EXTENSION = `${NAME}(?:[\\t ]*;[\\t ]*${NAME}(?:[\\t ]*=[\\t ]*${VALUE})?)*`;

/** The syntax of those fields of a client's handshake that `toHandshake` checks (RFC 6455 §4.3). */
const FORMS: Readonly<Record<string, RegExp>> = {
  "sec-websocket-version": /^13$/,
  "sec-websocket-protocol": toList(NAME),
  "sec-websocket-extensions": toList(EXTENSION),
};

function toList(member: string): RegExp {
  return new RegExp(`^${member}(?:[\\t ]*,[\\t ]*${member})*$`);
}

/**
 * Converts the fields of an extended CONNECT to those of an HTTP/1.1 handshake, with a new key.
 * @throws ProxyError 400 if a field of the handshake is missing or malformed
 */
export function toHandshake(fields: HeaderList): HeaderList {
  for (const [name, form] of Object.entries(FORMS)) {
    const values = getHeaders(fields, name);
    const isNeeded = name === "sec-websocket-version";
    if ((values.length > 0 || isNeeded) && !form.test(values.join())) throw badRequest(name);
  }
  const made = ["Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", createKey()];
  return [...withoutNames(fields, OF_HTTP1), ...made];
}

/** Removes the fields that exist only in HTTP/1.1 from a handshake, or from the response to it. */
export function withoutHttp1(fields: HeaderList): HeaderList {
  return withoutNames(fields, OF_HTTP1);
}

/**
 * Converts the fields of a 2xx response, which accepts an extended CONNECT, into those of a 101 response.
 * @param handshake the fields of the HTTP/1.1 handshake, whose key the 101 must answer
 */
export async function toSwitch(answer: HeaderList, handshake: HeaderList): Promise<HeaderList> {
  const accept = await acceptOf(getHeader(handshake, "sec-websocket-key") ?? "");
  const made = ["Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Accept", accept];
  return [...withoutNames(answer, OF_HTTP1), ...made];
}

/**
 * Checks the key of an HTTP/1.1 handshake. An HTTP/2 upstream does not receive the key, so the proxy must check it.
 * @throws ProxyError 400
 */
export function assertKey(handshake: HeaderList): void {
  if (!isKey(getHeader(handshake, "sec-websocket-key") ?? ""))
    throw badRequest("Sec-WebSocket-Key");
}
