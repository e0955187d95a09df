import { describe, expect, test } from "vitest";
import { isAuthority, isSameAuthority } from "../../../src/request/host.ts";

describe("isAuthority", () => {
  test.each([
    "",
    "a",
    "A.Test:80",
    "a.:",
    "a_b-c~d",
    "a!$&'()*+;=b",
    "1.2.3.4:65535",
    "a:00080",
    "[::1]",
    "[2001:DB8::7]:8443",
    "[::ffff:127.0.0.1]",
  ])("%j is an authority", (value) => {
    expect(isAuthority(value)).toBe(true);
  });

  test.each([
    "a b",
    "a\tb",
    "a/b",
    "a?b",
    "a#b",
    "a\\b",
    "u@a",
    "a,b",
    'a"b',
    "<b>",
    "a%41",
    "a|b",
    "a^b",
    "a`b",
    "a{b}",
    "a\x7f",
    "\x80",
    "é",
    "\u212a",
    "a\xa0",
    "a\n",
    "a:80:90",
    "a:-1",
    "a:65536",
    "a:99999",
    "a:000080",
    ":80",
    "::1",
    "[::1",
    "[]",
    "[1]",
    "[:::1]",
    "[::1%25lo]",
    "[::1]x",
    "x[::1]",
    "[v1.x]",
  ])("%j is not an authority", (value) => {
    expect(isAuthority(value)).toBe(false);
  });

  test("URL parsers read every accepted value as an authority and nothing else", () => {
    for (let code = 0; code < 0x250; code++) {
      const value = `a${String.fromCharCode(code)}b`;
      if (!isAuthority(value) || value.includes(":")) continue;
      expect(new URL(`http://${value}/x`).href).toBe(`http://${value.toLowerCase()}/x`);
    }
  });

  test.each(["a", "1", "[", ":", "a:"])(
    "takes linear time for a value that repeats %j many times",
    (part) => {
      // Quadratic time would exceed the timeout of the test.
      const value = part.repeat(5_000_000);
      expect(isAuthority(`${value} `)).toBe(false);
    },
  );
});

describe("isSameAuthority", () => {
  test.each([
    ["a", "a", false],
    ["a.test", "A.TEST", false],
    ["a:80", "a", false],
    ["a:443", "a", true],
    ["a:", "a", true],
    ["[::1]", "[0:0::1]", false],
  ])("%j and %j, secure: %s, are the same", (one, other, secure) => {
    expect(isSameAuthority(one, other, secure)).toBe(true);
    expect(isSameAuthority(other, one, secure)).toBe(true);
  });

  test.each([
    ["a", "b", false],
    ["a:80", "a", true],
    ["a:443", "a", false],
    ["a", "", false],
    ["a", "a.", false],
    ["u@a", "a", false],
    ["a", "a/x", false],
    ["a b", "a%20b", false],
  ])("%j and %j, secure: %s, are different", (one, other, secure) => {
    expect(isSameAuthority(one, other, secure)).toBe(false);
    expect(isSameAuthority(other, one, secure)).toBe(false);
  });
});
