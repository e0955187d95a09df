import { describe, expect, test } from "vitest";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compile } from "../../../src/plan.ts";
import type { Send } from "../../../src/transport/scope.ts";
import { FakeTransport } from "../../helpers/fakes.ts";

type Wrong = readonly [value: unknown, fix: RegExp];

const noFunction: Wrong[] = [
  [5, /use a function/],
  [null, /use a function/],
];
const noMilliseconds: Wrong[] = [-1, 1.5, Number.NaN, 2 ** 31, "5", Infinity, null].map((value) => [
  value,
  /use whole milliseconds, 0 for no limit/,
]);
const noNames: Wrong[] = [
  ["cookie", /use an array of field names, such as \["cookie"\]/],
  [["a b"], /"a b" is not a field name/],
  [[""], /"" is not a field name/],
  [[5], /5 is not a field name/],
];

/**
 * Values that an option refuses, in addition to those that schema.test.ts derives from its kind, and the fix that the error
 * names.
 */
const WRONG: Partial<Record<keyof ProxyOptions, Wrong[]>> = {
  headers: [
    ["x: y", /use an object such as \{ "x-name": "value" \}/],
    [["x", "y"], /use an object/],
    [new Headers(), /use an object/],
    [null, /use an object/],
    [new Map([["x-a", "1"]]), /use an object/],
    [{ "a b": "c" }, /"a b" is not a field name/],
    [{ Host: "a" }, /set Host by the `host` option/],
    [{ "Content-Length": "1" }, /"Content-Length" belongs to .* framing; leave it out/],
    [{ transfer_encoding: "x" }, /belongs to one connection/],
    [{ a: 5 }, /"a" is of type number: use a string without control characters, or null to delete/],
    [{ a: undefined }, /"a" is of type undefined: use a string/],
    [{ a: "b\r\nc: d" }, /"a" is of type string: use a string without control characters/],
    [{ a: "\u{1f600}" }, /"a" is of type string: use a string without/],
  ],
  filterHeaders: noNames,
  forwardHeaders: [
    ...noNames,
    [["Connection"], /"Connection" belongs to one connection or to the framing; leave it out/],
    [["content-length"], /leave it out/],
  ],
  changeOrigin: [
    ["false", /use true or false/],
    [0, /use true or false/],
  ],
  host: [5, "", "a/b", "a b", "a\r\nb", "user@a"].map((value) => [
    value,
    /use "name" or "name:port"/,
  ]),
  xfwd: [
    ["x-forwarded", /use true, false or "forwarded"/],
    [null, /use true, false/],
  ],
  trustProxy: [
    ["10.0.0.1", /use true, false, an array of addresses and CIDR ranges, or a predicate/],
    [{}, /use true, false, an array/],
    [[5], /5 is not an address or a CIDR range/],
    [[undefined], /undefined is not an address or a CIDR range/],
    [["10.0.0.1", "10.0.0.0/33"], /"10\.0\.0\.0\/33" is not an address or a CIDR range/],
    [["localhost"], /"localhost" is not an address/],
    [
      ["loopback", "10.0.0.1/8"],
      /"10\.0\.0\.1\/8" is not a range: use "10\.0\.0\.0\/8", or "10\.0\.0\.1"/,
    ],
    [["10.0.0.1:80"], /"10\.0\.0\.1:80" is not an address/],
    [["::/129"], /"::\/129" is not an address/],
  ],
  clientAddress: noFunction,
  via: [true, "", "a b", null].map((value) => [
    value,
    /use a pseudonym of token characters such as "edge", or false/,
  ]),
  stripPrefix: [
    ["api", /use a path such as "\/api"/],
    [/^\/api/, /use a path such as/],
  ],
  pathRewrite: [
    ["/api", /use a map of patterns to strings, or a function/],
    [null, /use a map of patterns to strings, or a function/],
    [["a"], /use a map of patterns to strings, or a function/],
    [new Map([["^/a", "/b"]]), /use a map of patterns to strings, or a function/],
    [{ "^/a": 5 }, /use a map of patterns to strings, or a function/],
    [{ "^/a": undefined }, /use a map of patterns to strings, or a function/],
    [{ "(": "" }, /Invalid regular expression/],
  ],
  timeout: noMilliseconds,
  connectTimeout: noMilliseconds,
  idleTimeout: noMilliseconds,
  followRedirects: [-1, 1.5, "5", null].map((value) => [
    value,
    /use true, false or a whole number/,
  ]),
  redirectTargets: ["same-site", true, null].map((value) => [
    value,
    /use "same-origin", "any" or a predicate on the URL/,
  ]),
  replayLimit: [-1, "1mb", null].map((value) => [value, /use a number of bytes/]),
  retry: [
    [true, /use false, or an object such as \{ attempts: 2 \}/],
    [null, /use false, or an object/],
    [{ attempts: -1 }, /attempts: use a whole number/],
    [{ methods: "GET" }, /methods: use an array/],
    [{ statusCodes: [200] }, /statusCodes: use an array of statuses from 400 to 599/],
    [{ delay: "5" }, /delay: use whole milliseconds/],
    [{ times: 5 }, /times: there is no such option; there are attempts, /],
    [[503], /use false, or an object such as/],
    [[], /use false, or an object such as/],
    [new Map([["attempts", 2]]), /use false, or an object such as/],
    // Names that every object inherits, here as own properties. `JSON.parse` creates even `__proto__` as an own property.
    [JSON.parse('{ "__proto__": { "attempts": 9 } }'), /__proto__: there is no such option/],
    [{ constructor: 5 }, /constructor: there is no such option/],
    [{ toString: 5 }, /toString: there is no such option/],
    [{ hasOwnProperty: 5 }, /hasOwnProperty: there is no such option/],
  ],
  cookieDomainRewrite: [
    5,
    null,
    "a;b",
    "a b",
    "*",
    "http://a",
    ["a.test"],
    { a: 5 },
    new Map(),
  ].map((value) => [
    value,
    /use a domain such as "shop\.example", "" for none, or a map of old to new domains/,
  ]),
  cookiePathRewrite: [5, null, "a", "/a;b", "/a,b", "/\n", ["/a"], { "/a": 5 }].map((value) => [
    value,
    /use a path such as "\/", "" for none, or a map of old to new paths/,
  ]),
  locationRewrite: ["/a", null, ["/a"], { a: 5 }, { a: "" }, { "": "/a" }, { a: "/ b" }].map(
    (value) => [value, /use true, false or a map of URL prefixes such as/],
  ),
  upgrades: ["websocket", [5], [""], ["a b"], ["a\r\nb"], ["h2c"], ["HTTP/2.0"]].map((value) => [
    value,
    /use an array of protocols other than HTTP, such as \["websocket"\]/,
  ]),
  tunnelTimeout: noMilliseconds,
  tunnelCloseTimeout: noMilliseconds,
  bodyLimit: [-1, 1.5, "1mb", Infinity, null].map((value) => [value, /use a number of bytes/]),
  interceptors: [
    [[(next: Send): Send => next], /use an object such as \{ attempt: \[\(next\) => next\] \}/],
    [(next: Send): Send => next, /use an object such as/],
    [null, /use an object such as/],
    [{ request: (next: Send): Send => next }, /request: use an array of functions \(next\) =>/],
    [{ attempt: [5] }, /attempt: use an array of functions/],
    [{ attempt: [undefined] }, /attempt: use an array of functions/],
    [{ attempt: null }, /attempt: use an array of functions/],
    [{ attempts: [] }, /attempts: there is no such option; did you mean `attempt`\?/],
    [{ request: [() => {}] }, /return a function: \(next\) => \(request, scope\) =>/],
    [{ attempt: [async (next: Send) => next] }, /return a function/],
  ],
  onRequest: noFunction,
  onInformational: noFunction,
  onRequestEnd: noFunction,
  onResponse: noFunction,
  onError: noFunction,
  signal: [
    [new AbortController(), /use an AbortSignal/],
    [null, /use an AbortSignal/],
  ],
  fetch: noFunction,
  transport: [
    [{}, /use what createTransport\(\) returned/],
    [null, /use what createTransport/],
  ],
};

