import { describe, expect, test } from "vitest";
import { pathOf } from "../../../src/target/target.ts";

describe("pathOf", () => {
  test.each([
    ["http://a.test/", "/"],
    ["http://a.test", "/"],
    ["http://a.test?x", "/?x"],
    ["http://a.test?x=/y", "/?x=/y"],
    ["http://a.test/b?c#d", "/b?c"],
    ["http://a.test/b#c?d", "/b"],
    ["https://a.test:8443//b//c%2F;d?x=+&", "//b//c%2F;d?x=+&"],
    ["http://a.test/b?", "/b?"],
    ["http://[::1]:80/b", "/b"],
    ["http://a.test/\\evil.test/@x:y", "/\\evil.test/@x:y"],
    // Bun builds such URLs if `Host` is missing or is not an authority.
    ["/b?c#d", "/b?c"],
    ["//b//c", "//b//c"],
  ])("of the URL %s returns %s", (url, path) => {
    expect(pathOf(url)).toBe(path);
  });
});
