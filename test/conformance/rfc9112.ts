/** RFC 9112, HTTP/1.1: what it requires of a gateway, as the server of clients and as the client of upstreams. */
export const rfc9112 = {
  "9112-2.2-octets": {
    level: "MUST",
    role: "recipient",
    says: "Parse a message as bytes, never as text of an encoding in which LF can hide in a character.",
  },
  "9112-2.2-bare-cr": {
    level: "MUST",
    role: "recipient",
    says: "Take a CR without LF outside of content for an error, or for a space.",
  },
  "9112-2.2-bare-cr-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate a CR without LF outside of content.",
  },
  "9112-2.2-extra-crlf": {
    level: "MUST NOT",
    role: "client",
    says: "Put an additional CRLF before or behind a request.",
  },
  "9112-2.2-empty-line": {
    level: "SHOULD",
    role: "server",
    says: "Ignore at least one empty line in front of a request line.",
  },
  "9112-2.2-leading-space-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Send white space between the start line and the first field.",
  },
  "9112-2.2-leading-space": {
    level: "MUST",
    role: "recipient",
    says: "Refuse a message with white space in front of its first field, or ignore such lines.",
  },
  "9112-2.2-grammar": {
    level: "SHOULD",
    role: "server",
    says: "Answer 400 to bytes that are no HTTP request, and close the connection.",
  },
  "9112-2.3-own-version": {
    level: "MUST",
    role: "intermediary",
    says: "Send its own HTTP version in the messages that it forwards.",
  },
  "9112-3-long-method": {
    level: "SHOULD",
    role: "server",
    says: "Answer 501 to a method that is longer than any that it knows.",
  },
  "9112-3-long-target": {
    level: "MUST",
    role: "server",
    says: "Answer 414 to a request target that is longer than it wants to parse.",
  },
  "9112-3.2-invalid-line": {
    level: "SHOULD",
    role: "recipient",
    says: "Answer 400 to an invalid request line, or redirect to a valid target.",
  },
  "9112-3.2-autocorrect": {
    level: "SHOULD NOT",
    role: "recipient",
    says: "Repair an invalid request line and process the request all the same.",
  },
  "9112-3.2-host-sent": {
    level: "MUST",
    role: "client",
    says: "Send Host with every request, and in it the authority of the target URI.",
  },
  "9112-3.2-host-received": {
    level: "MUST",
    role: "server",
    says: "Answer 400 to an HTTP/1.1 request without Host, and to any with two of them or an invalid one.",
  },
  "9112-3.2.1-origin-form": {
    level: "MUST",
    role: "client",
    says: "Send path and query alone as the request target, and a slash for an empty path.",
  },
  "9112-3.2.2-to-proxy": {
    level: "MUST",
    role: "client",
    says: "Send the absolute form of the target to a proxy.",
    foreign:
      "The upstream is an origin server; a proxy in front of it is a dispatcher of undici's.",
  },
  "9112-3.2.2-host-replaced": {
    level: "MUST",
    role: "proxy",
    says: "Ignore Host if the target is in absolute form, and send a Host that is made from the target.",
  },
  "9112-3.2.2-accepted": {
    level: "MUST",
    role: "server",
    says: "Accept a request target in absolute form.",
  },
  "9112-3.2.3-authority-form": {
    level: "MUST",
    role: "client",
    says: "Send host and port alone as the target of CONNECT.",
    foreign: "A gateway sends no CONNECT.",
  },
  "9112-3.2.4-asterisk-sent": {
    level: "MUST",
    role: "client",
    says: "Send the target * for OPTIONS of a server as a whole.",
  },
  "9112-3.2.4-asterisk-proxy": {
    level: "MUST",
    role: "proxy",
    says: "Send the target * for OPTIONS of an absolute form without path and query.",
  },
  "9112-4-reason": {
    level: "SHOULD",
    role: "client",
    says: "Ignore the content of the reason phrase.",
  },
  "9112-4-space": {
    level: "MUST",
    role: "server",
    says: "Send the space behind the status code even where no reason phrase follows.",
  },
  "9112-5.1-space-request": {
    level: "MUST",
    role: "server",
    says: "Answer 400 to a request with white space between a field's name and its colon.",
  },
  "9112-5.1-space-response": {
    level: "MUST",
    role: "proxy",
    says: "Forward no response with white space between a field's name and its colon.",
  },
  "9112-5.2-fold-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Fold the line of a field.",
  },
  "9112-5.2-fold-request": {
    level: "MUST",
    role: "server",
    says: "Answer 400 to a folded line in a request, or replace the fold by spaces.",
  },
  "9112-5.2-fold-response": {
    level: "MUST",
    role: "gateway",
    says: "Answer 502 for a folded line in a response, or replace the fold by spaces.",
  },
  "9112-6.1-chunked-once": {
    level: "MUST NOT",
    role: "sender",
    says: "Apply the chunked coding more than once.",
  },
  "9112-6.1-bodyless": {
    level: "MUST NOT",
    role: "server",
    says: "Send Transfer-Encoding with a status of 1xx or 204.",
  },
  "9112-6.1-unknown-coding": {
    level: "SHOULD",
    role: "server",
    says: "Answer 501 to a transfer coding that it does not understand.",
  },
  "9112-6.1-to-http10": {
    level: "MUST NOT",
    role: "server",
    says: "Send Transfer-Encoding to a client of HTTP/1.0.",
  },
  "9112-6.1-upstream-version": {
    level: "MUST NOT",
    role: "client",
    says: "Send Transfer-Encoding to a server that is not known to understand HTTP/1.1.",
    foreign:
      "The configuration of a target says so: its documentation asks for a server that understands HTTP/1.1.",
  },
  "9112-6.1-both-closes": {
    level: "MUST",
    role: "server",
    says: "Close the connection after a request with both Content-Length and Transfer-Encoding.",
  },
  "9112-6.1-http10-request": {
    level: "MUST",
    role: "server",
    says: "Take Transfer-Encoding in an HTTP/1.0 request for faulty framing, and close the connection.",
  },
  "9112-6.1-http10-response": {
    level: "MUST",
    role: "client",
    says: "Take Transfer-Encoding in an HTTP/1.0 response for faulty framing, and close the connection.",
  },
  "9112-6.2-both-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Send Content-Length beside Transfer-Encoding.",
  },
  "9112-6.3-connect": {
    level: "MUST",
    role: "client",
    says: "Ignore framing fields of a successful response to CONNECT.",
    foreign: "A gateway sends no CONNECT.",
  },
  "9112-6.3-both-received": {
    level: "MUST",
    role: "intermediary",
    says: "Remove Content-Length from a message with both before forwarding it, or refuse it.",
  },
  "9112-6.3-not-chunked-last": {
    level: "MUST",
    role: "server",
    says: "Answer 400 to a request whose last transfer coding is not chunked, and close the connection.",
  },
  "9112-6.3-length-request": {
    level: "MUST",
    role: "server",
    says: "Answer 400 to a request with an invalid Content-Length, and close the connection.",
  },
  "9112-6.3-length-response": {
    level: "MUST",
    role: "proxy",
    says: "Close the connection to an upstream that sends an invalid Content-Length, and answer 502.",
  },
  "9112-6.3-short-request": {
    level: "MUST",
    role: "server",
    says: "Take a request body for incomplete that is shorter than its length, and close the connection.",
  },
  "9112-6.3-short-response": {
    level: "MUST",
    role: "client",
    says: "Take a response body for incomplete that is shorter than its length, and close the connection.",
  },
  "9112-6.3-delimited": {
    level: "SHOULD",
    role: "server",
    says: "Delimit a body by length or chunks wherever possible, rather than by the connection's end.",
  },
  "9112-6.3-length-known": {
    level: "SHOULD",
    role: "client",
    says: "Send Content-Length rather than chunks where the length of the body is known.",
  },
  "9112-6.3-surplus": {
    level: "MUST NOT",
    role: "client",
    says: "Take bytes behind the last response on a connection for a response.",
  },
  "9112-7.1-chunked": {
    level: "MUST",
    role: "recipient",
    says: "Parse and undo the chunked coding.",
  },
  "9112-7.1-large-sizes": {
    level: "MUST",
    role: "recipient",
    says: "Expect chunk sizes that are too large for its integers, without losing digits.",
  },
  "9112-7.1-parameters": {
    level: "SHOULD",
    role: "recipient",
    says: "Take parameters of the chunked coding for an error.",
  },
  "9112-7.1.1-extensions": {
    level: "MUST",
    role: "recipient",
    says: "Ignore chunk extensions that it does not know.",
  },
  "9112-7.1.1-extension-limit": {
    level: "SHOULD",
    role: "server",
    says: "Limit the length of chunk extensions in a request (the RFC says: ought to).",
  },
  "9112-7.1.2-merge": {
    level: "MUST NOT",
    role: "recipient",
    says: "Merge a trailer field into the header section unless its definition allows it.",
  },
  "9112-7.4-te-chunked": {
    level: "MUST NOT",
    role: "client",
    says: "Name chunked in TE.",
  },
  "9112-7.4-te-nominated": {
    level: "MUST",
    role: "sender",
    says: "Name TE in Connection where it sends TE.",
  },
  "9112-8-incomplete": {
    level: "MUST",
    role: "client",
    says: "Remember that a response broke off: it may never look complete to the next recipient.",
  },
  "9112-8-chunked-cut": {
    level: "MUST",
    role: "recipient",
    says: "Take a chunked body without its last chunk of size zero for incomplete.",
  },
  "9112-9.2-in-order": {
    level: "MUST",
    role: "client",
    says: "Match responses to the requests of a connection in the order of these.",
  },
  "9112-9.2-unrequested": {
    level: "MUST NOT",
    role: "client",
    says: "Take data on a connection without an open request for a response; it should close the connection.",
  },
  "9112-9.3-persistent": {
    level: "SHOULD",
    role: "client",
    says: "Keep connections and use them again.",
  },
  "9112-9.3-persistence-rules": {
    level: "MUST",
    role: "recipient",
    says: "Determine from version and Connection of a message whether its connection persists.",
  },
  "9112-9.3-not-persistent": {
    level: "MUST",
    role: "client",
    says: "Send Connection: close with every request where it keeps no connections.",
  },
  "9112-9.3-read-request": {
    level: "MUST",
    role: "server",
    says: "Read the whole request body, or close the connection after the response.",
  },
  "9112-9.3-read-response": {
    level: "MUST",
    role: "client",
    says: "Read the whole response body before it uses the connection again.",
  },
  "9112-9.3-http10-client": {
    level: "MUST NOT",
    role: "proxy",
    says: "Keep a connection with a client of HTTP/1.0.",
    foreign:
      "A gateway is an origin server to its clients (RFC 9110 §3.7), which may keep such a connection.",
  },
  "9112-9.3.2-order": {
    level: "MUST",
    role: "server",
    says: "Answer pipelined requests in the order in which they came.",
  },
  "9112-9.3.2-safe": {
    level: "MUST NOT",
    role: "server",
    says: "Process pipelined requests side by side unless all of them are safe.",
  },
  "9112-9.3.2-inbound-failure": {
    level: "SHOULD",
    role: "intermediary",
    says: "Forward the responses that it has and close the client's connection where the upstream of a pipelined request fails.",
  },
  "9112-9.4-concurrency": {
    level: "SHOULD",
    role: "client",
    says: "Limit its connections to one server (the RFC says: ought to).",
  },
  "9112-9.5-monitor": {
    level: "SHOULD",
    role: "recipient",
    says: "Watch open connections for a close by the peer, and respond to it promptly.",
  },
  "9112-9.5-early-response": {
    level: "SHOULD",
    role: "client",
    says: "Watch for a response while it sends a body, and stop sending where the server does not want it.",
  },
  "9112-9.6-close-sent": {
    level: "SHOULD",
    role: "sender",
    says: "Send Connection: close with the last message before it closes a connection.",
  },
  "9112-9.6-client-sends-close": {
    level: "MUST NOT",
    role: "client",
    says: "Send another request behind one with Connection: close; it has to close after the response.",
  },
  "9112-9.6-server-receives-close": {
    level: "MUST",
    role: "server",
    says: "Close the connection after the response to a request with Connection: close, and process no request behind it.",
  },
  "9112-9.6-client-receives-close": {
    level: "MUST",
    role: "client",
    says: "Send no more on a connection whose response says close, and close it after that response.",
  },
  "9112-9.7-tls": {
    level: "MUST",
    role: "client",
    says: "Send all data of an https upstream as TLS application data.",
  },
  "9112-9.8-incomplete-close": {
    level: "SHOULD",
    role: "client",
    says: "Take only those responses for complete that are so by their own framing where TLS ends without an alert.",
    gap: "A body without a length looks complete if its TLS connection is cut: the TLS of Node, Bun and Deno does not report whether a connection ended with an alert.",
  },
  "9112-9.8-alert": {
    level: "MUST",
    role: "client",
    says: "Send a closure alert before it closes a TLS connection.",
    foreign: "The runtime's TLS sends the alerts.",
  },
  "9112-10.1-fold": {
    level: "MUST",
    role: "recipient",
    says: "Replace folds in data of the type message/http when it uses that data.",
    foreign: "A gateway passes message/http on as bytes.",
  },
} as const;
