/** Functions that process requests must take linear time; responses.test.ts says why. */
import { expect, test } from "vitest";
import { assertHead } from "../../../src/http1/attempt.ts";
import { toHookRequest } from "../../../runtimes/node/hookrequest.ts";
import { dropUntrusted } from "../../../src/request/chain.ts";
import {
  addForwarded,
  addVia,
  cleanRequestHeaders,
  type ForwardedStyle,
} from "../../../src/request/outgoing.ts";
import { NameSet } from "../../../src/fields/headers.ts";
import { REQUEST_DROPPED } from "../../../src/fields/hopbyhop.ts";
import { countForwards } from "../../../src/request/maxforwards.ts";
import { guardEscape, joinTarget, pathOf } from "../../../src/target/target.ts";
import { compileTrust, type Trust } from "../../../src/request/trust.ts";
import {
  attempt,
  each,
  growthOf,
  hopTo,
  LINEAR,
  type Sized,
  spaces,
  type Texts,
  upstream,
} from "./_growth.ts";

const dropped = new NameSet(REQUEST_DROPPED);
const trusts = compileTrust(["10.0.0.0/8", "fd00::/8"]) as Trust;
const believes = compileTrust((address) => address !== "") as Trust;
const anyone = (): boolean => true;

function forwarded(style: ForwardedStyle, address: string, host: string): unknown {
  return addForwarded([], style, false, { address, host, secure: false });
}

const chains: Texts = [
  ["", "1,"],
  ["", "10.0.0.1, "],
  ["", " ", "x"],
  ["", "["],
  ["", ":", "g"],
  ["1.2.3.4:", "_", "!"],
];
const elements: Texts = [
  ["", "for=1,"],
  ["", "a=b;"],
  ['for="', "\\a"],
  ["", ";"],
  ["", " ", "x"],
  ["for=a", " ", "x"],
];
const paths: Texts = [
  ["/", "%25", "2e"],
  ["/", "../"],
  ["/", "."],
  ["/", "%"],
  ["/", "..;"],
  ["/", "?"],
  ["/", "\\"],
];

const cases: [string, Sized][] = [
  ...each("Connection of a request", spaces, (text) =>
    cleanRequestHeaders(["Connection", text, "x", "y"], dropped),
  ),
  ...each(
    "Host",
    [
      ["a", " "],
      ["", "a"],
      ["", ":"],
    ],
    (text) => attempt(() => cleanRequestHeaders(["Host", text], dropped)),
  ),
  ...each("X-Forwarded-For", chains, (text) => {
    for (const trust of [trusts, believes, anyone]) dropUntrusted(["X-Forwarded-For", text], trust);
  }),
  ...each(
    "X-Forwarded-Host",
    [
      ["", "a,"],
      ["", " ", "x"],
    ],
    (text) => dropUntrusted(["X-Forwarded-For", "1.1.1.1", "X-Forwarded-Host", text], trusts),
  ),
  ...each("Forwarded", elements, (text) => dropUntrusted(["Forwarded", text], trusts)),
  ...each(
    "an address",
    [
      ["", ":"],
      ["", ":", "g"],
      ["", "1."],
      ["1", "%"],
      ["::ffff:", "1"],
    ],
    (text) => {
      trusts(text);
      believes(text);
      forwarded("forwarded", text, "a");
      forwarded("x-forwarded", text, "a");
    },
  ),
  ...each(
    "Host, forwarded",
    [
      ["", ":1", "x"],
      ["a:", "1", "x"],
      ["", '"'],
    ],
    (text) => {
      forwarded("forwarded", "::1", text);
      forwarded("x-forwarded", "::1", text);
    },
  ),
  ...each(
    "Via",
    [
      ["a", " ", "b"],
      ["", "1.1 a,"],
      ["", "("],
      ["", ","],
    ],
    (text) => addVia(["Via", text], "x", "1.1"),
  ),
  ...each("a path", paths, (text) => {
    attempt(() => guardEscape(text));
    attempt(() => joinTarget(upstream, text));
    pathOf(`http://a${text}`);
  }),
  ...each(
    "a URL for hooks",
    [
      ["", "a@"],
      ["", "a."],
    ],
    (text) => toHookRequest("http", text, { method: "GET", path: "/", headers: [] }),
  ),
  ...each("a field to write", [["a", " ", "\u0100"]], (text) =>
    attempt(() => assertHead(hopTo("/", ["x", text]))),
  ),
  ...each(
    "Max-Forwards",
    [
      ["", "1"],
      ["", "0"],
      ["1", " ", "x"],
    ],
    (text) => attempt(() => countForwards(["Max-Forwards", text])),
  ),
];

test.each(cases)("the running time grows linearly with the input: %s", (_, make) => {
  expect(growthOf(make)).toBeLessThan(LINEAR);
});
