/** Which requests a route's pattern matches. */
import { describe, expect, test } from "vitest";
import {
  checkPattern,
  hostOf,
  normalizePattern,
  parsePattern,
  PatternMap,
  readingsOf,
} from "../../command/serve/pattern.ts";

/** Returns the pattern that a request matches, among several. */
function findAmong(patterns: string[], host: string | undefined, path: string): string | undefined {
  const map = new PatternMap<string>();
  for (const pattern of patterns) map.add(parsePattern(pattern), pattern);
  return map.find(host, path);
}

describe("a pattern that is the prefix of a path", () => {
  test.each(["/api", "/api/", "/api/x", "/api?x", "/api//"])("/api matches %s", (path) => {
    expect(findAmong(["/api"], undefined, path)).toBe("/api");
    expect(findAmong(["/api/"], "any.example", path)).toBe("/api/");
  });

  test.each(["/", "/apix", "/ap", "/API", "/x/api", "*", "/api;x"])(
    "/api does not match %s",
    (path) => {
      expect(findAmong(["/api"], undefined, path)).toBeUndefined();
      expect(findAmong(["/api", "/"], undefined, path)).toBe("/");
    },
  );

  test("the longest matching prefix takes precedence, whatever the order of the patterns", () => {
    for (const patterns of [
      ["/", "/a", "/a/b"],
      ["/a/b", "/a", "/"],
    ]) {
      expect(findAmong(patterns, undefined, "/a/b/c")).toBe("/a/b");
      expect(findAmong(patterns, undefined, "/a/bc")).toBe("/a");
      expect(findAmong(patterns, undefined, "/c")).toBe("/");
    }
  });
});

describe("among patterns with hosts", () => {
  const patterns = ["/long/path", "*.example.com/", "shop.example.com/", "*.eu.example.com/api"];

  test.each([
    ["shop.example.com", "/long/path", "shop.example.com/"],
    ["a.example.com", "/long/path", "*.example.com/"],
    ["a.b.example.com", "/", "*.example.com/"],
    ["a.eu.example.com", "/api/x", "*.eu.example.com/api"],
    // The longer wildcard has no route for the path.
    ["a.eu.example.com", "/x", "*.example.com/"],
    ["example.com", "/long/path", "/long/path"],
    ["notexample.com", "/", undefined],
    [".example.com", "/", undefined],
    [undefined, "/long/path", "/long/path"],
  ])(
    "a request with the host %s and the path %s matches the pattern %s",
    (host, path, expected) => {
      expect(findAmong(patterns, host, path)).toBe(expected);
    },
  );

  test.each([
    ["Shop.Example:8080", "shop.example"],
    ["shop.example.", "shop.example"],
    ["shop.example.:80", "shop.example"],
    ["[::1]:8080", "[::1]"],
    ["[::1]", "[::1]"],
    ["127.0.0.1:", "127.0.0.1"],
  ])("the authority %s has the host %s", (authority, host) => {
    expect(hostOf(authority)).toBe(host);
  });
});

test.each([
  ["/api/", "/api"],
  ["/", "/"],
  ["Shop.Example", "shop.example/"],
  ["Shop.Example./A/", "shop.example/A"],
  ["[::1]/", "[::1]/"],
])("the pattern %s has the normal form %s", (one, other) => {
  expect(checkPattern(one)).toBeUndefined();
  expect(normalizePattern(one)).toBe(other);
});

test.each([
  ["", /use a path such as "\/api"/],
  [5, /use a path such as "\/api"/],
  ["http://shop.example/x", /leave out the scheme, and write "shop\.example\/x"/],
  ["shop.example:80/x", /leave out the port, and write "shop\.example\/x"/],
  ["*/x", /for any host, write "\/x"/],
  ["/api/*", /a prefix matches all paths below it; write "\/api"/],
  ["shop.example/*", /write "shop\.example\/"/],
  ["a b/", /"a b" is not a host/],
  ["a.*.b/", /"a\.\*\.b" is not a host/],
  ["/a?b", /without a query/],
  ["/a b", /write "\/a%20b", as in a URL/],
  ["/é", /write "\/%C3%A9", as in a URL/],
  ["shop.example/日本", /write "shop\.example\/%E6%97%A5%E6%9C%AC", as in a URL/],
  ["/\ud800", /write "\/%EF%BF%BD"/],
  ["/caf%C3%A9", undefined],
  ["/a%20b", undefined],
  ["/.well-known", undefined],
  // The router compares decoded paths, and an upstream may decode differently: these patterns would match other paths.
  ["/%61pi", /write "\/api"/],
  ["/a//b/", /write "\/a\/b\/"/],
  ["/a/./b/../c", /write "\/a\/c"/],
  ["/a;x=1/b", /write "\/a\/b"/],
  ["/a\\b", /write "\/a\/b"/],
  ["/a%2fb", /write "\/a\/b"/],
  ["/a%2520b", /a prefix with %25 is ambiguous/],
  ["/a%zzb", /escapes/],
  // A single word could be a host or a path.
  ["api", /write "\/api" for the path, or "api\/" for the host/],
  ["api/", undefined],
  ["localhost", undefined],
  ["api.example", undefined],
])("the pattern %j is accepted, or refused with the fix", (pattern, message) => {
  if (message === undefined) expect(checkPattern(pattern)).toBeUndefined();
  else expect(checkPattern(pattern)).toMatch(message);
});

test.each([
  ["/a/b?x=/../y", []],
  ["/a/../b", ["/b"]],
  ["/a/%2e%2e/b?c", ["/a/%2e%2e/b", "/b"]],
  ["/%61pi", ["/%61pi", "/api"]],
  ["/a%252f..%252fb", ["/a%252f..%252fb", "/a%2f..%2fb", "/b"]],
  ["//a;x=1/./b\\c", ["/a/b/c"]],
  // An upstream may end the path at the characters that these escapes encode.
  ["/api%00/x", ["/api%00/x", "/api\0/x", "/api"]],
  ["/api%23x", ["/api%23x", "/api#x", "/api"]],
  ["/x%3f/../api", ["/api", "/api", "/x"]],
  ["/100%", ["/100%"]],
])("an upstream can read the path %s as any of %j", (path, readings) => {
  expect(readingsOf(path)).toEqual(readings);
});
