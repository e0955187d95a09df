import { BytesBody } from "../body/bytes.ts";
import { badRequest } from "../error.ts";
import { getHeader, type HeaderList } from "../fields/headers.ts";
import { REQUEST_ASSERTIONS } from "../fields/hopbyhop.ts";
import type { UpstreamResponse } from "../transport/message.ts";
import type { Incoming } from "./incoming.ts";

const FIELD = "max-forwards";

/**
 * Decrements `Max-Forwards` in place. Call it only for a method with which the field has a meaning. 0 stays 0:
 * `respondAsRecipient` answers that request, so that it is not forwarded.
 * @throws ProxyError 400 for a value that is not a number, and for a second field: neither can be decremented
 */
export function countForwards(headers: HeaderList): void {
  let seen = false;
  for (let i = 0; i < headers.length; i += 2) {
    if ((headers[i] as string).toLowerCase() !== FIELD) continue;
    const value = headers[i + 1] as string;
    if (seen || !/^\d+$/.test(value)) throw badRequest("Max-Forwards");
    seen = true;
    // A number above 2^53, the largest that this proxy supports, becomes 2^53 (RFC 9110 §7.6.2).
    const left = Math.min(Number(value) - 1, 2 ** 53);
    if (left >= 0) headers[i + 1] = String(left);
  }
}

/** Matches names of fields that are likely to hold a secret. */
const SECRET = /auth|cookie|credential|key|password|secret|session|token/i;

/**
 * Returns the fields of a TRACE request that its response may show. It leaves out fields that may hold a secret, and
 * forwarding fields, which may show the addresses of earlier proxies (RFC 9110 §9.3.8).
 */
export function withoutSecrets(headers: HeaderList): HeaderList {
  return headers.filter((_, i) => {
    const name = headers[i - (i % 2)] as string;
    return !SECRET.test(name) && !REQUEST_ASSERTIONS.has(name);
  });
}

/**
 * Returns the response of the final recipient to an OPTIONS or TRACE request that must not be forwarded any further.
 * @returns undefined for a request that may be forwarded
 */
export function respondAsRecipient(incoming: Incoming): UpstreamResponse | undefined {
  if (Number(getHeader(incoming.headers, FIELD) ?? 1) !== 0) return undefined;
  if (incoming.method !== "TRACE") return respondOk(["Content-Length", "0"], null);
  const bytes = reflectHead(incoming);
  const length = String(bytes.byteLength);
  return respondOk(
    ["Content-Type", "message/http", "Content-Length", length],
    new BytesBody(bytes),
  );
}

function respondOk(headers: HeaderList, body: BytesBody | null): UpstreamResponse {
  return { status: 200, statusText: "OK", headers, body };
}

/** Returns the head of a request as the proxy received it, in bytes, without secrets (RFC 9110 §9.3.8). */
function reflectHead(incoming: Incoming): Uint8Array {
  const { method, path } = incoming;
  const headers = withoutSecrets(incoming.headers);
  let text = `${method} ${path} HTTP/${incoming.version()}\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return Uint8Array.from(`${text}\r\n`, (character) => character.charCodeAt(0));
}
