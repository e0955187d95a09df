import { describe, expect, test } from "vitest";
import { compileLocationRewrite } from "../../../src/response/location.ts";
import type { TargetAddress } from "../../../src/target/target.ts";
import { TARGET } from "../../helpers/fakes.ts";
import { locate } from "./_locate.ts";

test("locationRewrite: false creates no rewriting function", () => {
  expect(compileLocationRewrite(false, "/api")).toBeUndefined();
});

describe("URLs of the target", () => {
  test.each([
    ["http://up.test:4000/a", "/a"],
    ["http://up.test:4000", "/"],
    ["http://up.test:4000?a=b#c", "/?a=b#c"],
    ["http://up.test:4000/a%2Fb;c?d=%zz&e=http://x#/../f?g", "/a%2Fb;c?d=%zz&e=http://x#/../f?g"],
    ["HTTP://UP.test:4000/A", "/A"],
    ["http://user:secret@up.test:4000/a", "/a"],
    ["//up.test:4000/a", "/a"],
    ["\\\\up.test:4000/a", "/a"],
    ["/\\up.test:4000\\a", "/a"],
    ["///up.test:4000/a", "/a"],
    ["http://up.test:4000/a/../b", "/b"],
    ["http://up.test:4000/\u00c3\u00a9 \u00ff", "/\u00c3\u00a9 \u00ff"],
    ["http://up.test:4000/\u00ff/./a", "/%ff/a"],
  ])("%j becomes the path %j", (reference, path) => {
    expect(locate(reference)).toBe(path);
  });

  test.each([
    "/a",
    "/",
    "/a/../b",
    "/a\\b?c",
    "",
    "a",
    "../a",
    "./a",
    "?a",
    "#a",
    "http://up.test:4001/a",
    "https://up.test:4000/a",
    "http://up.test/a",
    "http://up.test:4000.evil.test/a",
    "http://up.test:4000@evil.test/a",
    "http://evil.test/http://up.test:4000/",
    "//evil.test/a",
    "///evil.test/a",
    "/\\evil.test/a",
    "http:///",
    "///",
    "http://",
    "http://[/a",
    "http://up.test:4000:/a",
    "http:/up.test:4000/a",
    "http:a",
    "http://\u00c3\u00a9/a",
    "http://up.test:4000/a\tb",
    "/\t/evil.test",
    "mailto:a@up.test",
    "javascript:alert(1)",
    "not a url at all",
  ])("%j is none of them, and is unchanged", (reference) => {
    expect(locate(reference)).toBe(reference);
  });

  test.each<[TargetAddress, string, string]>([
    ["http://up.test:80", "http://up.test/a", "/a"],
    ["https://up.test", "https://up.test:443/a", "/a"],
    ["https://up.test", "//up.test/a", "/a"],
    ["http://127.0.0.1:4000", "http://127.1:4000/a", "/a"],
    ["http://[::1]:4000", "http://[0::1]:4000/a", "/a"],
    ["unix:/run/app.sock", "http://localhost/a", "/a"],
    [{ url: "http://up.test/v2", socketPath: "/s" }, "http://up.test/v2/a", "/a"],
  ])("with the target %j, %j becomes the path %j", (target, reference, path) => {
    expect(locate(reference, { target })).toBe(path);
  });
});