/** Values that an option accepts, including its limits. */
const RIGHT: { [Name in keyof ProxyOptions]: NonNullable<ProxyOptions[Name]>[] } = {
  headers: [{}, { "X-A": "\u00e9\t", b: null }],
  filterHeaders: [[], ["Cookie"]],
  forwardHeaders: [["proxy-authorization", "x-forwarded-for"]],
  changeOrigin: [true, false],
  host: ["a.test", "a.test:80", "[::1]:80"],
  xfwd: [true, false, "forwarded"],
  trustProxy: [
    true,
    false,
    [],
    ["10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8", "loopback"],
    () => true,
  ],
  clientAddress: [() => undefined],
  via: [false, "fetchway"],
  stripPrefix: ["/", "/api"],
  pathRewrite: [{}, { "^/a": "/b" }, (path) => path],
  timeout: [0, 2 ** 31 - 1],
  connectTimeout: [0],
  idleTimeout: [0],
  followRedirects: [true, false, 0, 20],
  redirectTargets: ["same-origin", "any", () => true],
  replayLimit: [0],
  retry: [false, {}, { attempts: 0, methods: ["PATCH"], statusCodes: [503], delay: 5 }],
  cookieDomainRewrite: ["", "a.test", { "a.test": "", "*": "b.test" }],
  cookieSecure: [true, false],
  cookiePathRewrite: ["", "/", { "/a": "/b c\u00e9", "*": "" }],
  locationRewrite: [true, false, {}, { "http://a/": "/b;c,d/", "/e/": "/" }],
  bodyLimit: [0, 2 ** 53 - 1],
  upgrades: [[], ["websocket"], ["WebSocket", "tcp", "x/1.0"]],
  tunnelTimeout: [0, 2 ** 31 - 1],
  tunnelCloseTimeout: [0, 2 ** 31 - 1],
  interceptors: [
    {},
    { request: [], attempt: [] },
    { request: undefined as never },
    { request: [(next) => next], attempt: [(next) => (hop, scope) => next(hop, scope)] },
  ],
  onRequest: [() => {}],
  onInformational: [() => {}],
  onRequestEnd: [() => {}],
  onResponse: [() => {}],
  onError: [() => {}],
  signal: [AbortSignal.timeout(1)],
  fetch: [() => new Response()],
  transport: [new FakeTransport()],
};

