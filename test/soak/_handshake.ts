/** The heads of WebSocket handshakes as bytes. */
import { createHash } from "node:crypto";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Returns the request for a WebSocket at a path. */
export function requestFor(path: string): string {
  return (
    `GET ${path} HTTP/1.1\r\nHost: soak\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
  );
}

/** Returns the response that accepts a WebSocket with this key. */
export function acceptOf(key: string): string {
  const accept = createHash("sha1")
    .update(key + GUID)
    .digest("base64");
  return (
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
    `Sec-WebSocket-Accept: ${accept}\r\n\r\n`
  );
}
