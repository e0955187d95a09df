/** The client side of the opening handshake of a WebSocket (RFC 6455 §4.1). */
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
/**
 * Fields of a 101 response that belong to the proxy's handshake with the upstream. For the client, the server writes
 * its own.
 */
const OF_HANDSHAKE = /* @__PURE__ */ new NameSet([
  "sec-websocket-accept",
  "sec-websocket-extensions",
]);

/** The value that both sides append to the key before they hash it (RFC 6455 §1.3). */
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

/** Whether a value of `Sec-WebSocket-Key` is valid. */
export function isKey(value: string): boolean {
  return KEY.test(value);
}

/** Whether the header fields of a GET ask for a WebSocket, and for no other protocol. */
export function asksForWebSocket(headers: HeaderList): boolean {
  const upgrade = getHeader(headers, "upgrade");
  if (upgrade === undefined || trimOws(upgrade).toLowerCase() !== "websocket") return false;
  return nominatesUpgrade(headers);
}

/**
 * Turns a client's handshake into the proxy's own, in place: sets a new key, and removes the extensions, because the relay
 * supports none. An invalid key is left unchanged, so that the upstream refuses the handshake.
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
 * Checks that a 101 response answers a handshake (RFC 6455 §4.1).
 * @param answer the header fields of the 101 response
 * @param handshake the header fields of the handshake request that the upstream got
 * @throws ProxyError 502 if `Sec-WebSocket-Accept` does not match the key, or as `checkChoices` does
 */
export async function checkAnswer(answer: HeaderList, handshake: HeaderList): Promise<void> {
  checkChoices(answer, handshake);
  const key = getHeader(handshake, "sec-websocket-key") ?? "";
  const accept = getHeader(answer, "sec-websocket-accept");
  if (!isKey(key) || accept !== (await acceptOf(key))) throw badAnswer("Accept");
}

/**
 * Makes those checks of `checkAnswer` that need no key, because the `fetch` of workerd does not show the key of its
 * handshake.
 * @throws ProxyError 502 for a repeated `Sec-WebSocket-Accept`, for an extension if none was offered, and for a subprotocol
 * that was not offered
 */
export function checkChoices(answer: HeaderList, handshake: HeaderList): void {
  // Some runtimes join repeated fields with commas. A value in Base64 contains no comma.
  if (getHeaders(answer, "sec-websocket-accept").join().includes(",")) throw badAnswer("Accept");
  const extensions = getHeader(answer, "sec-websocket-extensions");
  const offersExtensions = getHeader(handshake, "sec-websocket-extensions");
  if (extensions && !offersExtensions) throw badAnswer("Extensions");
  const chosen = getHeaders(answer, "sec-websocket-protocol").join();
  const offers = getHeaders(handshake, "sec-websocket-protocol").join().split(",");
  if (chosen && !offers.some((offer) => trimOws(offer) === chosen)) throw badAnswer("Protocol");
}

function badAnswer(name: string): ProxyError {
  return new ProxyError("http_protocol_error", {
    message: `the upstream's Sec-WebSocket-${name} does not answer the handshake`,
  });
}

/**
 * Makes the 101 response for the hook `onResponse` on Bun and Deno. The server itself makes the 101 that the client gets, with
 * the header fields that the hook leaves on this response.
 * @throws ProxyError 502 as `checkAnswer` does
 */
export async function respondSwitched(
  answer: HeaderList,
  handshake: HeaderList,
): Promise<Response> {
  await checkAnswer(answer, handshake);
  return new Response(null, { status: 101, headers: toAnswerHeaders(answer) });
}

/** Returns the fields of a 101 response for the client, without those that the server writes itself. */
export function toAnswerHeaders(answer: HeaderList): Headers {
  return toHeaders(withoutNames(answer, OF_HANDSHAKE));
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
