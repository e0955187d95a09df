/** What the servers on Node cannot do, and undici. */
import type { Gap } from "./_gaps.ts";

/** undici is the client under all four. */
const onUndici = (["node", "srvx", "slow", "h3", "hono"] as const).flatMap((host): Gap[] => [
  {
    host,
    test: "an unsolicited 100 before the final response does no harm",
    reason: "undici takes a 100 that it did not ask for as a fault; 102 and 103 pass",
  },
  {
    host,
    test: "an upload's head goes ahead of its body",
    reason: "undici sends a request's head with the first piece of its body",
  },
]);

const LISTED = "Headers joins repeated fields and lower-cases their names";
const STREAMED = "srvx sends a response's head with the first piece of a web stream";

/** A Request made by hand holds what the standard lets it hold. */
const onSlow: Gap[] = (
  [
    ["repeated request fields stay separate lines", LISTED],
    ["repeated response fields stay separate lines", LISTED],
    ["the case of request field names is kept", LISTED],
    ["the case of response field names is kept", LISTED],
    ["characters that URL parsers escape keep their bytes", "new Request() parses its URL"],
    [
      "a kept connection that is closed as it is reused costs an idempotent request nothing",
      "a stream as a Request's body does not say that it is empty",
    ],
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

export const onNode: Gap[] = [
  ...onUndici,
  ...onSlow,
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
