/**
 * The features that a host lacks, each with the effect on a user. The test of a gap is expected to fail. If it passes,
 * the run fails until the entry is removed, so that the list stays true. Entries with `sometimes` may pass.
 */
import { inheritGaps, toClientGaps } from "./clients.ts";
import { conformanceGaps } from "./conformance.ts";
import { onNode } from "./node.ts";
import { onRelays } from "./upgrades.ts";
import type { HostName } from "../../hosts/_hosts.ts";
import type { NodeRange } from "../../hosts/_node.ts";
import type { TestName } from "../_suite.ts";

export interface Gap {
  host: HostName;
  test: TestName;
  /** The effect that a user of the host sees. */
  reason: string;
  /** The versions of Node that have the gap; all versions if undefined. */
  node?: NodeRange;
  /** The text that the runtime itself prints in this test. */
  prints?: string;
  /** Whether the test sometimes passes, because it depends on timing. */
  sometimes?: true;
}

const VERSION = "`via` states HTTP/1.1 also for HTTP/1.0 requests";
const CONTINUE = "an HTTP/1.0 client that sends Expect gets a 100, which HTTP/1.0 does not have";
const BARE_LF = "request heads with a bare LF as a line end are accepted";
const QUOTED = "a line end in a quoted chunk extension of a request ends the extension";
const LATER = "a connection is closed after a request whose body arrives later than its head";
const HOST_COUNTS =
  "a request whose absolute-form target and Host disagree is forwarded with that Host";
const UPGRADE = "a request with Upgrade and a body is answered with 400";

/** The titles of the tests of interim responses that reach the client. */
const INFORMED = [
  "interim responses reach the client in order, with repeated fields",
  "RFC 9110 §15.2: 103 responses reach the client, in their order",
  "an interim response reaches the client before the final one has begun",
  "an interim response reaches the client without hop-by-hop fields and those named in Connection",
] as const;
const UNINFORMED = "clients get no interim responses, such as 103 (Early Hints)";
const uninformed = INFORMED.map((title) => [title, UNINFORMED] as const);

/** The titles of the tests of trailer fields that arrive, by direction. */
const TRAILERS_DOWN = [
  "trailer fields of a response reach the client, and are announced",
  "trailer fields of a response that does not announce them reach the client",
  "TE: trailers is forwarded, and Connection names TE",
] as const;
const TRAILERS_UP = [
  "trailer fields of a request reach the upstream, and are announced",
  "names of trailer fields that a request must not have are not announced",
  "a request that is sent again keeps its trailer fields",
] as const;
const NO_TRAILERS_DOWN = "trailer fields of responses are dropped";
const NO_TRAILERS_UP = "trailer fields of requests are dropped";
const trailersDown = TRAILERS_DOWN.map((title) => [title, NO_TRAILERS_DOWN] as const);
const trailersUp = TRAILERS_UP.map((title) => [title, NO_TRAILERS_UP] as const);

/** The titles of the tests in which the proxy forwards an `Expect` field to the upstream. */
const EXPECTATIONS = [
  "Expect: 100-continue is forwarded, and the client gets its 100 when the upstream sends one",
  "an upstream that refuses Expect: 100-continue with 413 never gets the body",
] as const;
const expectations = EXPECTATIONS.map(
  (title) =>
    [
      title,
      "Expect is not forwarded: the server asks for the body before the upstream does",
    ] as const,
);

/** The titles of the tests of `OPTIONS *`. */
const ASTERISK = [
  "OPTIONS * reaches the upstream as OPTIONS *",
  "OPTIONS * becomes OPTIONS of the target's base path if there is one",
  "the path of OPTIONS * is not rewritten, and hooks see the request",
] as const;
const NO_PATH =
  "RFC 9112 §3.2.4: OPTIONS with a URL without a path reaches the upstream as OPTIONS *";
const AS_SLASH = "OPTIONS with a URL without a path is forwarded as `OPTIONS /`";

