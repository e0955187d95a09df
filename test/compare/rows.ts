/**
 * The rules of the scoreboard: those tests of the suite that concern any proxy, in groups. Their levels come from the
 * requirements that the tests name.
 */
import type { RequirementId } from "../conformance/requirements.ts";
import type { TestName } from "../suite/_suite.ts";
import type { OwnRule } from "./rules.ts";

export type RowName = TestName | OwnRule;

export interface Row {
  readonly test: RowName;
  /** The requirement that counts, if the test names several of different levels; `practice` if none counts or is named. */
  readonly rule?: RequirementId | "practice";
  /** The rule that must hold before this one can be tested, such as that WebSockets are forwarded at all. */
  readonly needs?: RowName;
}

const WEBSOCKET: RowName =
  "a WebSocket carries text and binary messages of any size in both directions";

/** Returns the row of a rule that no RFC has. */
function practice(test: RowName): Row {
  return { test, rule: "practice" };
}

function onWebSocket(test: RowName, rule?: RequirementId | "practice"): Row {
  return { test, needs: WEBSOCKET, ...(rule && { rule }) };
}

/** The group of tests that try the mechanisms of advisories. */
export const ADVISED = "Advisories";

const groups: Readonly<Record<string, readonly (RowName | Row)[]>> = {
  Framing: [
    "a request body is forwarded for each method that commonly has one",
    "a request without a body is forwarded without Content-Length and Transfer-Encoding",
    "RFC 9112 §7.1.1: a chunk extension is ignored",
    "a chunked response with extensions and trailers arrives completely",
    "the response to HEAD of a chunked resource has no body",
    "the response to HEAD has no Content-Length that the upstream has not sent",
    "RFC 9110 §9.3.2: the response to HEAD has the fields of the response to GET, with its Content-Length",
    "RFC 9110 §8.6: a 204 has neither a length nor a transfer coding",
    "a 205 response has no body",
    "RFC 9110 §8.6: a 304 response has no other Content-Length than the 200",
    "a 304 response has no body and keeps its validators",
    "a response body of known length keeps Content-Length",
    "responses of an HTTP/1.0 upstream are forwarded",
    "an HTTP/1.0 client gets a body without chunked coding",
    {
      test: "RFC 9110 §6.2: an HTTP/1.0 request is forwarded as HTTP/1.1",
      rule: "9112-2.3-own-version",
    },
    {
      test: "RFC 9110 §6.2: an HTTP/1.0 request is answered as HTTP/1.1",
      rule: "9110-6.2-response-version",
    },
    "RFC 9112 §4: a space follows the status even if there is no reason phrase",
    "RFC 9112 §2.2: an empty line in front of a request is ignored",
    "RFC 9112 §3.2.2: a target in absolute form is accepted",
    "RFC 9112 §3.2.1: of a target in absolute form, the upstream gets path and query alone",
  ],
  Fields: [
    "RFC 9110 §7.6.1: request fields that Connection names are not forwarded, nor is its value",
    "a request field that a second Connection line names is not forwarded",
    "RFC 9110 §7.6.1: response fields that Connection names are not forwarded, nor is its value",
    "RFC 9110 §7.6.1: Keep-Alive, Proxy-Connection and TE of a request are not forwarded, although Connection does not name them",
    "RFC 9110 §7.6.1: Keep-Alive and Proxy-Connection of a response are not forwarded, although Connection does not name them",
    "RFC 9110 §10.1.4: TE reaches the upstream only if Connection names it there",
    "RFC 9110 §7.6.2: the proxy decrements Max-Forwards of OPTIONS, and forwards no request with 0",
    "RFC 9110 §9.3.7: no Max-Forwards is added, and methods other than TRACE and OPTIONS keep it",
    "RFC 9110 §7.6.3: a request is forwarded with Via",
    practice("the last address of X-Forwarded-For is the client's, or the field is absent"),
    practice("the last address of Forwarded is the client's, or the field is absent"),
    "RFC 9110 §5.1: unknown fields, credentials and preconditions pass unchanged",
    "RFC 9110 §7.7: fields about the resource and its representation pass unchanged",
    "RFC 9110 §7.7: a request without Accept, Accept-Encoding, Accept-Language and User-Agent gets none",
    { test: "several Set-Cookie fields stay separate, in order", rule: "9110-5.3-set-cookie" },
    "repeated request fields keep all values in order",
    "repeated response fields keep all values in order",
    practice("several Cookie lines are not joined with a comma"),
    "latin-1 bytes in request fields stay single bytes",
    "latin-1 bytes in response fields stay single bytes",
    "RFC 9110 §6.6.1: a response without Date gets one",
    "RFC 9110 §7.7: a response with Date keeps it",
    "RFC 9110 §15: a response with an unknown status passes unchanged",
    "RFC 9110 §7.7: the path passes byte for byte",
    "RFC 9110 §7.7: the query passes byte for byte",
    "an empty query keeps its question mark",
  ],
  Smuggling: [
    "RFC 9112 §6.3: Content-Length together with Transfer-Encoding never reaches the upstream",
    "RFC 9112 §6.1: after a chunked request with Content-Length, the connection is closed",
    "RFC 9112 §6.3: an invalid Content-Length gets 400, and the connection is closed",
    "RFC 9112 §6.3: a final transfer coding other than chunked gets 400 or 501, and the connection is closed",
    practice(
      "RFC 9112 §6.3: a request whose Transfer-Encoding is not just chunked is refused, or forwarded with new framing",
    ),
    "RFC 9112 §6.1: a transfer coding that is not understood gets 501",
    "RFC 9112 §6.1: an HTTP/1.0 request with Transfer-Encoding is refused, or its connection is closed after it",
    "a GET that announces a body and sends none does not desynchronize the pooled connection",
    "RFC 9112 §9.6: bytes after a request with Connection: close are not processed",
    "RFC 9112 §5.1: white space in front of the colon of a request field gets 400",
    "RFC 9112 §2.2: white space in front of the first field is refused, or that line is ignored",
    "RFC 9110 §5.5: CR and NUL in a field's value are refused, or become spaces",
    "RFC 9112 §5.2: a folded line in a request gets 400, or its fold becomes spaces",
    "RFC 9112 §3.2: no Host field, or two of them, get 400",
    {
      test: "RFC 9112 §3.2: a Host that is not an authority gets 400",
      rule: "9112-3.2-host-received",
    },
    "RFC 9112 §3.2: a request line that is malformed is refused, not repaired",
    "RFC 9112 §2.2: bytes that are no HTTP request get 400, and the connection is closed",
    "a response with both Content-Length and Transfer-Encoding becomes 502 or is forwarded with one of them",
    "a response with two Content-Lengths or an invalid one becomes 502",
    "RFC 9112 §5.1: a response does not pass with white space in front of a colon",
    "RFC 9112 §5.2: a folded line in a response becomes 502, or its fold becomes spaces",
    "RFC 9110 §5.5: a NUL in a response field becomes 502, or a space",
    "bytes that the upstream sends after a response are not taken for the response to the next request",
  ],
  Bodies: [
    practice("a body of 8 MiB arrives unchanged in both directions, or is refused"),
    "200 concurrent requests each get the response to their own body",
    practice(
      "an upload with Content-Length is forwarded chunk by chunk with the same Content-Length",
    ),
    practice("a response is forwarded chunk by chunk, each before the next one is sent"),
    "RFC 9110 §7.7: a response with no-transform arrives with its bytes and its content coding",
    "RFC 9110 §14.4: a 206 with an unknown range unit passes",
    practice("the methods of WebDAV, and QUERY, pass with their bodies"),
  ],
  "Early answers": [
    "an upstream's early 413 reaches a client that is still uploading",
    practice("a response to an upload that the client has not finished reaches the client"),
    "RFC 9110 §10.1.1: an early response has Connection: close, or the rest of the request body is read",
    "RFC 9110 §10.1.1: a client that expects 100 gets one or a final status, and then its body arrives",
    "RFC 9110 §10.1.1: the head of a request with Expect: 100-continue is forwarded immediately, or answered by a final status",
  ],
  Aborts: [
    "a client that disconnects by FIN before the response headers closes the upstream request",
    "a client that disconnects by RST before the response headers closes the upstream request",
    "a client that disconnects during a large response body closes the upstream request",
    "an interrupted upload with Content-Length never looks complete to the upstream",
    "an interrupted chunked upload never looks complete to the upstream",
    "a truncated response body with Content-Length fails for the client",
    "a truncated chunked response body fails for the client",
    "a close-delimited body whose upstream connection is reset never looks complete",
    practice("an upstream that closes the connection before it responds becomes 502"),
    practice("an upstream response that is not HTTP becomes 502"),
    {
      test: "a POST on a reused connection that turns out to be closed reaches the upstream at most once",
      rule: "9110-9.2.2-proxy-retry",
    },
  ],
  Pipelining: [
    "pipelined requests get their responses in order",
    "RFC 9112 §9.3.2: a pipelined request that follows an unsafe request is sent after the response to that request",
    "a truncated response to a pipelined request closes the client's connection",
    "50 sequential requests use one upstream connection",
    "RFC 9112 §9.6: the last response on a connection has Connection: close",
    "RFC 9112 §9.6: no request is sent on an upstream connection after a response with Connection: close",
  ],
  Limits: [
    "RFC 9112 §3: a target that is too long gets 414",
    "RFC 9110 §5.4: fields that are too large get a status of 4xx",
    "RFC 9112 §3: a method that is longer than any known one is forwarded, or gets 501",
    "RFC 9112 §7.1.1: a chunk extension has a limit",
  ],
  Redirects: [
    practice("a 3xx response passes through with its Location"),
    practice("a response with any common status passes with its body"),
  ],
  WebSockets: [
    practice(WEBSOCKET),
    onWebSocket("RFC 6455 §4: the handshakes with the client and with the upstream are complete"),
    onWebSocket("close codes and reasons of a WebSocket pass in both directions", "practice"),
    onWebSocket("a WebSocket's subprotocol is the one that the upstream chooses", "practice"),
    onWebSocket(
      "fragments of a WebSocket's message arrive as one message, with pings answered between them",
      "practice",
    ),
    onWebSocket(
      "a WebSocket whose upstream breaks off the connection ends for the client without a close code",
      "practice",
    ),
    onWebSocket(
      "a WebSocket whose client breaks off the connection closes the upstream's connection",
      "practice",
    ),
    onWebSocket("an upstream that does not read its WebSocket makes the client wait", "practice"),
    "the response with which an upstream refuses a WebSocket handshake reaches the client",
    "RFC 9110 §7.8: Upgrade in an HTTP/1.0 request is ignored",
    "RFC 9110 §7.8: a 101 to a client that has not asked for it does not reach the client",
  ],
  Trailers: [
    practice("trailer fields of a response reach the client, and are announced"),
    practice("trailer fields of a request reach the upstream, and are announced"),
    "RFC 9110 §6.5.1: a trailer field does not become a header field, or the request is refused",
  ],
  "1xx": [
    "RFC 9110 §15.2: 103 responses reach the client, in their order",
    practice("an interim response reaches the client before the final one has begun"),
    "102 and 103 responses before the final one do not disturb it",
    "an unsolicited 100 before the final response is ignored",
    {
      test: "an HTTP/1.0 client gets no interim response",
      needs: "102 and 103 responses before the final one do not disturb it",
    },
    "an HTTP/1.0 client gets no 100 (Continue)",
  ],
  [ADVISED]: [
    "CVE-2021-33197: a field that the proxy adds to a request stays if the client names it in Connection",
    "CVE-2026-44578, GHSA-c4j6-fc7j-m34r: a URL as the request target does not select the upstream, with or without Upgrade",
    "CVE-2024-21536: malformed targets do not end the proxy",
    "CVE-2026-29057: DELETE with Connection: upgrade keeps its chunked body",
    "CVE-2026-29057: OPTIONS with Connection: upgrade keeps its chunked body",
    "CVE-2026-29057: naming Transfer-Encoding in Connection does not remove the body's framing",
    "CVE-2026-29057: Upgrade: h2c does not remove the body's framing",
    "CVE-2026-1525: a request with two different Content-Lengths is refused, or forwarded with one",
    "CVE-2026-1525: a request whose Content-Length is not a plain number is refused",
    "CVE-2026-23527: a body with Transfer-Encoding: ChunKed is read completely and forwarded",
    "CVE-2024-23326, CVE-2026-2833: frames that follow a refused handshake do not reach the upstream",
    "CVE-2026-2332: a request with a line end in a quoted chunk extension is not accepted",
    "CVE-2026-2332: a response with a line end in a quoted chunk extension is not accepted",
    "CVE-2025-22871, CVE-2025-55315: a bare LF does not end a chunk line of a request",
    "CVE-2025-22871, CVE-2025-55315: a bare LF does not end a chunk line of a response",
    "CVE-2025-43859: a chunk of a request that does not end with CRLF is refused",
    "CVE-2025-43859: a chunk of a response that does not end with CRLF is refused",
    "bun#29732: a chunked request without its last chunk is not complete",
    "bun#29732: a chunked response without its last chunk is not complete",
    "CVE-2026-54387: a list of transfer codings beside Content-Length hides no second request",
    "CVE-2023-38697: a length in a request with anything but digits is refused",
    "CVE-2023-38697: a length in a response with anything but digits is refused",
    "CVE-2026-48931, GHSA-35p6-xmwp-9g52: a response on an idle connection answers no later request",
    "CVE-2026-55603: a form body with CRLF and boundaries in its values is forwarded byte for byte",
    "GHSA-v2v2-hph8-q5xp: a JSON body is forwarded without being parsed",
  ],
};

export interface GroupedRow extends Row {
  readonly group: string;
}

export const groupNames: readonly string[] = Object.keys(groups);

export const rows: readonly GroupedRow[] = Object.entries(groups).flatMap(([group, list]) =>
  list.map((row) => ({ group, ...(typeof row === "string" ? { test: row } : row) })),
);
