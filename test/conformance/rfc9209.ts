/** RFC 9209, Proxy-Status: what it requires of an intermediary. */
export const rfc9209 = {
  "9209-2-identifier": {
    level: "MUST",
    role: "intermediary",
    says: "Begin each member with a token or a string that identifies the intermediary.",
  },
  "9209-2-members": {
    level: "SHOULD",
    role: "intermediary",
    says: "Preserve the members that are there already.",
  },
  "9209-2-origin": {
    level: "MUST NOT",
    role: "server",
    says: "Generate Proxy-Status as an origin server.",
    foreign: "A gateway is an intermediary.",
  },
  "9209-2-trailer": {
    level: "SHOULD NOT",
    role: "intermediary",
    says: "Send Proxy-Status as a trailer where a header field could have said it.",
    foreign: "Proxy-Status is never sent as a trailer.",
  },
  "9209-2-trailer-member": {
    level: "MUST NOT",
    role: "intermediary",
    says: "Send Proxy-Status as a trailer without the same member in the header section.",
    foreign: "Proxy-Status is never sent as a trailer.",
  },
  "9209-2.1-unknown": {
    level: "MUST",
    role: "recipient",
    says: "Ignore parameters that it does not know.",
    foreign: "The field of an upstream is passed on and not read.",
  },
  "9209-2.1.1-specific": {
    level: "SHOULD",
    role: "intermediary",
    says: "Send the most specific type of error that is true.",
  },
  "9209-2.1.1-status": {
    level: "SHOULD",
    role: "intermediary",
    says: "Answer with the status that is recommended for the type of error.",
    gap: "A method, an upgrade, a transfer coding or a version that is not supported gets 501 or 505 as an http_request_error, whose statuses are 4xx.",
  },
  "9209-2.1.3-next-protocol": {
    level: "MUST",
    role: "intermediary",
    says: "Write next-protocol as a token or bytes of an ALPN identifier.",
    foreign: "The parameter is not sent.",
  },
  "9209-2.1.4-received-status": {
    level: "MUST",
    role: "intermediary",
    says: "Write received-status as an integer.",
    foreign: "The parameter is not sent.",
  },
} as const;