const onDeno: Gap[] = (
  [
    ...expectations,
    ...ASTERISK.map((title) => [title, "`OPTIONS *` is forwarded as `OPTIONS /*`"] as const),
    [NO_PATH, AS_SLASH],
    ...trailersDown,
    ...trailersUp,
    ...uninformed,
    ["CVE-2026-29057: Upgrade: h2c does not remove the body's framing", UPGRADE],
    ["a request's Upgrade field is not forwarded", UPGRADE],
    ["an Upgrade that is no WebSocket handshake is ignored", UPGRADE],
    ["a POST that offers h2c is forwarded with its body, and its connection stays usable", UPGRADE],
    ["the option `via` adds Via with the received HTTP version", VERSION],
    ["an HTTP/1.0 client gets no 100 (Continue)", CONTINUE],
    ["RFC 9112 §2.2: a request head with a bare LF as a line end is refused", BARE_LF],
    [
      "a connection is kept after a request whose body with Content-Length arrived after its head",
      LATER,
    ],
    [
      "RFC 9112 §9.3.2: a pipelined request that follows a large unsafe request is sent after the response to that request",
      LATER,
    ],
    ["a request without Host is refused", "HTTP/1.1 requests without Host are accepted"],
    [
      "RFC 9112 §3.2: no Host field, or two of them, get 400",
      "HTTP/1.1 requests without Host are accepted",
    ],
    ["repeated request fields stay separate lines", "repeated header fields are joined into one"],
    ["request field names keep their case", "header field names are forwarded in lower case"],
    [
      "the response keeps the upstream's reason phrase",
      "the client does not get the upstream's reason phrase",
    ],
    [
      "a 205 response has no body",
      "a 205 response has no message framing and ends with its connection",
    ],
    [
      "a request and a response with hundreds of header fields pass",
      "a request with more than 128 header fields is answered with 400",
    ],
    [
      "a client that disconnects after an upload in several packets closes the upstream request",
      "a client that disconnects after an upload in several packets does not stop the upstream request",
    ],
    [
      "a truncated body does not end with a graceful close for an HTTP/1.0 client",
      "a truncated response looks complete to a client of HTTP/1.0",
    ],
    [
      "request body and response body of one exchange stream at the same time",
      "an upload stalls once a response that user code streams has begun",
    ],
  ] as const
).map(([test, reason]) => ({ host: "deno", test, reason }));

const HALF_CLOSE =
  "a client that disconnects by FIN stops the upstream request only when the next bytes are written to it";
const UNMEASURED =
  "`onRequestEnd` runs when the response headers have arrived, and does not measure the response body";
const SORTED = "request fields are sorted, and well-known names get their usual case";
const UNKNOWN = "methods that workerd does not know, such as BIND, are answered with 501";

