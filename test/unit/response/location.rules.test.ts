import { describe, expect, test } from "vitest";
import { parseTarget } from "../../../src/target/target.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import { fakeRequest, TARGET } from "../../helpers/fakes.ts";
import { locate } from "./_locate.ts";

describe("a map in locationRewrite", () => {
  const rewrite = {
    "http://up.test:4000/": "https://shop.test/",
    "http://up.test:4000/long/": "/short/",
    "http://other.test": "https://other.shop",
    "/rel/": "/r/",
    "/slash/": "/",
    "http://slashes.test/": "//cdn.test/",
  };

  test.each([
    ["http://up.test:4000/a?b#c", "https://shop.test/a?b#c"],
    ["//up.test:4000/a", "https://shop.test/a"],
    ["http://up.test:4000/long/a", "/short/a"],
    ["http://other.test", "https://other.shop"],
    ["http://other.test/a", "https://other.shop/a"],
    ["http://other.test?a", "https://other.shop?a"],
    ["http://other.test#a", "https://other.shop#a"],
    ["/rel/a", "/r/a"],
    ["http://slashes.test//a", "//cdn.test//a"],
    ["/rel/\u00ff", "/r/\u00ff"],
    // If no prefix matches, the rules of `locationRewrite: true` apply.
    ["http://UP.test:4000/a", "/a"],
    ["/rel", "/rel"],
    ["/a", "/a"],
    ["http://other.test.evil.test/a", "http://other.test.evil.test/a"],
    ["http://other.test:81/a", "http://other.test:81/a"],
    ["//rel/a", "//rel/a"],
    // Two slashes at the beginning of a rewritten path must not become an authority.
    ["/slash//evil.test", "/.//evil.test"],
    ["/slash/\\evil.test", "/./\\evil.test"],
    // URL parsers disagree about this path, so it is not rewritten.
    ["/slash/\t/evil.test", "/slash/\t/evil.test"],
  ])("%j becomes %j", (reference, rewritten) => {
    expect(locate(reference, { rewrite })).toBe(rewritten);
  });

  test("can replace the scheme alone", () => {
    const setup = { rewrite: { "http:": "https:" } };
    expect(locate("http://shop.test/a", setup)).toBe("https://shop.test/a");
    expect(locate("//shop.test/a", setup)).toBe("https://shop.test/a");
  });

  test("adds a prefix that the app has removed", () => {
    const setup = { rewrite: { [`${TARGET}/`]: "/api/", "/": "/api/" } };
    for (const reference of [`${TARGET}/a`, "//up.test:4000/a", "/a"]) {
      expect(locate(reference, setup)).toBe("/api/a");
    }
    expect(locate("//evil.test/a", setup)).toBe("//evil.test/a");
    expect(locate("/\\evil.test/a", setup)).toBe("/api/\\evil.test/a");
  });

  test("is applied before base path and stripPrefix", () => {
    const setup = { rewrite: { "/v2/old/": "/new/" }, prefix: "/api", target: `${TARGET}/v2` };
    expect(locate("/v2/old/a", setup)).toBe("/new/a");
    expect(locate("/v2/a", setup)).toBe("/api/a");
  });
});

describe("after a followed redirect", () => {
  const at = (url: string): UpstreamRequest => {
    const { origin, pathname, search } = new URL(url);
    return fakeRequest({ upstream: parseTarget(origin), path: pathname + search });
  };

  test.each([
    [`${TARGET}/v2/x/y?z`, "a", "/x/a"],
    [`${TARGET}/v2/x/y?z`, "?a", "/x/y?a"],
    [`${TARGET}/v2/x/y`, "../../a", `${TARGET}/a`],
    [`${TARGET}/x`, "/v2/a\u00ff", "/a%ff"],
    ["http://b.test/x/", "a", "http://b.test/x/a"],
    ["http://b.test/x/", "/v2/a", "http://b.test/v2/a"],
    ["http://b.test/x/", `${TARGET}/v2/a`, "/a"],
    ["http://b.test/x/", "HTTP://c.test/\u00ff", "HTTP://c.test/\u00ff"],
    ["http://b.test/x/", "mailto:A", "mailto:A"],
    ["http://b.test/x/", "http://", "http://"],
  ])("after a redirect to %s, the reference %j becomes %j", (url, reference, rewritten) => {
    expect(locate(reference, { target: `${TARGET}/v2`, followed: at(url) })).toBe(rewritten);
  });
});