describe("the target's base path", () => {
  const target = `${TARGET}/v2/`;

  test.each([
    [`${TARGET}/v2/a?b#c`, "/a?b#c"],
    ["/v2/a?b#c", "/a?b#c"],
    ["//up.test:4000/v2/a", "/a"],
    ["/v2", "/"],
    ["/v2?a", "/?a"],
    ["/v2/", "/"],
    ["/v2/x/../a", "/a"],
    ["/x/../v2/a", "/a"],
    ["/x/%2E%2e/v2/./a", "/a"],
    ["\\v2\\a", "/a"],
    ["/v2/..a/...", "/..a/..."],
  ])("is removed: %j becomes %j", (reference, path) => {
    expect(locate(reference, { target })).toBe(path);
  });

  test.each([
    "/v20/a",
    "/V2/a",
    "/a",
    "/",
    "/v2/../a",
    "/v2/..",
    "/v2/%2e%2e/a",
    "/v2/..\\a",
    `${TARGET}/a`,
    TARGET,
    `${TARGET}/v2x`,
    "v2/a",
    "?/v2/a",
  ])(
    "is not removed from a reference that is relative or outside of the base path: %j is unchanged",
    (reference) => {
      expect(locate(reference, { target })).toBe(reference);
    },
  );

  test.each([
    ["/v2//evil.test/a", "/.//evil.test/a"],
    ["/v2/\\evil.test/a", "/.//evil.test/a"],
    ["/v2/.//evil.test/a", "/.//evil.test/a"],
    [`${TARGET}/v2//`, "/.//"],
  ])("is removed from %j without making the rest an authority", (reference, path) => {
    expect(locate(reference, { target })).toBe(path);
    expect(new URL(path, "http://shop.test/x").host).toBe("shop.test");
  });

  test("without a base path, a path that begins with two slashes does not become an authority", () => {
    expect(locate(`${TARGET}//evil.test/a`)).toBe("/.//evil.test/a");
    expect(locate(`${TARGET}\\\\evil.test/a`)).toBe("/.//evil.test/a");
  });
});

describe("the option stripPrefix", () => {
  test.each([
    ["/a?b", "/api/a?b"],
    [TARGET, "/api/"],
    ["//up.test:4000/api/a", "/api/api/a"],
    [`${TARGET}//evil.test`, "/api//evil.test"],
    ["a", "a"],
    ["//evil.test/a", "//evil.test/a"],
  ])("%j becomes %j", (reference, path) => {
    expect(locate(reference, { prefix: "/api" })).toBe(path);
  });

  test("takes the place of the target's base path, and paths outside the base path are unchanged", () => {
    const setup = { prefix: "/api", target: `${TARGET}/v2` };
    expect(locate("/v2/a", setup)).toBe("/api/a");
    expect(locate("/v2", setup)).toBe("/api/");
    expect(locate("/a", setup)).toBe("/a");
  });
});

test.each([
  ["/a?key=k", "/a"],
  ["/a?key=k&b=c", "/a?b=c"],
  ["/a?key=k#c", "/a#c"],
  [`${TARGET}/a?key=k&b#c`, "/a?b#c"],
  ["/a?key=kk", "/a?key=kk"],
  ["/a?b=c&key=k", "/a?b=c&key=k"],
  ["/a", "/a"],
  ["?key=k", "?key=k"],
])("the target's query is removed: %j becomes %j", (reference, path) => {
  expect(locate(reference, { target: `${TARGET}?key=k` })).toBe(path);
});

describe("Host", () => {
  test.each([
    ["shop.test", "http://shop.test/v2/a", "/a"],
    ["Shop.test:80", "http://shop.test:80/v2/a", "/a"],
    ["shop.test", "//shop.test/v2/a", "/a"],
    ["shop.test", `${TARGET}/v2/a`, "/a"],
    ["shop.test:8080", "http://shop.test:8080/v2/a", "/a"],
    // A redirect to https must keep its scheme, or the client would be redirected in a loop.
    ["shop.test", "https://shop.test/v2/a?b", "https://shop.test/api/a?b"],
    ["shop.test:8443", "https://shop.test:8443/v2//a", "https://shop.test:8443/api//a"],
  ])("Host %s is a name of the target, so %j is rewritten", (host, reference, path) => {
    const prefix = reference.startsWith("https") ? "/api" : "";
    expect(locate(reference, { host, prefix, target: `${TARGET}/v2` })).toBe(path);
  });

  test.each([
    ["shop.test", "http://shop.test:8080/a"],
    ["shop.test", "http://shop.test.evil.test/a"],
    ["shop.test", "http://shop.test/x/v2"],
    ["shop.test:80", "https://shop.test/v2/a"],
    ["[", "http://[/v2/a"],
    [undefined, "http://shop.test/v2/a"],
  ])("with Host %s, %j is not a URL of the target and stays unchanged", (host, reference) => {
    expect(locate(reference, { ...(host && { host }), target: `${TARGET}/v2` })).toBe(reference);
  });
});