const onWorkerd: Gap[] = (
  [
    ...expectations,
    ...ASTERISK.map((title) => [title, "`OPTIONS *` is forwarded as `OPTIONS /`"] as const),
    [NO_PATH, AS_SLASH],
    ["the methods of WebDAV, and QUERY, pass with their bodies", UNKNOWN],
    ["TE: trailers is forwarded, and Connection names TE", NO_TRAILERS_DOWN],
    ...trailersUp,
    ["RFC 9112 §2.2: a request head with a bare LF as a line end is refused", BARE_LF],
    [
      "an HTTP/1.0 request without Host is forwarded",
      "an HTTP/1.0 request without Host is answered with 400",
    ],
    ["a CONNECT request is answered with 405", "CONNECT is answered with 500"],
    [
      "RFC 9112 §3.2.2: a request whose absolute-form target and Host disagree is refused",
      HOST_COUNTS,
    ],
    ["the option `via` adds Via with the received HTTP version", VERSION],
    ["repeated request fields stay separate lines", SORTED],
    ["request field names keep their case", SORTED],
    [
      "several Cookie lines are not joined with a comma",
      "several Cookie lines are joined with a comma",
    ],
    [
      "an absent, empty or identity Accept-Encoding is forwarded unchanged",
      "an empty Accept-Encoding is dropped",
    ],
    [
      "a bodyless request with a method that allows a body is forwarded without framing fields, or with content-length: 0",
      UNKNOWN,
    ],
    [
      "characters that URL parsers escape pass unchanged",
      "a path or query with a character such as `<` is answered with 400",
    ],
    [
      "CVE-2024-21536: a malformed target is refused or forwarded unchanged",
      "a request target without a leading slash is joined to Host",
    ],
    [
      "CVE-2026-88009: a target that is neither a path nor a URL is refused",
      "a request target without a leading slash is joined to Host",
    ],
    ["a request with a quoted chunk extension without its closing quote is not accepted", QUOTED],
    [
      "CVE-2025-22871, CVE-2025-55315: a bare LF does not end the trailer section of a request",
      "a bare LF behind the last chunk of a request is accepted",
    ],
    [
      "a truncated body does not end with a graceful close for an HTTP/1.0 client",
      "a truncated response looks complete to a client of HTTP/1.0",
    ],
    [
      "a client that disconnects by FIN before the response headers closes the upstream request",
      HALF_CLOSE,
    ],
    [
      "a client that disconnects by FIN while the response body stalls closes the upstream request",
      HALF_CLOSE,
    ],
    [
      "a client that disconnects by FIN before the first byte of the response body closes the upstream request",
      HALF_CLOSE,
    ],
    [
      "a client that disconnects by FIN from a server-sent event stream closes the upstream request",
      HALF_CLOSE,
    ],
    [
      "100 clients that disconnect at the same time by FIN leave no upstream request open",
      HALF_CLOSE,
    ],
    ["onRequestEnd counts the bytes of both bodies", UNMEASURED],
    ["onRequestEnd reports a response that broke off", UNMEASURED],
    ["onRequestEnd reports a WebSocket when it is closed", UNMEASURED],
    [
      "onRequestEnd reports the error of a WebSocket whose upstream breaks off the connection",
      UNMEASURED,
    ],
    [
      "the tracing channel fetchway.request publishes the start and the end of each exchange",
      "there is no tracing channel `fetchway.request`: use `onRequestEnd`",
    ],
    [
      "a client that disconnects before the response aborts the in-process app's request",
      "an in-process app ends without a signal when its client disconnects",
    ],
  ] as const
).map(([test, reason]) => ({ host: "workerd", test, reason }));

const BUN_PIPELINE = "a connection with pipelined requests is closed";
const HEAD_WAITS = "response headers are sent only with the first chunk of the body";
const BUN_HEADERS = "repeated header fields are joined into one, and names change case";

const onBun: Gap[] = (
  [
    ...expectations,
    ...ASTERISK.map((title) => [title, "`OPTIONS *` is answered with 400"] as const),
    [NO_PATH, AS_SLASH],
    ...trailersDown,
    ...TRAILERS_UP.map((title) => [title, "requests with trailers are answered with 400"] as const),
    ...uninformed,
    [
      "RFC 9112 §3.2.2: a request whose absolute-form target and Host disagree is refused",
      HOST_COUNTS,
    ],
    ["pipelined requests get their responses in order", BUN_PIPELINE],
    ["a truncated response to a pipelined request closes the client's connection", BUN_PIPELINE],
    [
      "an interim response for a pipelined request is not sent inside the previous response, or inside its own",
      BUN_PIPELINE,
    ],
    [
      "RFC 9112 §9.3.2: a pipelined request that follows an unsafe request is sent after the response to that request",
      BUN_PIPELINE,
    ],
    [
      "with hooks and with routes, a pipelined request that follows an unsafe request is sent after the response to that request",
      BUN_PIPELINE,
    ],
    [
      "RFC 9112 §9.3.2: a pipelined request that follows a large unsafe request is sent after the response to that request",
      BUN_PIPELINE,
    ],
    [
      "RFC 9112 §9.3.2: the pipelined requests of a connection are sent one after the other",
      BUN_PIPELINE,
    ],
    ["an HTTP/1.0 client gets no 100 (Continue)", CONTINUE],
    ["the option `via` adds Via with the received HTTP version", VERSION],
    ["repeated request fields stay separate lines", BUN_HEADERS],
    ["repeated response fields stay separate lines", BUN_HEADERS],
    ["request field names keep their case", BUN_HEADERS],
    ["response field names keep their case", BUN_HEADERS],
    [
      "the response keeps the upstream's reason phrase",
      "the client does not get the upstream's reason phrase",
    ],
    [
      "a request and a response with hundreds of header fields pass",
      "requests with some hundreds of header fields are refused",
    ],
    [
      "characters that URL parsers escape pass unchanged",
      "characters that URL parsers escape are escaped",
    ],
    [
      "CVE-2024-21536: a malformed target is refused or forwarded unchanged",
      "bytes that are not UTF-8 become U+FFFD in the request target",
    ],
    [
      "a method in lower case is forwarded unchanged, or refused",
      "a request with a method in lower case closes the connection",
    ],
    [
      "a request with chunk extensions and trailers is forwarded with its body",
      "requests with trailers are answered with 400",
    ],
    [
      "a response body that is still arriving keeps its Content-Length",
      "the Content-Length of a response body that is still arriving is dropped",
    ],
    [
      "response headers arrive before the first byte of a chunked body, and chunks one by one",
      HEAD_WAITS,
    ],
    [
      "response headers arrive before the first byte of a body with Content-Length, and chunks one by one",
      HEAD_WAITS,
    ],
    [
      "response headers arrive before the first byte of a close-delimited body, and chunks one by one",
      HEAD_WAITS,
    ],
    [
      "a client that disconnects by FIN before the first byte of the response body closes the upstream request",
      HEAD_WAITS,
    ],
    [
      "a client that disconnects by RST before the first byte of the response body closes the upstream request",
      HEAD_WAITS,
    ],
    [
      "a chunked upload without its last CRLF never looks complete to the upstream",
      "a chunked upload that lacks only its last CRLF counts as complete",
    ],
  ] as const
).map(([test, reason]) => ({ host: "bun", test, reason }));

