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
const onAll: Gap[] = (["node", "slow", "srvx", "h3", "hono"] as const).map((host) => ({
  host,
  test: "RFC 9112 §6.1: an HTTP/1.0 request with Transfer-Encoding is refused, or is its connection's last",
  reason: "Node takes chunks in HTTP/1.0, and keeps the connection if the client asks for it",
}));

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
