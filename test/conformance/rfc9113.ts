/**
 * RFC 9113, HTTP/2: what it requires of a gateway that translates messages. The requirements on connections (frames,
 * windows, HPACK) are met by `node:http2`, so there is one entry for each section about them.
 *
 * As the client, Fetchway speaks HTTP/2 on Node, Bun and Deno; elsewhere, `fetch` or undici chooses the version.
 */
export const rfc9113 = {
  "9113-3.2-alpn": {
    level: "MUST",
    role: "client",
    says: "Choose HTTP/2 over TLS by ALPN as h2, and never name h2c there.",
  },
  "9113-3.3-prior-knowledge": {
    level: "MUST",
    role: "client",
    says: "Begin with the connection preface where it knows that the server speaks HTTP/2.",
  },
  "9113-3.4-preface": {
    level: "MUST",
    role: "recipient",
    says: "Exchange and check the connection prefaces.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-4-frames": {
    level: "MUST",
    role: "recipient",
    says: "Keep the rules of frames, their sizes and their flags.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-4.3-hpack": {
    level: "MUST",
    role: "recipient",
    says: "Take a decoding error in a field block for a connection error.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-5.1-states": {
    level: "MUST",
    role: "recipient",
    says: "Keep the states of streams, and their identifiers.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-5.1.2-concurrency": {
    level: "MUST NOT",
    role: "client",
    says: "Open more streams than the upstream allows.",
  },
  "9113-5.2-flow-control": {
    level: "MUST",
    role: "sender",
    says: "Respect the windows of the recipient: backpressure goes from stream to stream.",
  },
  "9113-5.4-errors": {
    level: "SHOULD",
    role: "recipient",
    says: "Report stream and connection errors once, and send GOAWAY before it closes a connection.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-6-settings-ping": {
    level: "MUST",
    role: "recipient",
    says: "Acknowledge SETTINGS and answer PING.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-6.8-no-new-streams": {
    level: "MUST NOT",
    role: "client",
    says: "Open streams on a connection that has got GOAWAY.",
  },
  "9113-8.1-trailers": {
    level: "MUST NOT",
    role: "sender",
    says: "Send pseudo-header fields in trailers.",
  },
  "9113-8.1-early-response": {
    level: "MUST NOT",
    role: "client",
    says: "Discard a response because the stream was reset with NO_ERROR before its request was complete.",
  },
  "9113-8.1.1-malformed": {
    level: "MUST NOT",
    role: "intermediary",
    says: "Forward a malformed request or response.",
  },
  "9113-8.1.1-length": {
    level: "MUST",
    role: "recipient",
    says: "Treat a message whose content is not as long as its Content-Length says as malformed.",
  },
  "9113-8.2-lowercase": {
    level: "MUST",
    role: "sender",
    says: "Convert field names to lower case.",
  },
  "9113-8.2.1-validity": {
    level: "MUST",
    role: "recipient",
    says: "Take prohibited characters in names and values for malformed.",
    gap: "The `node:http2` of Node and Deno leaves the field out instead. On Bun, the proxy refuses the response.",
  },
  "9113-8.2.1-status": {
    level: "SHOULD",
    role: "server",
    says: "Answer 400 to a request with an invalid field.",
    foreign: "The runtime's HTTP/2 resets the stream before a handler sees the request.",
  },
  "9113-8.2.2-connection": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate a message with fields that are about the connection.",
  },
  "9113-8.2.2-te": {
    level: "MUST NOT",
    role: "sender",
    says: "Send TE with anything but trailers.",
  },
  "9113-8.2.2-translated": {
    level: "MUST",
    role: "intermediary",
    says: "Remove the fields of the connection when it translates a message from HTTP/1.",
  },
  "9113-8.2.3-cookie": {
    level: "MUST",
    role: "intermediary",
    says: "Join several Cookie fields by a semicolon and a space before it passes them to HTTP/1.",
  },
  "9113-8.3-pseudo": {
    level: "MUST",
    role: "recipient",
    says: "Take unknown, repeated, late or misplaced pseudo-header fields for malformed.",
    foreign: "The runtime's HTTP/2 does so.",
  },
  "9113-8.3-pseudo-forwarded": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate pseudo-header fields other than those defined: none of them reaches HTTP/1.",
  },
  "9113-8.3.1-authority-counts": {
    level: "MUST NOT",
    role: "recipient",
    says: "Use Host where :authority is present.",
  },
  "9113-8.3.1-authority-differs": {
    level: "SHOULD",
    role: "server",
    says: "Treat a request whose Host differs from :authority as malformed.",
  },
  "9113-8.3.1-authority-sent": {
    level: "MUST",
    role: "client",
    says: "Send the authority of the target URI in :authority, without user or password.",
  },
  "9113-8.3.1-host-made": {
    level: "MUST",
    role: "intermediary",
    says: "Make Host of :authority unless it changes the request's target.",
  },
  "9113-8.3.1-path": {
    level: "MUST NOT",
    role: "client",
    says: "Send an empty :path; OPTIONS of a whole server has a star in it.",
  },
  "9113-8.3.1-mandatory": {
    level: "MUST",
    role: "client",
    says: "Send exactly one valid :method, :scheme and :path with each request.",
  },
  "9113-8.3.2-status": {
    level: "MUST",
    role: "server",
    says: "Send :status with each response, interim ones included.",
  },
  "9113-8.4-push": {
    level: "MUST",
    role: "client",
    says: "Refuse pushed responses: no client has asked for them.",
  },
  "9113-8.5-connect": {
    level: "MUST",
    role: "proxy",
    says: "Keep the rules of CONNECT.",
    foreign: "A gateway is not a CONNECT proxy.",
  },
  "9113-8.7-retry": {
    level: "MUST NOT",
    role: "client",
    says: "Retry a request of which it cannot know that it was not processed, unless its method is idempotent.",
  },
  "9113-9.1-one-connection": {
    level: "SHOULD NOT",
    role: "client",
    says: "Open more than one connection to the same host and port with the same configuration.",
  },
  "9113-9.1-goaway": {
    level: "SHOULD",
    role: "sender",
    says: "Send GOAWAY before it closes a connection.",
  },
  "9113-9.1.1-certificate": {
    level: "MUST",
    role: "client",
    says: "Use a connection only for targets that its certificate is valid for.",
  },
  "9113-9.2-tls": {
    level: "MUST",
    role: "client",
    says: "Use TLS 1.2 or later, with a server name.",
  },
  "9113-9.2.1-tls12": {
    level: "MUST",
    role: "client",
    says: "Keep the restrictions on TLS 1.2 and TLS 1.3: compression, renegotiation, suites.",
    foreign: "The runtime's TLS does so.",
  },
  "9113-10.3-translation": {
    level: "MUST",
    role: "intermediary",
    says: "Validate fields before it translates a message into another version of HTTP.",
  },
  "9113-10.3-removal": {
    level: "MUST",
    role: "intermediary",
    says: "Remove or replace the fields that require removal when it forwards a message.",
  },
  "9113-10.5-limits": {
    level: "SHOULD",
    role: "recipient",
    says: "Limit the work that a peer can cause by SETTINGS, resets, empty frames and CONTINUATION.",
  },
  "9113-10.5.1-field-block": {
    level: "MUST",
    role: "recipient",
    says: "Process field blocks that are too large all the same, or close the connection.",
  },
  "9113-10.6-compression": {
    level: "MUST NOT",
    role: "sender",
    says: "Compress content that mixes secrets with data that an attacker controls.",
    foreign: "A gateway passes content unchanged, and does not compress it.",
  },
  "9113-10.7-padding": {
    level: "SHOULD",
    role: "intermediary",
    says: "Retain the padding of DATA frames.",
    foreign: "The runtime's HTTP/2 shows no padding.",
  },
} as const;
