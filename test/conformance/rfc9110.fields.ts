/** RFC 9110, HTTP semantics: fields, preconditions, ranges and statuses (sections 10 to 15). */
export const rfc9110Fields = {
  "9110-10.1.1-ignored": {
    level: "MUST",
    role: "server",
    says: "Ignore an expectation of 100 in an HTTP/1.0 request.",
  },
  "9110-10.1.1-sent": {
    level: "MUST NOT",
    role: "client",
    says: "Expect 100 in a request without content.",
  },
  "9110-10.1.1-final": {
    level: "MUST",
    role: "server",
    says: "Send a final status behind each 100, once it has the content.",
  },
  "9110-10.1.1-close": {
    level: "SHOULD",
    role: "server",
    says: "Say whether it closes the connection or reads on where it answers before all content has come.",
  },
  "9110-10.1.1-answered": {
    level: "MUST",
    role: "server",
    says: "Answer an expectation by 100 or by a final status, without waiting for the content.",
  },
  "9110-10.1.1-proxy": {
    level: "MUST",
    role: "proxy",
    says: "Answer a request with an expectation by a final status, or forward its head immediately.",
  },
  "9110-10.1.1-417": {
    level: "SHOULD",
    role: "client",
    says: "Repeat a request without its expectation after a 417.",
    foreign:
      "The gateway expects nothing itself: the 417 reaches the client, which repeats its request.",
  },
  "9110-10.1.3-referer": {
    level: "SHOULD NOT",
    role: "intermediary",
    says: "Remove Referer without need (the RFC says: ought to restrict such changes).",
  },
  "9110-10.1.4-te": {
    level: "MUST",
    role: "sender",
    says: "Name TE in Connection where it sends TE.",
  },
  "9110-10.2.1-allow": {
    level: "MUST NOT",
    role: "proxy",
    says: "Modify Allow.",
  },
  "9110-11.6.1-www-authenticate": {
    level: "MUST NOT",
    role: "proxy",
    says: "Modify WWW-Authenticate.",
  },
  "9110-11.6.2-authorization": {
    level: "MUST NOT",
    role: "proxy",
    says: "Modify Authorization of a request.",
  },
  "9110-11.7.1-407": {
    level: "MUST",
    role: "proxy",
    says: "Send Proxy-Authenticate with each 407 that it generates.",
    foreign: "The gateway itself asks for no authentication.",
  },
  "9110-13.1-evaluate": {
    level: "MUST",
    role: "server",
    says: "Evaluate If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since and If-Range.",
    foreign: "Origin servers and caches do so.",
  },
  "9110-13.2.1-forward": {
    level: "MUST",
    role: "intermediary",
    says: "Forward preconditions without evaluating them if it is neither origin server nor cache.",
  },
  "9110-14.2-range": {
    level: "MUST",
    role: "server",
    says: "Ignore or evaluate Range by its rules.",
    foreign: "Origin servers and caches do so; a gateway forwards the field.",
  },
  "9110-14.4-unknown-unit": {
    level: "SHOULD",
    role: "proxy",
    says: "Forward a 206 whose Content-Range has a unit that it does not know.",
  },
  "9110-15-class": {
    level: "MUST",
    role: "client",
    says: "Understand an unknown status by its class.",
  },
  "9110-15-invalid": {
    level: "SHOULD",
    role: "client",
    says: "Take a status outside of 100 to 599 for a server error.",
  },
  "9110-15.2-http10": {
    level: "MUST NOT",
    role: "server",
    says: "Send 1xx to a client of HTTP/1.0.",
  },
  "9110-15.2-parse": {
    level: "MUST",
    role: "client",
    says: "Parse any number of 1xx responses in front of the final one, expected or not.",
  },
  "9110-15.2-forward": {
    level: "MUST",
    role: "proxy",
    says: "Forward 1xx responses that it has not asked for itself; a 100 without an expectation may be discarded.",
  },
  "9110-15.3.6-205": {
    level: "MUST NOT",
    role: "server",
    says: "Send content with a 205.",
  },
  "9110-15.3.7-206": {
    level: "MUST",
    role: "server",
    says: "Send Content-Range, Date and the validators with a 206 that it generates.",
    foreign: "A gateway generates no 206.",
  },
  "9110-15.4-modifications": {
    level: "SHOULD",
    role: "client",
    says: "Send a followed request again without the fields that were for the first origin or its content.",
    option: "followRedirects",
  },
  "9110-15.4-cycles": {
    level: "SHOULD",
    role: "client",
    says: "Detect redirections in a circle.",
    option: "followRedirects",
  },
  "9110-15.4.5-forward": {
    level: "SHOULD",
    role: "proxy",
    says: "Forward a 304 to the client whose precondition it answers.",
  },
  "9110-15.4.8-method": {
    level: "MUST NOT",
    role: "client",
    says: "Change the method when it follows a 307.",
    option: "followRedirects",
  },
  "9110-15.5-explained": {
    level: "SHOULD",
    role: "server",
    says: "Explain an error in the content of a 4xx or 5xx that it makes itself, HEAD apart.",
  },
  "9110-15.5.20-421": {
    level: "MUST NOT",
    role: "proxy",
    says: "Generate a 421.",
  },
  "9110-15.6.6-505": {
    level: "SHOULD",
    role: "server",
    says: "Say in the content of a 505 why the version is not supported, and which ones are.",
  },
} as const;