const GET_BODIES: Gap[] = (["bun", "deno", "workerd", "slow"] as const).map((host) => ({
  host,
  test: "a GET, HEAD or DELETE with a body closes its connection to the upstream, which might leave the body unread",
  reason: "a GET or HEAD with a body gets 501: the server does not show the body",
}));

/** On a loaded machine, even a Worker that only calls `fetch` loses 19 of 60 early responses. */
const EARLY: Gap = {
  host: "workerd",
  test: "an upstream's early 413 reaches a client that is still uploading",
  reason: "a client that is still uploading may lose an early response to a connection reset",
  sometimes: true,
};

/** The test passes if workerd notices the FIN together with the client's last bytes. */
const HELD: Gap = {
  host: "workerd",
  test: "a client that disconnects by FIN ends the request, before the stream begins and after it",
  reason: HALF_CLOSE,
  sometimes: true,
};

/** Bun closes the connection immediately. The test passes if the first request has reached the upstream by then. */
const QUEUED: Gap = {
  host: "bun",
  test: "a queued pipelined request whose client disconnects is removed and never sent",
  reason: BUN_PIPELINE,
  sometimes: true,
};

const BACK: Gap = {
  host: "deno",
  test: "a large body streams to an in-process app and back",
  reason: "an upload stalls once a response that user code streams has begun",
  sometimes: true,
};

/** The client's FIN follows the bytes. If Deno sees the FIN before it begins with the request, it drops the request. */
const CHUNK_EXTENSION: Gap = {
  host: "deno",
  test: "a request with a quoted chunk extension without its closing quote is not accepted",
  reason: QUOTED,
  sometimes: true,
};

/** The gaps of servers, which are the same with every HTTP client. */
export const serverGaps: readonly Gap[] = [
  ...onNode,
  ...onBun,
  ...onDeno,
  ...onWorkerd,
  ...onRelays,
  EARLY,
  HELD,
  ...GET_BODIES,
  QUEUED,
  BACK,
  CHUNK_EXTENSION,
  ...conformanceGaps,
];

const inherited = inheritGaps(serverGaps);

/** The gaps of HTTP clients, except in tests that already fail because of the server. */
export const clientGaps: readonly Gap[] = toClientGaps([...serverGaps, ...inherited]);

export const gaps: readonly Gap[] = [...serverGaps, ...inherited, ...clientGaps];
