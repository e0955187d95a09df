/** The hosts that do not carry WebSockets, or not as a connection of bytes. */
import type { Gap } from "./gaps.ts";
import type { HostName } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";

/** Every test in which the proxy sends a WebSocket handshake to the upstream. */
const carried: readonly TestName[] = [
  "RFC 6455 §4: the handshakes with the client and with the upstream are complete",
  "RFC 6455 §4.2.1: a handshake with a malformed key gets an HTTP error",
  "RFC 6455 §4.4: a handshake of a version that the upstream refuses is answered with its versions",
  "RFC 9110 §7.8: a handshake with Expect: 100-continue gets 100 before its 101",
  "RFC 6455 §5: a malformed frame of a client ends its WebSocket, and is no message",
  "RFC 6455 §10.4: a message of a client that is far too large ends its WebSocket before it has come",
  "RFC 6455 §5.1: a frame of a client that is not masked ends its WebSocket",
  "RFC 6455 §7.1.7: a malformed frame of a client is answered with a close frame and its code",
  "RFC 6455 §5.5.1, §7.1.1: a close frame of a client is answered, and then the server closes the connection",
  "RFC 6455 §5.5.2: a ping of a client is answered with a pong of the same data",
  "a WebSocket carries text and binary messages of any size in both directions",
  "close codes and reasons of a WebSocket pass in both directions",
  "a WebSocket's subprotocol is the one that the upstream chooses",
  "a WebSocket has no subprotocol if the upstream chooses none",
  "fragments of a WebSocket's message arrive as one message, with pings answered between them",
  "an upstream that breaks off its WebSocket ends the client's without a close code",
  "a client that breaks off its WebSocket closes the upstream's connection",
  "a WebSocket handshake is forwarded by the rules of any request",
  "hooks see a WebSocket handshake and its 101",
  "a refused WebSocket handshake is relayed as the response it is",
  "nothing that follows a refused upgrade reaches the upstream",
  "a frame that comes with the handshake's packet reaches the upstream",
  "a 101 that does not answer the handshake becomes 502",
  "RFC 9110 §7.8: a 101 of HTTP/1.0 becomes 502",
  "a 101 without the connection option becomes 502",
  "a 101 with a subprotocol or an extension that was not offered becomes 502",
  "a 101 to another protocol becomes 502",
  "a WebSocket's upstream that refuses the connection becomes 502, and one that is silent 504",
  "an upstream that does not read its WebSocket makes the client wait",
  "no deadline applies to an open WebSocket",
  "a client that disconnects before the handshake is answered closes the upstream request",
  "onRequestEnd tells of a WebSocket when it is closed",
  "CVE-2024-23326: a 200 with Upgrade opens no tunnel",
  "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of a client with a length of 64 bits ends its WebSocket",
  "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of an upstream with a length of 64 bits takes no memory",
  "CVE-2026-48779, GHSA-vxpw-j846-p89q: hundreds of thousands of fragments take little memory, in both directions",
];

const REFUSED = "a WebSocket handshake is answered with 501";

function refusing(hosts: readonly HostName[]): Gap[] {
  return hosts.flatMap((host) => carried.map((test) => ({ host, test, reason: REFUSED })));
}

const BUN_PACKET = "a WebSocket handshake with bytes behind it in the same packet is refused";

/** Of servers that do not hand out the connection: they show the proxy messages in place of bytes. */
export const onRelays: readonly Gap[] = [
  {
    host: "bun",
    test: "nothing that follows a refused upgrade reaches the upstream",
    reason: BUN_PACKET,
  },
  {
    host: "bun",
    test: "a frame that comes with the handshake's packet reaches the upstream",
    reason: BUN_PACKET,
  },
  {
    host: "deno",
    test: "an upstream that breaks off its WebSocket ends the client's without a close code",
    reason: "a WebSocket whose upstream breaks off is closed with 1011",
  },
  {
    host: "deno",
    test: "an upstream that does not read its WebSocket makes the client wait",
    reason: "a client whose upstream does not read is closed with 1013 once 16 MiB wait",
  },
  {
    host: "deno",
    test: "RFC 6455 §5.1: a frame of a client that is not masked ends its WebSocket",
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
    test: "a 101 without the connection option becomes 502",
    reason: "a 101 of the upstream opens a WebSocket without `Connection: Upgrade`, too",
  },
  {
    host: "workerd",
    test: "RFC 9110 §7.8: a 101 of HTTP/1.0 becomes 502",
    reason: "a 101 of HTTP/1.0 opens a WebSocket, too",
  },
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

/** Of clients whose connections cannot be switched. */
export const withoutTunnel: readonly Gap[] = [
  ...refusing(["fetch-node", "fetch-bun", "fetch-deno"]),
  // These servers do not show the HTTP version of a request.
  ...(["fetch-bun", "fetch-deno"] as const).map((host): Gap => ({
    host,
    test: "RFC 9110 §7.8: Upgrade in an HTTP/1.0 request is ignored",
    reason: "a WebSocket handshake of HTTP/1.0 is answered with 501",
  })),
];
