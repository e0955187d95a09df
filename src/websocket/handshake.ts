/** The opening handshake of a WebSocket, as a client does it (RFC 6455 §4.1). */
import { ProxyError } from "../error.ts";
import {
  getHeader,
  getHeaders,
  NameSet,
  toHeaders,
  trimOws,
  withoutNames,
  type HeaderList,
} from "../fields/headers.ts";
import { nominatesUpgrade } from "../fields/protocols.ts";

/** A key is 16 bytes in Base64 (RFC 6455 §4.1). */
const KEY = /^[+/\dA-Za-z]{21}[AQgw]==$/;
/** Fields of a 101 that are about the proxy's handshake with the upstream; the server writes its own. */
const OF_HANDSHAKE = /* @__PURE__ */ new NameSet([
  "sec-websocket-accept",
  "sec-websocket-extensions",
]);

/** The value that both sides add to the key (RFC 6455 §1.3). */
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Makes a `Sec-WebSocket-Key`: 16 random bytes in Base64. */
export function createKey(): string {
  return toBase64(crypto.getRandomValues(new Uint8Array(16)));
}

/** Returns the `Sec-WebSocket-Accept` that answers a key. */
export async function acceptOf(key: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(key + GUID));
  return toBase64(new Uint8Array(digest));
}

/** Whether the value of a `Sec-WebSocket-Key` is one that an upstream can answer. */
export function isKey(value: string): boolean {
  return KEY.test(value);
}

/** Whether the header fields of a GET ask for a WebSocket, and for nothing else. */
export function asksForWebSocket(headers: HeaderList): boolean {
  const upgrade = getHeader(headers, "upgrade");
  if (upgrade === undefined || trimOws(upgrade).toLowerCase() !== "websocket") return false;
  return nominatesUpgrade(headers);
}

/**
 * Makes a client's handshake the proxy's own, in place: with a key of the proxy's, and without extensions, because the relay
 * reads and writes frames without any. A handshake without a valid key stays as it is: the upstream refuses it.
 */
export function takeOverHandshake(headers: HeaderList): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    const name = (headers[i] as string).toLowerCase();
    if (name === "sec-websocket-extensions") headers.splice(i, 2);
    if (name === "sec-websocket-key" && isKey(headers[i + 1] as string)) {
      headers[i + 1] = createKey();
    }
  }
}

/**
 * Checks that a 101 answers a handshake (RFC 6455 §4.1).
 * @param asked the header fields of the handshake that the upstream got
 * @throws ProxyError 502 if the upstream has not seen the key, or has chosen an extension or a subprotocol unasked
 */
export async function checkAnswer(answer: HeaderList, asked: HeaderList): Promise<void> {
  checkChoices(answer, asked);
  const key = getHeader(asked, "sec-websocket-key") ?? "";
  const accept = getHeader(answer, "sec-websocket-accept");
  if (!isKey(key) || accept !== (await acceptOf(key))) throw badAnswer("Accept");
}

/**
 * Checks the parts of `checkAnswer` that need no key: a runtime's own client does not show the key of its handshake.
 * @throws ProxyError 502 for a field that is there twice, and for an extension or a subprotocol that was not offered
 */
export function checkChoices(answer: HeaderList, asked: HeaderList): void {
  // A list of header fields may have the values of repeated fields joined with commas. A value in Base64 has none.
  if (getHeaders(answer, "sec-websocket-accept").join().includes(",")) throw badAnswer("Accept");
  const extensions = getHeader(answer, "sec-websocket-extensions");
  if (extensions && !getHeader(asked, "sec-websocket-extensions")) throw badAnswer("Extensions");
  const chosen = getHeaders(answer, "sec-websocket-protocol").join();
  const offers = getHeaders(asked, "sec-websocket-protocol").join().split(",");
  if (chosen && !offers.some((offer) => trimOws(offer) === chosen)) throw badAnswer("Protocol");
}

function badAnswer(name: string): ProxyError {
  return new ProxyError("http_protocol_error", {
    message: `the upstream's Sec-WebSocket-${name} does not answer the handshake`,
  });
}

/** Returns the fields of a 101 that are for the client: without those that the server writes itself. */
export function toAnswerHeaders(answer: HeaderList): Headers {
  return toHeaders(withoutNames(answer, OF_HANDSHAKE));
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
