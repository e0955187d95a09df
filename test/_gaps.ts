/**
 * What a host cannot do, and why. A gap's test is expected to fail: when it starts to pass, the run
 * fails until the entry is removed, so that the list never says less than the truth allows.
 */
import type { HostName } from "./_host.ts";
import type { TestName } from "./_suite.ts";

export interface Gap {
  host: HostName;
  test: TestName;
  /** What the server or the client under the proxy cannot do. */
  reason: string;
}

const UPGRADE = "Deno.serve answers 400 to a request with Upgrade and a body";

/** undici is the client under all four. */
const onNode = (["node", "srvx", "h3", "hono"] as const).flatMap((host): Gap[] => [
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

const onDeno: Gap[] = (
  [
    ["1 CVE-2026-29057: Upgrade: h2c does not unframe the body", UPGRADE],
    ["a request's Upgrade is not forwarded", UPGRADE],
    ["a request without Host is refused", "Deno.serve accepts HTTP/1.1 requests without Host"],
    ["repeated request fields stay separate lines", "Headers joins repeated fields"],
    ["the case of request field names is kept", "Headers lower-cases field names"],
    ["the reason phrase is kept", "Deno.serve does not write statusText"],
    ["205 has no body", "Deno.serve writes no framing for 205: its end is the connection's"],
    ["hundreds of fields pass", "Deno.serve answers 431 to more than 100 request fields"],
    [
      "both directions of one exchange stream at once",
      "Deno's node:http client sends no more of a body once the response has begun",
    ],
  ] as const
).map(([test, reason]) => ({ host: "deno", test, reason }));

export const gaps: Gap[] = [
  ...onNode,
  ...onDeno,
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
    test: "the case of response field names is kept",
    reason: "@hono/node-server writes the lower-cased names of Headers",
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
  {
    host: "hono",
    test: "a response without content-type gets none",
    reason: "@hono/node-server adds text/plain to a body without a type",
  },
];
