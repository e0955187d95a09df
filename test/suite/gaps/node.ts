/** The gaps of the hosts on Node. */
import type { Gap } from "./gaps.ts";

const LISTED = "repeated header fields are joined into one, and names are in lower case";
const STREAMED = "response headers are sent only with the first chunk of the body";

const TRAILERS = [
  "trailer fields of a response reach the client, and are announced",
  "trailer fields of a response that does not announce them reach the client",
  "TE: trailers is forwarded, and Connection names TE",
  "trailer fields of a request reach the upstream, and are announced",
  "names of trailer fields that a request must not have are not announced",
  "a request that is sent again keeps its trailer fields",
] as const;

const ASTERISK = [
  "OPTIONS * reaches the upstream as OPTIONS *",
  "OPTIONS * becomes OPTIONS of the target's base path if there is one",
  "the path of OPTIONS * is not rewritten, and hooks see the request",
] as const;

const EXPECTATIONS = [
  "Expect: 100-continue is forwarded, and the client gets its 100 when the upstream sends one",
  "an upstream that refuses Expect: 100-continue with 413 never gets the body",
] as const;

const UNSEEN =
  "a truncated response looks complete: the proxy cannot close the connection of a Request that user code constructed";

/** Gaps with a Request that user code constructs: the Fetch standard restricts what it can contain. */
const onSlow: Gap[] = (
  [
    ...EXPECTATIONS.map(
      (title) =>
        [
          title,
          "Expect is not forwarded: the server asks for the body before the upstream does",
        ] as const,
    ),
    ...ASTERISK.map((title) => [title, "`OPTIONS *` is forwarded as `OPTIONS /*`"] as const),
    [
      "RFC 9112 §3.2.4: OPTIONS with a URL without a path reaches the upstream as OPTIONS *",
      "OPTIONS with a URL without a path is forwarded as `OPTIONS /`",
    ],
    [
      "with trace: true, TRACE reaches the upstream without content and without secrets",
      "TRACE is answered with 501",
    ],
    [
      "by default, TRACE is answered with 405, also at Max-Forwards 0",
      "TRACE is answered with 501",
    ],
    ...TRAILERS.map((title) => [title, "trailer fields are dropped, in both directions"] as const),
    ["repeated request fields stay separate lines", LISTED],
    ["repeated response fields stay separate lines", LISTED],
    ["request field names keep their case", LISTED],
    ["response field names keep their case", LISTED],
    [
      "characters that URL parsers escape pass unchanged",
      "characters that URL parsers escape are escaped",
    ],
    ["a truncated body does not end with a graceful close for an HTTP/1.0 client", UNSEEN],
    [
      "the proxy answers TRACE at Max-Forwards 0 with the request, without its credentials",
      "TRACE is answered with 501",
    ],
    ["the proxy decrements Max-Forwards of TRACE", "TRACE is answered with 501"],
    [
      "response headers arrive before the first byte of a chunked body, and chunks one by one",
      STREAMED,
    ],
    [
      "response headers arrive before the first byte of a body with Content-Length, and chunks one by one",
      STREAMED,
    ],
    [
      "response headers arrive before the first byte of a close-delimited body, and chunks one by one",
      STREAMED,
    ],
    [
      "a client that disconnects by FIN before the first byte of the response body closes the upstream request",
      STREAMED,
    ],
    [
      "a client that disconnects by RST before the first byte of the response body closes the upstream request",
      STREAMED,
    ],
  ] as const
).map(([test, reason]) => ({ host: "slow", test, reason }));

export const onNode: Gap[] = [
  ...ASTERISK.map((test): Gap => ({
    host: "hono",
    test,
    reason: "`OPTIONS *` is answered with 400",
  })),
  ...onSlow,
  {
    host: "slow",
    test: "a truncated response to a pipelined request closes the client's connection",
    reason: UNSEEN,
    // On Node 22, it depends on timing whether the test passes.
    sometimes: true,
  },
  {
    host: "slow",
    test: "the part of a request body that an in-process app does not read does not disturb the next request",
    reason:
      "a client that sends the next request only after its body has been read never sends it: Node's `Request` does not cancel the stream from which it was made",
    node: { below: "22.18.0" },
  },
  {
    host: "h3",
    test: "a percent sign that starts no valid escape passes unchanged",
    reason: "a path with an invalid percent escape is answered with 400",
  },
  {
    host: "hono",
    test: "the response keeps the upstream's reason phrase",
    reason: "the client does not get the upstream's reason phrase",
  },
];
