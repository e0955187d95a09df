/** RFC 8441, WebSockets over HTTP/2, from clients and to upstreams. */
export const rfc8441 = {
  "8441-3-announced": {
    level: "MUST NOT",
    role: "client",
    says: "Send an extended CONNECT to a server that has not announced it by SETTINGS_ENABLE_CONNECT_PROTOCOL.",
  },
  "8441-4-pseudo-fields": {
    level: "MUST",
    role: "client",
    says: "Send :scheme and :path with :protocol, and the authority of the target in :authority.",
  },
  "8441-5-fields": {
    level: "MUST",
    role: "intermediary",
    says: "Use the version, subprotocols and extensions of the handshake, but neither Upgrade nor the key and its answer.",
  },
  "8441-5-end": {
    level: "MUST",
    role: "intermediary",
    says: "Send the orderly end of a direction as END_STREAM, and a reset as RST_STREAM.",
  },
} as const;
