/** What the servers on Node cannot do. */
import type { Gap } from "./_gaps.ts";

const LISTED = "Headers joins repeated fields and lower-cases their names";
const STREAMED = "srvx sends a response's head with the first piece of a web stream";

const UNSEEN =
  "the connection is not seen under a Request that was made by hand, and srvx does not break it off";

/** A Request made by hand holds what the standard lets it hold. */
const onSlow: Gap[] = (
  [
    ["repeated request fields stay separate lines", LISTED],
    ["repeated response fields stay separate lines", LISTED],
    ["the case of request field names is kept", LISTED],
    ["the case of response field names is kept", LISTED],
    ["characters that URL parsers escape keep their bytes", "new Request() parses its URL"],
    ["a body that breaks off does not end in order for an HTTP/1.0 client", UNSEEN],
    [
      "RFC 9110 §10.1.1: an early response says that it closes, or the rest is read",
      "a Request that was made by hand is not read on behind its response",
    ],
    ["TRACE is answered at Max-Forwards 0, without secrets", "new Request() takes no TRACE"],
    ["TRACE counts Max-Forwards down", "new Request() takes no TRACE"],
    [
      "response headers arrive before the first byte of a chunked body, and pieces one by one",
      STREAMED,
    ],
    [
      "response headers arrive before the first byte of a sized body, and pieces one by one",
      STREAMED,
    ],
    [
      "response headers arrive before the first byte of a close-delimited body, and pieces one by one",
      STREAMED,
    ],
    [
      "a client that leaves before the first byte of the body closes the upstream request, by FIN",
      STREAMED,
    ],
    [
      "a client that leaves before the first byte of the body closes the upstream request, by RST",
      STREAMED,
    ],
  ] as const
).map(([test, reason]) => ({ host: "slow", test, reason }));

/** Of Node's own server, and so of all that are built on it. */
const onAll: Gap[] = (["node", "slow", "srvx", "h3", "hono"] as const).flatMap((host) =>
  (
    [
      [
        "RFC 9112 §6.1: an HTTP/1.0 request with Transfer-Encoding is refused, or is its connection's last",
        "Node takes chunks in HTTP/1.0, and keeps the connection if the client asks for it",
      ],
      [
        "RFC 9112 §9.3: a connection with a client of HTTP/1.0 is not kept",
        "the server keeps a connection with a client of HTTP/1.0 that asks for it",
      ],
      [
        "RFC 9112 §3: a target that is too long gets 414",
        "the server answers 431 or 400 to a target that is too long",
      ],
      [
        "RFC 9112 §3: a method that is longer than any known one is forwarded, or gets 501",
        "Node answers 400 to methods that it does not know",
      ],
    ] as const
  ).map(([test, reason]) => ({ host, test, reason })),
);

export const onNode: Gap[] = [
  ...onAll,
  ...onSlow,
  {
    host: "slow",
    test: "a pipelined response that breaks off closes the connection",
    reason: UNSEEN,
    // On Node 22 it passes.
    sometimes: true,
  },
  {
    host: "h3",
    test: "a percent sign that encodes nothing keeps its bytes",
    reason: "h3 answers 400 to a path that cannot be percent-decoded",
  },
  {
    host: "hono",
    test: "repeated response fields stay separate lines",
    reason: "@hono/node-server writes the joined values of Headers",
  },
  {
    host: "hono",
    test: "the reason phrase is kept",
    reason: "@hono/node-server does not write statusText",
  },
  {
    host: "hono",
    test: "__proto__ is an ordinary field name in a response",
    reason: "@hono/node-server collects the fields in a plain object",
  },
];
