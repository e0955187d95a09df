/**
 * What is lost with the HTTP clients that replace Fetchway's own: undici, and each runtime's `fetch`, which is the only client
 * on Workers. docs/clients.md shows these lists in this order. A loss is listed for a client only if Fetchway's own client
 * passes the tests on the same server, or, on Workers, if the client is the first to lose it, not the server.
 */
import type { ClientHost } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";
import { carried } from "./upgrades.ts";

/** A host whose proxy does not use Fetchway's own client. */
export type Client = ClientHost | "workerd";

export type Loss = readonly [
  /** The effect that a user sees, and the reason if the effect does not say it. */
  reason: string,
  ...on: readonly (readonly [
    clients: readonly Client[],
    tests: readonly TestName[],
    often?: "sometimes",
  ])[],
];

const UNDICI = ["undici", "undici-h3", "undici-hono"] as const;
/** Node's `fetch` is undici's. */
const ALL_UNDICI = [...UNDICI, "fetch-node"] as const;
const [ON_NODE, ON_BUN, ON_DENO] = [["fetch-node"], ["fetch-bun"], ["fetch-deno"]] as const;
const NODE_AND_BUN = [...ON_NODE, ...ON_BUN] as const;
const NODE_AND_DENO = [...ON_NODE, ...ON_DENO] as const;
const BUN_AND_DENO = [...ON_BUN, ...ON_DENO] as const;
const FETCH = [...ON_NODE, ...BUN_AND_DENO] as const;
const ON_WORKERS = ["workerd"] as const;
const EVERY_FETCH = [...FETCH, ...ON_WORKERS] as const;

const KEPT =
  "an upstream connection is kept after a response to HEAD, after one with Content-Length, and after a chunked one";