const check = (name: string, value: unknown) => (): unknown =>
  compile({ followRedirects: true, [name]: value }, () => new FakeTransport());

test("CVE-2026-1527: a protocol with a line end or a control character is refused in `upgrades`", () => {
  for (const protocol of ["websocket\r\nX: y", "websocket\n", "a\0", "\r\n\r\nGET / HTTP/1.1"]) {
    expect(check("upgrades", [protocol])).toThrow(/`upgrades`: use an array of protocols/);
  }
});

describe.each(Object.keys(WRONG) as (keyof ProxyOptions)[])("the option %s", (name) => {
  test.each(WRONG[name] ?? [])("refuses %j", (value, fix) => {
    expect(check(name, value)).toThrow(TypeError);
    expect(check(name, value)).toThrow(
      new RegExp(`^fetchway: bad option \`${name}\`: .*${fix.source}`),
    );
  });

  test("accepts valid values and undefined", () => {
    for (const value of [...(RIGHT[name] ?? []), undefined])
      expect(check(name, value)).not.toThrow();
  });
});

test("a pattern with an asterisk, such as x-internal-*, is refused as a field name", () => {
  expect(check("forwardHeaders", ["x-forwarded-*"])).toThrow(TypeError);
  expect(check("filterHeaders", ["x-internal-*"])).toThrow(TypeError);
});
