/** The gaps that the runtimes' `fetch` and undici add when they replace Fetchway's own HTTP client. */
import type { ClientHost } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";

export type Loss = [reason: string, hosts: readonly ClientHost[], tests: readonly TestName[]];

const FETCH = ["fetch-node", "fetch-bun", "fetch-deno"] as const;
const UNDICI = ["undici", "undici-h3", "undici-hono"] as const;
/** Node's `fetch` is undici's. */
const ALL_UNDICI = [...UNDICI, "fetch-node"] as const;
const [ON_NODE, ON_BUN, ON_DENO] = [["fetch-node"], ["fetch-bun"], ["fetch-deno"]] as const;
const NODE_AND_BUN = ["fetch-node", "fetch-bun"] as const;
const BUN_AND_DENO = ["fetch-bun", "fetch-deno"] as const;
const NODE_AND_DENO = ["fetch-node", "fetch-deno"] as const;

export const losses: readonly Loss[] = [
  [
    "an early response may be lost if the upstream closes with the upload unread",
    [...ALL_UNDICI, ...ON_DENO],
    ["an early 413 arrives although the upstream resets the connection after it"],
  ],
  [
    "a request's head is sent only with the first chunk of its body",
    ALL_UNDICI,
    [
      "an upload's request head is forwarded before its body arrives",
      "a connection is kept after a request whose body with Content-Length arrived after its head",
    ],
  ],
  [
    "an unsolicited 100 of the upstream becomes 502",
    ALL_UNDICI,
    [
      "an unsolicited 100 before the final response is ignored",
      "the upstream's 100 does not reach a client that has sent no Expect",
    ],
  ],
  [
    "Expect is not forwarded: the client asks for the body before the upstream does",
    ALL_UNDICI,
    [
      "Expect: 100-continue is forwarded, and the client gets its 100 when the upstream sends one",
      "an upstream that refuses Expect: 100-continue with 413 never gets the body",
    ],
  ],
  [
    "`OPTIONS *` is answered with 501",
    ALL_UNDICI,
    [
      "OPTIONS * reaches the upstream as OPTIONS *",
      "the path of OPTIONS * is not rewritten, and hooks see the request",
      "RFC 9112 §3.2.4: OPTIONS with a URL without a path reaches the upstream as OPTIONS *",
    ],
  ],
  [
    "a GET or HEAD with a body is answered with 501",
    FETCH,
    [
      "a GET, HEAD or DELETE with a body closes its connection to the upstream, which may not read the body",
    ],
  ],
  [
    "TRACE is answered with 501",
    FETCH,
    ["with trace: true, TRACE reaches the upstream without content and without secrets"],
  ],
  [
    "trailer fields of requests are dropped",
    ALL_UNDICI,
    [
      "trailer fields of a request reach the upstream, and are announced",
      "a request that is sent again keeps its trailer fields",
    ],
  ],
  [
    "TE is not forwarded: the upstream may leave trailer fields out",
    ALL_UNDICI,
    ["TE: trailers is forwarded, and Connection names TE"],
  ],
  [
    "a response with message framing in its trailer section breaks off, or never ends",
    [...ALL_UNDICI, "fetch-deno"],
    ["trailer fields that a response must not have are dropped"],
  ],
  [
    "trailer fields of responses are dropped",
    ON_NODE,
    [
      "trailer fields of a response reach the client, and are announced",
      "trailer fields of a response that does not announce them reach the client",
    ],
  ],
  [
    "`onInformational` does nothing: fetch hides interim responses",
    FETCH,
    ["onInformational sees the interim responses of its request, without their connection fields"],
  ],
  [
    "clients get no interim responses, such as 103 (Early Hints)",
    ON_NODE,
    [
      "interim responses reach the client in order, with repeated fields",
      "an interim response reaches the client before the final one has begun",
      "an interim response reaches the client without hop-by-hop fields and those named in Connection",
    ],
  ],
  [
    "`host` and `changeOrigin: false` are refused: fetch cannot set Host",
    FETCH,
    [
      "changeOrigin: false forwards the client's Host",
      "`host` sets the Host field, and `via` appends to Via",
      "CVE-2026-33131, CVE-2026-33732: a request whose Host is not an authority is refused",
      "RFC 9112 §3.2.2: when absolute-form and Host disagree, router and upstream see one name, or the request is refused",
      "RFC 9112 §3.2.2: a request whose absolute-form target and Host disagree is refused",
      "a request whose absolute-form target agrees with Host is forwarded",
      "a client's Host never appears in a rewritten URL",
      "with changeOrigin: false, URLs with the client's Host count as URLs of the target",
    ],
  ],
  [
    "`host` and `changeOrigin: false` are refused: fetch cannot set Host",
    NODE_AND_BUN,
    ["a request with two Host fields is refused"],
  ],
  [
    "`host` and `changeOrigin: false` are refused: fetch cannot set Host",
    ON_NODE,
    [
      "RFC 9110 §15.6.6: a request with an unsupported HTTP version is refused, with 505 where the server shows the version",
    ],
  ],
  [
    "fetch adds Accept, Accept-Language and User-Agent where the client sends none",
    FETCH,
    [
      "CVE-2026-30851: duplicates and _ aliases of fields that the proxy sets or deletes are removed",
      "the proxy neither adds nor overwrites request fields that do not concern it",
    ],
  ],
  ["TRACE is answered with 501", FETCH, ["the proxy decrements Max-Forwards of TRACE"]],
  [
    "repeated header fields are joined into one, and names are in lower case",
    FETCH,
    [
      "repeated request fields stay separate lines",
      "repeated response fields stay separate lines",
      "response field names keep their case",
    ],
  ],
  [
    "repeated header fields are joined into one, and names are in lower case",
    BUN_AND_DENO,
    ["request field names keep their case"],
  ],
  [
    "a request field named `__proto__` is lost",
    ON_NODE,
    ["__proto__ is an ordinary field name in a request"],
  ],
  [
    "responses arrive without content coding: fetch decodes them, and the proxy asks for none",
    FETCH,
    [
      "a gzip body passes unchanged",
      "a br body passes unchanged",
      "a zstd body passes unchanged",
      "bodies with several, unknown or wrong content codings pass unchanged",
      "a chunked gzip body passes unchanged",
      "the response to HEAD of a gzip resource keeps Content-Encoding, Content-Length and ETag",
      "an absent, empty or identity Accept-Encoding is forwarded unchanged",
      "a 206 response of a gzip resource passes unchanged",
      "a gzip response body that stalls longer than idleTimeout fails",
      "a response body with an idleTimeout set keeps its length and its bytes",
    ],
  ],
  [
    "responses arrive without content coding: fetch decodes them, and the proxy asks for none",
    ON_BUN,
    ["a truncated gzip response body fails for the client"],
  ],
  [
    "a response that is encoded although the request refuses that loses its Content-Encoding",
    ["fetch-deno"],
    [
      "a response with a Content-Length, or with a content coding, gets no comment",
      "transformText changes an encoded body, and corrects the fields that describe it",
      "transformText forwards a body that is too long or unreadable if `tooLarge` and `unreadable` are `pass`",
    ],
  ],
  [
    "streamed uploads are sent chunked, without Content-Length",
    NODE_AND_BUN,
    [
      "a gzip request body passes unchanged",
      "a request body is forwarded for each method that commonly has one",
      "an upload with Content-Length is forwarded chunk by chunk with the same Content-Length",
    ],
  ],
  [
    "`timeout` may end an upload of up to 64 KiB that arrives slowly",
    FETCH,
    ["`timeout` does not stop a small upload with Content-Length that keeps arriving"],
  ],
  [
    "characters that URL parsers escape are escaped",
    FETCH,
    ["characters that URL parsers escape pass unchanged"],
  ],
  [
    "several slashes at the beginning of a path become one",
    ON_BUN,
    [
      "path and query pass byte for byte",
      "CVE-2026-33131: the path that the router sees is the path that is forwarded",
      "CVE-2026-29087: a check in front of the proxy sees the same path as the upstream",
      "CVE-2026-40912: `stripPrefix` does not remove a prefix that a path has only after decoding",
    ],
  ],
  [
    "a response of HTTP/1.0 with both Transfer-Encoding and Content-Length is accepted",
    ON_BUN,
    ["CVE-2026-42581: an HTTP/1.0 response with Transfer-Encoding and Content-Length is refused"],
  ],
  [
    "a chunked response that lacks only its last CRLF counts as complete",
    ON_BUN,
    ["bun#29732: a chunked response without its last chunk is not complete"],
  ],
  [
    "a malformed trailer line of a response is ignored",
    ON_BUN,
    ["a trailer line of a response without a colon is refused"],
  ],
  [
    "a DELETE without a body gets content-length: 0",
    ON_BUN,
    ["a request without a body is forwarded without Content-Length and Transfer-Encoding"],
  ],
  [
    "a 407 response becomes 502",
    ON_NODE,
    ["a response with any common status passes with its body"],
  ],
  [
    "the upstream connection is closed after each HEAD",
    ON_NODE,
    ["the response to HEAD keeps Content-Length and has no body"],
  ],
  [
    "refused, broken and malformed upstream connections have one error type",
    FETCH,
    [
      "an upstream response that is not HTTP becomes 502",
      "fault: the upstream sends garbage, and the client gets the gateway error 502",
      "fault: the upstream sends 100 000 fields, and the client gets the gateway error 502",
      "fault: the upstream sends fields without end, and the client gets the gateway error 502",
    ],
  ],
  [
    "refused, broken and malformed upstream connections have one error type",
    NODE_AND_DENO,
    [
      "a response head over the size limit becomes 502",
      "fault: the upstream sends a field of 1 MiB, and the client gets the gateway error 502",
    ],
  ],
  [
    "response heads of any size are accepted",
    ON_BUN,
    [
      "a response head over the size limit becomes 502",
      "fault: the upstream sends a field of 1 MiB, and the client gets the gateway error 502",
    ],
  ],
  [
    "fetch refuses some ports, such as 1",
    NODE_AND_DENO,
    [
      "h3 936f14ba: a refused upstream connection becomes a 502 that shows no address",
      "fault: the upstream refuses the connection, and the client gets the gateway error 502",
    ],
  ],
  [
    "an upstream may send interim responses until `timeout`",
    FETCH,
    [
      "fault: the upstream sends 1000 interim responses first, and the client gets the gateway error 502",
      "fault: the upstream sends interim responses without end, and the client gets the gateway error 502",
    ],
  ],
  [
    "response heads with a bare LF as a line end are accepted",
    BUN_AND_DENO,
    ["RFC 9112 §2.2: a response head with a bare LF as a line end becomes 502"],
  ],
  [
    "ambiguous responses are accepted",
    ON_BUN,
    ["corpus: an ambiguous response is refused, or read in one of the allowed ways"],
  ],
  [
    "a response body without a length looks complete when its connection is reset",
    NODE_AND_BUN,
    ["a close-delimited body whose upstream connection is reset never looks complete"],
  ],
  [
    "a request whose reused connection turns out to be closed is not sent again",
    FETCH,
    [
      "a PUT whose body is kept is sent again byte for byte",
      "a QUERY whose body is kept is sent again byte for byte, and mirrored with its body",
    ],
  ],
  [
    "a request whose reused connection turns out to be closed is not sent again",
    ON_NODE,
    ["an idempotent request is sent again when its reused connection turns out to be closed"],
  ],
  [
    "fetch sends a request again on its own, also after its response has begun",
    BUN_AND_DENO,
    ["a request is never sent again once its response has begun"],
  ],
  [
    "fetch sends a POST again on its own",
    ON_DENO,
    ["a POST on a reused connection that turns out to be closed reaches the upstream at most once"],
  ],
  [
    "the upstream connection is closed after a response with trailers",
    ON_DENO,
    ["a chunked response with extensions and trailers arrives completely"],
  ],
  [
    "a chunked response that is cut between two chunks looks complete",
    ON_BUN,
    ["a truncated chunked response body fails for the client"],
  ],
  [
    "a response whose body has already failed is truncated within its head",
    ON_BUN,
    [
      "a truncated response whose head and body arrive in one packet fails for the client",
      "a response body with a malformed chunk fails for the client",
    ],
  ],
  [
    "a 101 of HTTP/1.0 opens a WebSocket, too",
    UNDICI,
    ["RFC 9110 §7.8: an HTTP/1.0 response with status 101 becomes 502"],
  ],
];