/** The losses by the heading under which docs/clients.md shows them, the gravest first. */
export const losses: Readonly<Record<string, readonly Loss[]>> = {
  "Requests that are sent twice, and messages that are cut off": [
    [
      "fetch sends a request again on its own, even after the response has begun",
      [BUN_AND_DENO, ["a request is never sent again once its response has begun"]],
    ],
    [
      "fetch sends a POST again on its own if a reused connection turns out to be closed",
      [
        ON_DENO,
        [
          "a POST on a reused connection that turns out to be closed reaches the upstream at most once",
        ],
      ],
    ],
    [
      "a chunked response that lacks only its last CRLF looks complete",
      [
        ON_BUN,
        ["a chunked response body without the CRLF after its last chunk fails for the client"],
      ],
    ],
    [
      "a response body without a length looks complete when its connection is reset",
      [
        NODE_AND_BUN,
        ["a close-delimited body whose upstream connection is reset never looks complete"],
      ],
    ],
    [
      "a chunked upload that is still arriving looks complete to an upstream that has responded",
      [
        ON_WORKERS,
        [
          "an early response to an upload arrives completely, and a truncated upload never looks complete",
          "a client that disconnects while the upstream responds to its chunked upload closes both sides",
        ],
      ],
    ],
    [
      "a client gets a part of the head instead of 502 if the body breaks off early or is malformed",
      [
        ON_BUN,
        [
          "a truncated response whose head and body arrive in one packet fails for the client",
          "a response body with a malformed chunk fails for the client",
          "corpus: an ambiguous response is refused, or read in one of the allowed ways",
        ],
      ],
    ],
    [
      "a response with message framing in its trailer section breaks off, or never ends",
      [ALL_UNDICI, ["trailer fields that a response must not have are dropped"]],
    ],
  ],
  "Malformed responses, and errors": [
    [
      "response heads with a bare LF as a line end are accepted",
      [
        [...BUN_AND_DENO, ...ON_WORKERS],
        ["RFC 9112 §2.2: a response head with a bare LF as a line end becomes 502"],
      ],
    ],
    [
      "a response of HTTP/1.0 with both Transfer-Encoding and Content-Length is accepted",
      [
        ON_BUN,
        [
          "CVE-2026-42581: an HTTP/1.0 response with Transfer-Encoding and Content-Length is refused",
        ],
      ],
    ],
    [
      "a malformed trailer line of a response is ignored",
      [ON_BUN, ["an invalid trailer line of a response is refused"]],
    ],
    [
      "response heads of any size are accepted",
      [
        ON_BUN,
        [
          "a response head over the size limit becomes 502",
          "fault: the upstream sends a field of 1 MiB, and the client gets the gateway error 502",
        ],
      ],
    ],
    [
      "an upstream may send interim responses without end until `timeout`: fetch hides them",
      [
        EVERY_FETCH,
        [
          "fault: the upstream sends 1000 interim responses first, and the client gets the gateway error 502",
          "fault: the upstream sends interim responses without end, and the client gets the gateway error 502",
        ],
      ],
    ],
    [
      "a 101 of HTTP/1.0 opens a WebSocket",
      [
        [...UNDICI, ...ON_WORKERS],
        ["RFC 9110 §7.8: an HTTP/1.0 response with status 101 becomes 502"],
      ],
    ],
    [
      "a 101 without `Connection: Upgrade` opens a WebSocket",
      [ON_WORKERS, ["a 101 whose Connection does not name Upgrade becomes 502"]],
    ],
    [
      "a malformed or too large response has the error of a broken connection, `connection_terminated`",
      [
        EVERY_FETCH,
        [
          "an upstream response that is not HTTP becomes 502",
          "fault: the upstream sends garbage, and the client gets the gateway error 502",
          "fault: the upstream sends 100 000 fields, and the client gets the gateway error 502",
          "fault: the upstream sends fields without end, and the client gets the gateway error 502",
        ],
      ],
      [
        [...NODE_AND_DENO, ...ON_WORKERS],
        [
          "a response head over the size limit becomes 502",
          "fault: the upstream sends a field of 1 MiB, and the client gets the gateway error 502",
        ],
      ],
    ],
    [
      "a refused connection has the error of a broken one, `connection_terminated`",
      [
        ON_WORKERS,
        [
          "h3 936f14ba: a refused upstream connection becomes a 502 that shows no address",
          "fault: the upstream refuses the connection, and the client gets the gateway error 502",
        ],
      ],
    ],
  ],
  "What changes on the way to the upstream": [
    [
      "repeated request fields are joined into one",
      [ON_NODE, ["repeated request fields stay separate lines"]],
    ],
    [
      "a request field named `__proto__` is lost",
      [ON_NODE, ["__proto__ is an ordinary field name in a request"]],
    ],
    [
      "fetch adds User-Agent and Accept where the client sends none",
      [
        FETCH,
        [
          "CVE-2026-30851: duplicates and _ aliases of fields that the proxy sets or deletes are removed",
        ],
      ],
      [
        BUN_AND_DENO,
        [
          "the proxy neither adds nor overwrites request fields that do not concern it",
          "RFC 9110 §7.7: a request without Accept, Accept-Encoding, Accept-Language and User-Agent gets none",
        ],
      ],
    ],
    [
      "fetch also adds Accept-Language, and `Cache-Control: no-cache` to conditional requests, and changes Sec-Fetch-Mode",
      [
        ON_NODE,
        [
          "the proxy neither adds nor overwrites request fields that do not concern it",
          "RFC 9110 §7.7: a request without Accept, Accept-Encoding, Accept-Language and User-Agent gets none",
        ],
      ],
    ],
    [
      "fetch escapes some characters of the path and the query, such as `{`",
      [NODE_AND_DENO, ["characters that URL parsers escape pass unchanged"]],
    ],
    [
      "several slashes at the beginning of a path become one",
      [
        ON_BUN,
        [
          "RFC 9110 §7.7: the path passes byte for byte",
          "CVE-2026-33131: the path that the router sees is the path that is forwarded",
          "CVE-2026-29087: a check in `onRequest` sees the same path as the upstream",
          "CVE-2026-40912: `stripPrefix` does not remove a prefix that a path has only after decoding",
        ],
      ],
    ],
    [
      "a request without a body, such as a DELETE, gets `content-length: 0`",
      [
        [...ON_BUN, ...ON_WORKERS],
        ["a request without a body is forwarded without Content-Length and Transfer-Encoding"],
      ],
    ],
    [
      "uploads that the proxy streams are sent chunked, without Content-Length",
      [
        NODE_AND_BUN,
        [
          "a gzip request body passes unchanged",
          "a request body is forwarded for each method that commonly has one",
          "an upload with Content-Length is forwarded chunk by chunk with the same Content-Length",
        ],
      ],
    ],
    [
      "trailer fields of requests are dropped: undici cannot send them",
      [
        ALL_UNDICI,
        [
          "trailer fields of a request reach the upstream, and are announced",
          "names of trailer fields that a request must not have are not announced",
          "a request that is sent again keeps its trailer fields",
        ],
      ],
    ],
    [
      "`TE: trailers` is not forwarded, so that the upstream may leave trailer fields out",
      [ALL_UNDICI, ["TE: trailers is forwarded, and Connection names TE"]],
    ],
    [
      "`Expect: 100-continue` is not forwarded, because undici refuses it; the server asks for the body",
      [
        ALL_UNDICI,
        [
          "Expect: 100-continue is forwarded, and the client gets its 100 when the upstream sends one",
          "an upstream that refuses Expect: 100-continue with 413 never gets the body",
        ],
      ],
    ],
  ],
  "What changes on the way to the client": [
    [
      "bodies arrive without content coding: fetch would decode them, so the proxy requests none",
      [
        FETCH,
        [
          "a gzip body passes unchanged",
          "a br body passes unchanged",
          "a zstd body passes unchanged",
          "bodies with several, unknown or wrong content codings pass unchanged",
          "an absent, empty or identity Accept-Encoding is forwarded unchanged",
          "a 206 response of a gzip resource passes unchanged",
        ],
      ],
      [
        NODE_AND_BUN,
        [
          "RFC 9110 §7.7: a response with no-transform arrives with its bytes and its content coding",
          "a chunked gzip body passes unchanged",
          "the response to HEAD of a gzip resource keeps Content-Encoding, Content-Length and ETag",
          "a gzip response body that stalls longer than idleTimeout fails",
          "a response body with an idleTimeout set keeps its length and its bytes",
        ],
      ],
      [ON_BUN, ["a truncated gzip response body fails for the client"]],
    ],
    [
      "repeated response fields are joined into one, and their names are in lower case",
      [
        NODE_AND_DENO,
        ["repeated response fields stay separate lines", "response field names keep their case"],
      ],
    ],
    [
      "response fields are sorted, and well-known names get their usual case",
      [ON_WORKERS, ["response field names keep their case"]],
    ],
    [
      "an empty Location is dropped",
      [ON_WORKERS, ["a 3xx response passes through with its Location"]],
    ],
    [
      "bytes that are not UTF-8 become U+FFFD in response fields that the proxy rewrites",
      [ON_WORKERS, ["bytes above 0x7f that are not UTF-8 are kept in rewritten URLs"]],
    ],
    [
      "trailer fields of responses are dropped: fetch hides them",
      [
        [...ON_NODE, ...ON_WORKERS],
        [
          "trailer fields of a response reach the client, and are announced",
          "trailer fields of a response that does not announce them reach the client",
        ],
      ],
    ],
    [
      "clients get no interim responses, such as 103 (Early Hints): fetch hides them",
      [
        [...ON_NODE, ...ON_WORKERS],
        [
          "interim responses reach the client in order, with repeated fields",
          "RFC 9110 §15.2: 103 responses reach the client, in their order",
          "an interim response reaches the client before the final one has begun",
          "an interim response reaches the client without hop-by-hop fields and those named in Connection",
        ],
      ],
    ],
    [
      "a 100 (Continue) that nobody asked for becomes 502: undici refuses it",
      [
        ALL_UNDICI,
        [
          "an unsolicited 100 before the final response is ignored",
          "the upstream's 100 does not reach a client that has sent no Expect",
        ],
      ],
    ],
    [
      "a 407 (Proxy Authentication Required) becomes 502: fetch refuses it",
      [ON_NODE, ["a response with any common status passes with its body"]],
    ],
  ],
  "Requests and options that do not work": [
    ["a WebSocket handshake is answered with 501: fetch opens no WebSocket", [FETCH, carried]],
    [
      "`host`, `changeOrigin: false` and a Host of a hook are refused: fetch cannot set Host",
      [
        EVERY_FETCH,
        [
          "changeOrigin: false forwards the client's Host",
          "`host` sets the Host field, and `via` appends to Via",
          "with changeOrigin: false, URLs with the client's Host count as URLs of the target",
        ],
      ],
      [
        FETCH,
        [
          "CVE-2026-33131, CVE-2026-33732: a request whose Host is not an authority is refused",
          "RFC 9112 §3.2.2: when absolute-form and Host disagree, router and upstream see one name, or the request is refused",
          "a request whose absolute-form target agrees with Host is forwarded",
          "a client's Host never appears in a rewritten URL",
        ],
      ],
      [
        NODE_AND_DENO,
        ["RFC 9112 §3.2.2: a request whose absolute-form target and Host disagree is refused"],
      ],
      [NODE_AND_BUN, ["a request with two Host fields is refused"]],
      [
        ON_NODE,
        [
          "RFC 9110 §15.6.6: a request with an unsupported HTTP version is refused, with 505 where the server shows the version",
        ],
      ],
    ],
    [
      "`onInformational` does nothing: fetch hides interim responses",
      [
        EVERY_FETCH,
        [
          "onInformational sees the interim responses of its request, without their connection fields",
        ],
      ],
    ],
    [
      "TRACE is answered with 501: the Fetch standard forbids it",
      [
        EVERY_FETCH,
        [
          "with trace: true, TRACE reaches the upstream without content and without secrets",
          "the proxy decrements Max-Forwards of TRACE",
        ],
      ],
    ],
    [
      "`OPTIONS *` is answered with 501: no URL has the path `*`",
      [
        ALL_UNDICI,
        ["RFC 9112 §3.2.4: OPTIONS with a URL without a path reaches the upstream as OPTIONS *"],
      ],
      [
        ["undici", "undici-h3", ...ON_NODE],
        [
          "OPTIONS * reaches the upstream as OPTIONS *",
          "the path of OPTIONS * is not rewritten, and hooks see the request",
        ],
      ],
    ],
    [
      "a GET or HEAD with a body is answered with 501: the Fetch standard forbids it",
      [
        ON_NODE,
        [
          "a GET, HEAD or DELETE with a body closes its connection to the upstream, which might leave the body unread",
        ],
      ],
    ],
    [
      "upstreams on some ports, such as 1 and 6000, get 502: the Fetch standard blocks them",
      [
        NODE_AND_DENO,
        [
          "h3 936f14ba: a refused upstream connection becomes a 502 that shows no address",
          "fault: the upstream refuses the connection, and the client gets the gateway error 502",
        ],
      ],
    ],
  ],
  "Uploads, connections and memory": [
    [
      "an early response may be lost if the upstream closes the connection with the upload unread",
      [
        [...ALL_UNDICI, ...ON_DENO],
        ["an early 413 arrives although the upstream resets the connection after it"],
      ],
      // The runtime's `fetch` fails with the write that follows the reset.
      [
        ON_WORKERS,
        ["an early 413 arrives although the upstream resets the connection after it"],
        "sometimes",
      ],
    ],
    [
      "the head of an upload is sent only with the first chunk of its body",
      [
        ALL_UNDICI,
        [
          "an upload's request head is forwarded before its body arrives",
          "a response to an upload that the client has not finished reaches the client",
          "RFC 9110 §10.1.1: the head of a request with Expect: 100-continue is forwarded immediately, or answered by a final status",
          "a connection is kept after a request whose body with Content-Length arrived after its head",
        ],
      ],
    ],
    [
      "`timeout` may end an upload of up to 64 KiB that arrives slowly",
      [
        EVERY_FETCH,
        ["`timeout` does not stop a small upload with Content-Length that keeps arriving"],
      ],
    ],
    [
      "a request whose reused connection turns out to be closed is not sent again: fetch does not say that it was reused",
      [
        EVERY_FETCH,
        [
          "a PUT whose body is kept is sent again byte for byte",
          "a QUERY whose body is kept is sent again byte for byte, and mirrored with its body",
        ],
      ],
      [
        [...ON_NODE, ...ON_WORKERS],
        ["an idempotent request is sent again when its reused connection turns out to be closed"],
      ],
    ],
    ["the upstream connection is closed after each HEAD", [ON_NODE, [KEPT]]],
    ["the upstream connection is closed after a response with trailer fields", [ON_DENO, [KEPT]]],
    // The tests of the following two losses fail only on a loaded machine.
    [
      "a large part of a large upload is held in memory",
      [
        ON_NODE,
        ["192 MiB of upload with Content-Length arrive unchanged, and memory stays flat"],
        "sometimes",
      ],
    ],
    [
      "large bodies are slow",
      [
        ON_DENO,
        [
          "192 MiB of chunked upload arrive unchanged, and memory stays flat",
          "192 MiB of response with Content-Length arrive unchanged, and memory stays flat",
        ],
        "sometimes",
      ],
    ],
  ],
};
