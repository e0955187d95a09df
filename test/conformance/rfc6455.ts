/**
 * RFC 6455, WebSocket. A tunnel passes frames as bytes, so only the requirements of the handshake apply to it. A relay,
 * on servers that terminate the WebSocket themselves, must fulfil those of an endpoint on both sides.
 */
export const rfc6455 = {
  "6455-4.1-handshake-sent": {
    level: "MUST",
    role: "client",
    says: "Send the handshake as a GET of HTTP/1.1 with Host, Upgrade, Connection, key and version 13.",
  },
  "6455-4.1-key": {
    level: "MUST",
    role: "client",
    says: "Send a fresh random key of 16 bytes in base64; a tunnel passes the client's.",
  },
  "6455-4.1-not-101": {
    level: "MUST",
    role: "client",
    says: "Handle a response other than 101 as the HTTP response that it is.",
  },
  "6455-4.1-checked": {
    level: "MUST",
    role: "client",
    says: "Fail the connection where a 101 lacks Upgrade, Connection or the right Sec-WebSocket-Accept.",
  },
  "6455-4.1-subprotocol": {
    level: "MUST",
    role: "client",
    says: "Fail the connection where the response names a subprotocol or an extension that was not asked for.",
  },
  "6455-4.2.1-validated": {
    level: "MUST",
    role: "server",
    says: "Answer a handshake that does not match the grammar with an HTTP error such as 400; a tunnel passes the upstream's.",
  },
  "6455-4.2.2-version": {
    level: "MUST",
    role: "server",
    says: "Answer an HTTP error such as 426, with Sec-WebSocket-Version, to a version that it does not support; a tunnel passes the upstream's.",
  },
  "6455-4.2.2-accept": {
    level: "MUST",
    role: "server",
    says: "Answer 101 with Upgrade, Connection and the Sec-WebSocket-Accept of the key.",
  },
  "6455-4.2.2-origin": {
    level: "MUST",
    role: "server",
    says: "Check Origin where it does not want connections from any page.",
    foreign: "The upstream checks Origin: the gateway passes it on unchanged.",
  },
  "6455-4.4-versions": {
    level: "MUST",
    role: "server",
    says: "Name the versions that it supports where the handshake fails for its version; a tunnel passes the upstream's.",
  },
  "6455-5.1-masked": {
    level: "MUST",
    role: "client",
    says: "Mask each frame to the server; a server does not mask frames.",
  },
  "6455-5.1-mask-checked": {
    level: "MUST",
    role: "recipient",
    says: "Close the connection on a frame that is masked where it must not be, or not where it must.",
  },
  "6455-5.2-reserved": {
    level: "MUST",
    role: "recipient",
    says: "Fail the connection on reserved bits and opcodes that no extension defines.",
  },
  "6455-5.2-shortest-length": {
    level: "MUST",
    role: "sender",
    says: "Write lengths in the smallest number of bytes.",
  },
  "6455-5.3-fresh-mask": {
    level: "MUST",
    role: "client",
    says: "Choose an unpredictable masking key for each frame.",
  },
  "6455-5.4-fragments": {
    level: "MUST",
    role: "recipient",
    says: "Take fragments in order, with control frames between them, and no two messages mixed.",
  },
  "6455-5.4-intermediary-fragments": {
    level: "MUST NOT",
    role: "intermediary",
    says: "Change the fragmentation of a message whose extensions it does not know.",
  },
  "6455-5.5-control": {
    level: "MUST",
    role: "sender",
    says: "Keep control frames to 125 bytes, and whole.",
  },
  "6455-5.5.1-close-answered": {
    level: "MUST",
    role: "recipient",
    says: "Answer Close by Close, and send nothing behind it.",
  },
  "6455-5.5.2-pong": {
    level: "MUST",
    role: "recipient",
    says: "Answer Ping by Pong with the same data, or pass both on.",
  },
  "6455-5.6-utf8": {
    level: "MUST",
    role: "recipient",
    says: "Fail the connection on text that is not UTF-8.",
  },
  "6455-7.1.1-close-tcp": {
    level: "SHOULD",
    role: "server",
    says: "Close the TCP connection first, once both sides have sent Close.",
  },
  "6455-7.1.7-fail": {
    level: "SHOULD",
    role: "recipient",
    says: "Send Close with a fitting code before it fails a connection.",
  },
  "6455-7.4.1-reserved-codes": {
    level: "MUST NOT",
    role: "sender",
    says: "Send the codes 1004, 1005, 1006 and 1015 in a Close frame.",
  },
  "6455-9.1-extensions": {
    level: "MUST NOT",
    role: "server",
    says: "Accept an extension that the client has not offered, or that nothing behind it implements.",
  },
  "6455-10.4-limits": {
    level: "MUST",
    role: "recipient",
    says: "Protect itself from frames and messages that are too large.",
  },
} as const;
