/** The tests of WebSockets, and the gaps of servers that pass messages instead of the bytes of the connection. */
import type { Gap } from "./gaps.ts";
import type { TestName } from "../_suite.ts";

/** Every test in which the proxy sends a WebSocket handshake to the upstream. */
export const carried: readonly TestName[] = [
  "RFC 6455 §4: the handshakes with the client and with the upstream are complete",
  "RFC 6455 §4.2.1: a handshake with a malformed key gets an HTTP error",
  "RFC 6455 §4.4: a handshake with a version that the upstream refuses is answered with the upstream's versions",
  "RFC 9110 §7.8: a handshake with Expect: 100-continue gets 100 before its 101",
  "RFC 6455 §5: a malformed frame of a client ends its WebSocket, and the upstream gets no message from that frame",
  "RFC 6455 §10.4: a client's far too large message ends the WebSocket before the whole message has arrived",
  "RFC 6455 §5.1: an unmasked frame of a client ends its WebSocket",
  "RFC 6455 §7.1.7: a malformed frame of a client is answered with a close frame and its code",
  "RFC 6455 §5.5.1, §7.1.1: a close frame of a client is answered, and then the server closes the connection",
  "RFC 6455 §5.5.2: a ping of a client is answered with a pong that has the same data",
  "a WebSocket carries text and binary messages of any size in both directions",
  "close codes and reasons of a WebSocket pass in both directions",
  "a WebSocket's subprotocol is the one that the upstream chooses",
  "a WebSocket has no subprotocol if the upstream chooses none",
  "fragments of a WebSocket's message arrive as one message, with pings answered between them",
  "a WebSocket whose upstream breaks off the connection ends for the client without a close code",
  "a WebSocket whose client breaks off the connection closes the upstream's connection",
  "the fields of a WebSocket handshake are forwarded by the rules for any request",
  "hooks see a WebSocket handshake and its 101",
  "the response with which an upstream refuses a WebSocket handshake reaches the client",
  "the bytes after a refused upgrade are not sent to the upstream as if it had succeeded",
  "a frame in the same packet as the handshake reaches the upstream",
  "a 101 with a wrong or missing Sec-WebSocket-Accept becomes 502",
  "RFC 9110 §7.8: an HTTP/1.0 response with status 101 becomes 502",
  "a 101 whose Connection does not name Upgrade becomes 502",
  "a 101 with a subprotocol or an extension that was not offered becomes 502",
  "a 101 that names another protocol or none becomes 502",
  "a WebSocket handshake becomes 502 if the upstream refuses the connection, and 504 if it is silent",
  "an upstream that does not read its WebSocket makes the client wait",
  "no deadline applies to an open WebSocket",
  "a client that disconnects before the handshake is answered closes the upstream request",
  "onRequestEnd reports a WebSocket when it is closed",
  "onRequestEnd reports the error of a WebSocket whose upstream breaks off the connection",
  "CVE-2024-23326: a 200 with Upgrade opens no tunnel",
  "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of a client with a length of 64 bits ends its WebSocket",
  "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of an upstream with a length of 64 bits is refused or forwarded",
  "CVE-2026-48779, GHSA-vxpw-j846-p89q: hundreds of thousands of fragments take little memory, in both directions",
];

const BUN_PACKET = "a WebSocket handshake with bytes behind it in the same packet is refused";

/** The gaps of servers that do not expose the connection, but pass messages to the proxy instead of bytes. */
export const onRelays: readonly Gap[] = [
  {
    host: "bun",
    test: "the bytes after a refused upgrade are not sent to the upstream as if it had succeeded",
    reason: BUN_PACKET,
  },
  {
    host: "bun",
    test: "a frame in the same packet as the handshake reaches the upstream",
    reason: BUN_PACKET,
  },
  {
    host: "deno",
    test: "a WebSocket whose upstream breaks off the connection ends for the client without a close code",
    reason: "a WebSocket whose upstream breaks off is closed with 1011",
  },
  {
    host: "deno",
    test: "an upstream that does not read its WebSocket makes the client wait",
    reason: "a client whose upstream does not read is closed with 1013 once 16 MiB wait",
  },
  {
    host: "deno",
    test: "RFC 6455 §5.1: an unmasked frame of a client ends its WebSocket",
    reason: "frames of a client that are not masked are accepted",
  },
  {
    host: "deno",
    test: "RFC 6455 §7.1.7: a malformed frame of a client is answered with a close frame and its code",
    reason: "a malformed frame of a client ends its WebSocket without a close frame",
  },
  ...(["deno", "workerd"] as const).map((host) => ({
    host,
    test: "RFC 9110 §7.8: a handshake with Expect: 100-continue gets 100 before its 101" as const,
    reason: "a WebSocket handshake with Expect: 100-continue gets its 101 without a 100",
  })),
  {
    host: "workerd",
    test: "an Upgrade that is no WebSocket handshake is ignored",
    reason:
      "a request with `Upgrade: websocket` is a WebSocket handshake without `Connection`, too",
  },
  {
    host: "workerd",
    test: "a client that disconnects before the handshake is answered closes the upstream request",
    reason:
      "a client that disconnects by FIN stops the upstream request only when the next bytes are written to it",
  },
];
