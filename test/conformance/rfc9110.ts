/** RFC 9110, HTTP semantics: messages, routing, forwarding and methods (sections 2 to 9). */
export const rfc9110 = {
  "9110-2.2-grammar": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate protocol elements that do not match their grammar.",
  },
  "9110-2.2-role": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate elements that only participants in another role may generate.",
  },
  "9110-2.3-defensive": {
    level: "SHOULD",
    role: "recipient",
    says: "Parse received messages defensively: they may violate the grammar, and exceed any buffer.",
  },
  "9110-2.3-own-lengths": {
    level: "MUST",
    role: "recipient",
    says: "Process elements at least as long as those that it sends itself.",
  },
  "9110-3.3-same-user": {
    level: "MUST NOT",
    role: "server",
    says: "Assume that two requests on one connection are of the same user.",
    foreign: "Nothing of a request is remembered for the next one on its connection.",
  },
  "9110-4.2-empty-host": {
    level: "MUST",
    role: "recipient",
    says: "Refuse an http or https URI with an empty host.",
  },
  "9110-4.2.2-secured": {
    level: "MUST",
    role: "client",
    says: "Send requests for https resources over secured connections only.",
  },
  "9110-4.2.4-userinfo-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate user or password within an http or https URI.",
  },
  "9110-4.2.4-userinfo-received": {
    level: "SHOULD",
    role: "recipient",
    says: "Take user or password in a URI from an untrusted source for an error.",
  },
  "9110-4.3.4-certificate": {
    level: "MUST",
    role: "client",
    says: "Verify that the certificate of an https upstream is one for the host of its URI.",
  },
  "9110-4.3.4-invalid": {
    level: "SHOULD",
    role: "client",
    says: "End a connection whose certificate is not valid for the upstream; the check is on by default.",
  },
  "9110-5.1-unrecognized": {
    level: "MUST",
    role: "proxy",
    says: "Forward fields that it does not know, unless Connection names them or its configuration blocks them.",
  },
  "9110-5.3-order": {
    level: "MUST NOT",
    role: "proxy",
    says: "Change the order of lines of the same field.",
  },
  "9110-5.3-repeated": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate several lines of a field that is not a list.",
  },
  "9110-5.3-set-cookie": {
    level: "SHOULD",
    role: "recipient",
    says: "Keep Set-Cookie lines apart (the RFC says: ought to).",
  },
  "9110-5.3-whole-head": {
    level: "MUST NOT",
    role: "server",
    says: "Act on a request before all of its header section has come.",
  },
  "9110-5.4-limits": {
    level: "MUST",
    role: "server",
    says: "Answer 4xx to fields that are larger than it wants to process.",
  },
  "9110-5.5-white-space": {
    level: "MUST",
    role: "recipient",
    says: "Cut white space off both ends of a field value before evaluating it.",
  },
  "9110-5.5-opaque": {
    level: "SHOULD",
    role: "recipient",
    says: "Take bytes above US-ASCII in field values for opaque data.",
  },
  "9110-5.5-control": {
    level: "MUST",
    role: "recipient",
    says: "Refuse CR, LF and NUL in a field value, or replace them by spaces.",
  },
  "9110-5.6.1.1-empty-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate empty elements in a list.",
  },
  "9110-5.6.1.2-empty-received": {
    level: "MUST",
    role: "recipient",
    says: "Ignore a reasonable number of empty elements in a list.",
  },
  "9110-5.6.3-bad-space": {
    level: "MUST",
    role: "recipient",
    says: "Remove bad white space before it interprets an element.",
  },
  "9110-5.6.4-quoted-pair": {
    level: "MUST",
    role: "recipient",
    says: "Read a backslash in a quoted string as the character behind it.",
  },
  "9110-5.6.7-date-format": {
    level: "MUST",
    role: "sender",
    says: "Generate dates in the IMF-fixdate format.",
    foreign: "The servers under the proxy write Date; it writes no other dates.",
  },
  "9110-6-request-known": {
    level: "MUST",
    role: "client",
    says: "Remember the request when it parses the response.",
  },
  "9110-6.2-request-version": {
    level: "SHOULD",
    role: "client",
    says: "Send the highest version that it conforms to and that the server supports.",
  },
  "9110-6.2-response-version": {
    level: "SHOULD",
    role: "server",
    says: "Send the highest version that it conforms to within the major version of the request.",
  },
  "9110-6.2-higher-minor": {
    level: "SHOULD",
    role: "recipient",
    says: "Process a message of a higher minor version as one of the highest that it knows.",
    gap: "The parsers of the servers and of the client refuse HTTP/1.2: 400, 505 or 502.",
  },
  "9110-6.5.1-trailers-sent": {
    level: "MUST NOT",
    role: "sender",
    says: "Generate a trailer field unless its definition permits that.",
  },
  "9110-6.5.1-trailers-merged": {
    level: "MUST NOT",
    role: "recipient",
    says: "Merge trailer fields into the header section.",
  },
  "9110-6.6.1-date-forwarded": {
    level: "MUST",
    role: "recipient",
    says: "Append Date to a response without one before it forwards it.",
  },
  "9110-6.6.1-date-origin": {
    level: "MUST",
    role: "server",
    says: "Send Date with the responses 2xx, 3xx and 4xx that it makes itself.",
  },
  "9110-6.6.2-trailer": {
    level: "SHOULD",
    role: "sender",
    says: "Announce trailer fields in Trailer.",
  },
  "9110-7.1-special-forms": {
    level: "MUST NOT",
    role: "client",
    says: "Send the target forms of CONNECT and OPTIONS with other methods.",
  },
  "9110-7.2-host": {
    level: "MUST",
    role: "client",
    says: "Generate Host from the target URI.",
  },
  "9110-7.2-host-first": {
    level: "SHOULD",
    role: "client",
    says: "Send Host as the first field.",
  },
  "9110-7.4-misdirected": {
    level: "MUST",
    role: "server",
    says: "Reject a request whose scheme has requirements that its connection does not meet.",
    foreign: "An origin server does so; a gateway serves the names that its router gives it.",
  },
  "9110-7.5-goes-on": {
    level: "SHOULD",
    role: "client",
    says: "Go on sending a request whose response has begun.",
    gap: "An upload is given up, with its connection, once the whole response to it has come.",
  },
  "9110-7.6-hop-by-hop": {
    level: "MUST",
    role: "intermediary",
    says: "Implement Connection, and keep back fields that are for the incoming connection only.",
  },
  "9110-7.6-loop": {
    level: "MUST NOT",
    role: "intermediary",
    says: "Forward a message to itself without protection from an endless loop.",
    option: "via",
  },
  "9110-7.6.1-listed": {
    level: "MUST",
    role: "sender",
    says: "Name in Connection each field that is about the current connection.",
  },
  "9110-7.6.1-connection": {
    level: "MUST",
    role: "intermediary",
    says: "Remove the fields that Connection names, and Connection itself, before it forwards a message.",
  },
  "9110-7.6.1-known": {
    level: "SHOULD",
    role: "intermediary",
    says: "Remove fields that are known to be hop-by-hop even where Connection does not name them.",
  },
  "9110-7.6.1-end-to-end": {
    level: "MUST NOT",
    role: "sender",
    says: "Name in Connection a field that is meant for all recipients.",
  },
  "9110-7.6.2-zero": {
    level: "MUST NOT",
    role: "intermediary",
    says: "Forward TRACE or OPTIONS with Max-Forwards 0; it answers them as the final recipient.",
  },
  "9110-7.6.2-update": {
    level: "MUST",
    role: "intermediary",
    says: "Count Max-Forwards of TRACE and OPTIONS down.",
  },
  "9110-7.6.3-via": {
    level: "MUST",
    role: "gateway",
    says: "Send an appropriate Via with each request that it forwards.",
    option: "via",
  },
  "9110-7.6.3-firewall": {
    level: "SHOULD NOT",
    role: "intermediary",
    says: "Forward names and ports of hosts within a firewall in Via.",
  },
  "9110-7.6.3-combine": {
    level: "MUST NOT",
    role: "sender",
    says: "Combine entries of Via that differ in their protocol.",
  },
  "9110-7.7-host-name": {
    level: "MUST NOT",
    role: "proxy",
    says: "Change a fully qualified host name of the target URI.",
    foreign: "A gateway sends requests to its target, whatever name the client has used.",
  },
  "9110-7.7-path": {
    level: "MUST NOT",
    role: "proxy",
    says: "Modify path and query of the target URI; an empty path becomes a slash.",
  },
  "9110-7.7-no-transform": {
    level: "MUST NOT",
    role: "proxy",
    says: "Transform the content of a response with no-transform.",
  },
  "9110-7.7-fields": {
    level: "SHOULD NOT",
    role: "proxy",
    says: "Modify fields about the endpoints, the resource's state or the selected representation.",
  },
  "9110-7.8-case": {
    level: "SHOULD",
    role: "recipient",
    says: "Compare protocol names in Upgrade without case.",
  },
  "9110-7.8-ignored": {
    level: "MUST NOT",
    role: "server",
    says: "Switch to a protocol that the client has not named; a protocol that it does not support it ignores.",
  },
  "9110-7.8-101": {
    level: "MUST",
    role: "server",
    says: "Name the new protocol in Upgrade of a 101.",
  },
  "9110-7.8-426": {
    level: "MUST",
    role: "server",
    says: "Name the protocols that it would accept in Upgrade of a 426.",
    foreign: "A gateway generates no 426.",
  },
  "9110-7.8-nominated": {
    level: "MUST",
    role: "sender",
    says: "Name Upgrade in Connection where it sends Upgrade.",
  },
  "9110-7.8-http10": {
    level: "MUST",
    role: "server",
    says: "Ignore Upgrade in an HTTP/1.0 request.",
  },
  "9110-7.8-continue-first": {
    level: "MUST",
    role: "server",
    says: "Send 100 before 101 where a request has both Upgrade and an expectation of 100.",
  },
  "9110-8.4-encoding": {
    level: "MUST",
    role: "sender",
    says: "Name in Content-Encoding, in order, the codings that are applied to the content.",
  },
  "9110-8.6-request": {
    level: "SHOULD",
    role: "client",
    says: "Send Content-Length with methods that anticipate content, even 0, and none with others without content.",
  },
  "9110-8.6-head": {
    level: "MUST NOT",
    role: "server",
    says: "Answer HEAD with another Content-Length than GET would have had.",
  },
  "9110-8.6-304": {
    level: "MUST NOT",
    role: "server",
    says: "Send 304 with another Content-Length than 200 would have had.",
  },
  "9110-8.6-204": {
    level: "MUST NOT",
    role: "server",
    says: "Send Content-Length with a status of 1xx or 204.",
  },
  "9110-8.6-large": {
    level: "MUST",
    role: "recipient",
    says: "Expect lengths that are too large for its integers, without losing digits.",
  },
  "9110-8.6-incorrect": {
    level: "MUST NOT",
    role: "sender",
    says: "Forward a message with a Content-Length that is known to be wrong.",
  },
  "9110-8.6-malformed": {
    level: "MUST NOT",
    role: "sender",
    says: "Forward a Content-Length that is not a number; a repeated one becomes one or is refused.",
  },
  "9110-9.1-get-head": {
    level: "MUST",
    role: "server",
    says: "Support GET and HEAD.",
  },
  "9110-9.2.2-proxy-retry": {
    level: "MUST NOT",
    role: "proxy",
    says: "Retry requests with non-idempotent methods automatically.",
  },
  "9110-9.2.2-client-retry": {
    level: "SHOULD NOT",
    role: "client",
    says: "Retry a method that is not idempotent unless it knows that nothing was applied.",
  },
  "9110-9.2.2-twice": {
    level: "SHOULD NOT",
    role: "client",
    says: "Retry a retry that failed.",
  },
  "9110-9.3.1-content": {
    level: "SHOULD NOT",
    role: "client",
    says: "Generate content in GET, HEAD and DELETE requests.",
  },
  "9110-9.3.2-head": {
    level: "MUST NOT",
    role: "server",
    says: "Send content in answer to HEAD.",
  },
  "9110-9.3.2-head-fields": {
    level: "SHOULD",
    role: "server",
    says: "Send the same fields in answer to HEAD as to GET.",
  },
  "9110-9.3.6-port": {
    level: "MUST",
    role: "server",
    says: "Reject a CONNECT without a valid port.",
  },
  "9110-9.3.6-tunnel": {
    level: "MUST",
    role: "intermediary",
    says: "Send the outstanding data of a tunnel's closed side to the other side, and close both.",
  },
  "9110-9.3.7-max-forwards": {
    level: "MUST NOT",
    role: "proxy",
    says: "Generate Max-Forwards for a request that came without it.",
  },
  "9110-9.3.8-reflect": {
    level: "SHOULD",
    role: "server",
    says: "Reflect a TRACE request as the content of a 200 where it is the final recipient.",
  },
  "9110-9.3.8-sensitive": {
    level: "SHOULD",
    role: "server",
    says: "Leave out of it the fields that are likely to have sensitive data.",
  },
  "9110-9.3.8-content": {
    level: "MUST NOT",
    role: "client",
    says: "Send content in a TRACE request.",
  },
} as const;
