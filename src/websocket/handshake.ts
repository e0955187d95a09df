/** The opening handshake of a WebSocket, as a client does it (RFC 6455 §4.1). */

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

/** Splits the `Sec-WebSocket-Protocol` of a request into the names of subprotocols. */
export function parseProtocols(value: string | undefined): string[] {
  if (value === undefined) return [];
  return value
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
