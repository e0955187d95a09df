/**
 * Converts the opening handshake of a WebSocket between HTTP/2 (RFC 8441 §5) and HTTP/1.1 (RFC 6455 §4). Every other part of
 * the proxy sees the handshake of HTTP/1.1. HTTP/2 has neither `Upgrade` nor a key, and 200 instead of 101.
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

/** Fields of a handshake that only HTTP/1.1 has. */
const OF_HTTP1 = /* @__PURE__ */ new NameSet([
  "connection",
  "sec-websocket-accept",
  "sec-websocket-key",
  "upgrade",
]);

const NAME: string = TOKEN.source.slice(1, -1);
const VALUE = `(?:${NAME}|"(?:[^"\\\\]|\\\\.)*")`;
const EXTENSION = `${NAME}(?:[\\t ]*;[\\t ]*${NAME}(?:[\\t ]*=[\\t ]*${VALUE})?)*`;

/** The form of each field of a client's handshake (RFC 6455 §4.3). */
const FORMS: Readonly<Record<string, RegExp>> = {
  "sec-websocket-version": /^13$/,
  "sec-websocket-protocol": toList(NAME),
  "sec-websocket-extensions": toList(EXTENSION),
};

function toList(member: string): RegExp {
  return new RegExp(`^${member}(?:[\\t ]*,[\\t ]*${member})*$`);
}

/**
 * Returns the fields of an extended CONNECT as those of a handshake over HTTP/1.1, with a key of the proxy's own.
 * @throws ProxyError 400 for a field of the handshake that is missing or malformed
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

/** Returns the fields of a handshake, or of the answer to it, without those that only HTTP/1.1 has. */
export function withoutHttp1(fields: HeaderList): HeaderList {
  return withoutNames(fields, OF_HTTP1);
}

/**
 * Returns the fields of a 2xx response to an extended CONNECT as those of a 101.
 * @param handshake the fields of the handshake over HTTP/1.1
 */
export async function toSwitch(answer: HeaderList, handshake: HeaderList): Promise<HeaderList> {
  const accept = await acceptOf(getHeader(handshake, "sec-websocket-key") ?? "");
  const made = ["Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Accept", accept];
  return [...withoutNames(answer, OF_HTTP1), ...made];
}

/**
 * Checks that a handshake has a key, which an upstream of HTTP/2 does not get and so does not check.
 * @throws ProxyError 400
 */
export function assertKey(handshake: HeaderList): void {
  if (!isKey(getHeader(handshake, "sec-websocket-key") ?? ""))
    throw badRequest("Sec-WebSocket-Key");
}
