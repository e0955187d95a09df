/** Requirements of the RFCs that servers do not meet: each row has the effect, the hosts and the tests. */
import type { Gap } from "./gaps.ts";
import { type HostName, ON_NODE } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";

const rows: readonly (readonly [reason: string, hosts: readonly HostName[], tests: TestName[]])[] =
  [
    [
      "a request target that is too long is answered with 431 or 400, not with 414",
      [...ON_NODE, "bun", "deno", "workerd"],
      ["RFC 9112 §3: a target that is too long gets 414"],
    ],
    [
      "unknown methods are answered with 400",
      ON_NODE,
      ["RFC 9112 §3: a method that is longer than any known one is forwarded, or gets 501"],
    ],
    [
      "unknown methods close the connection",
      ["bun"],
      ["RFC 9112 §3: a method that is longer than any known one is forwarded, or gets 501"],
    ],
    [
      "requests of HTTP/1.0 are answered as HTTP/1.0",
      ["deno", "workerd"],
      ["RFC 9110 §6.2: an HTTP/1.0 request is answered as HTTP/1.1"],
    ],
    [
      "a WebSocket handshake of HTTP/1.0 is forwarded as one of HTTP/1.1",
      ["bun", "deno", "workerd"],
      ["RFC 9110 §7.8: Upgrade in an HTTP/1.0 request is ignored"],
    ],
    [
      "responses get no Date; Cloudflare's servers in front of workerd add it",
      ["workerd"],
      [
        "RFC 9110 §6.6.1: a response without Date gets one",
        "RFC 9110 §6.6.1: an error response of the proxy has a Date",
      ],
    ],
    [
      "an empty line in front of a request is answered with 400",
      ["bun"],
      ["RFC 9112 §2.2: an empty line in front of a request is ignored"],
    ],
    [
      "the last response on a connection has no Connection: close",
      ["bun"],
      ["RFC 9112 §9.6: the last response on a connection has Connection: close"],
    ],
    [
      "unknown transfer codings are answered with 400",
      ["bun"],
      ["RFC 9112 §6.1: a transfer coding that is not understood gets 501"],
    ],
  ];

/** Whether the server's reset arrives before the client has sent the rest of its upload depends on timing. */
const EARLY: Gap[] = (["slow", "workerd"] as const).map((host) => ({
  host,
  test: "RFC 9110 §10.1.1: an early response has Connection: close, or the rest of the request body is read",
  reason: "a connection is reset if a large upload is answered before its end",
  sometimes: true,
}));

export const conformanceGaps: Gap[] = [
  ...rows.flatMap(([reason, hosts, tests]) =>
    tests.flatMap((test) => hosts.map((host): Gap => ({ host, test, reason }))),
  ),
  ...EARLY,
];
