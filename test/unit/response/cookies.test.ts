import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compileCookieRewrite } from "../../../src/response/cookies.ts";

type Values = Parameters<typeof compileCookieRewrite>[0];

const rewrite = (cookie: string, domains: Values, paths?: Values): string | undefined =>
  compileCookieRewrite(domains, paths)?.(cookie);

test("without a cookie option there is no rewriting function", () => {
  expect(compileCookieRewrite(undefined, undefined)).toBeUndefined();
});

describe("the option cookieDomainRewrite", () => {
  test.each([
    ["a=b; Domain=up.test", "a=b; Domain=shop.test"],
    ["a=b;domain=up.test;Path=/", "a=b;domain=shop.test;Path=/"],
    ["a=b; DOMAIN = .Up.Test ; Secure", "a=b; DOMAIN = shop.test ; Secure"],
    ['a=b; Domain="up.test"', 'a=b; Domain="shop.test"'],
    ["a=b; Domain=up.test; Domain=other.test", "a=b; Domain=shop.test; Domain=shop.test"],
    ["a=b; Domain=", "a=b; Domain="],
    ["a=b; Domain", "a=b; Domain"],
    ["a=b; Path=/; HttpOnly", "a=b; Path=/; HttpOnly"],
    ["Domain=up.test", "Domain=up.test"],
    ["domain=up.test; Domain=up.test", "domain=up.test; Domain=shop.test"],
    ["a=domain=up.test; Secure", "a=domain=up.test; Secure"],
    ['a="b;domain=up.test"; Secure', 'a="b;domain=up.test"; Secure'],
    [
      'a="b;domain=up.test" ; Comment=";Domain=up.test"; Domain=up.test',
      'a="b;domain=up.test" ; Comment=";Domain=up.test"; Domain=shop.test',
    ],
    // A quote that does not enclose the value has no special meaning.
    ['a="b; Domain=up.test', 'a="b; Domain=shop.test'],
    ['a=b"; Domain=up.test; c="d', 'a=b"; Domain=shop.test; c="d'],
    ['a="b"c; Domain=up.test', 'a="b"c; Domain=shop.test'],
    ['a="b;domain=up.test"c', 'a="b;domain=shop.test'],
    ["a=b; XDomain=up.test; Domains=up.test", "a=b; XDomain=up.test; Domains=up.test"],
    ["", ""],
    [";", ";"],
  ])("a string replaces the domain of every cookie: %j becomes %j", (cookie, rewritten) => {
    expect(rewrite(cookie, "shop.test")).toBe(rewritten);
  });

  test.each([
    ["a=b; Domain=up.test", "a=b"],
    ["a=b;  Domain=up.test ; Secure", "a=b; Secure"],
    ["a=b; Domain=up.test;Secure", "a=b;Secure"],
    ["a=b; Secure; domain=x; domain=y", "a=b; Secure"],
    ['a=b; Domain="x" ; Secure', "a=b; Secure"],
    ["a=b; Domain=", "a=b; Domain="],
  ])("an empty string removes the attribute: %j becomes %j", (cookie, rewritten) => {
    expect(rewrite(cookie, "")).toBe(rewritten);
    expect(rewrite(cookie, { "*": "" })).toBe(rewritten);
  });

  test("a map is searched for the domain, without its leading dot and ignoring case, and then for *", () => {
    const map = { "Up.Test": "a.test", ".other.test": "" };
    expect(rewrite("a=b; Domain=.UP.test", map)).toBe("a=b; Domain=a.test");
    expect(rewrite("a=b; Domain=other.test", map)).toBe("a=b");
    expect(rewrite("a=b; Domain=third.test", map)).toBe("a=b; Domain=third.test");
    expect(rewrite("a=b; Domain=x.up.test", map)).toBe("a=b; Domain=x.up.test");
    expect(rewrite("a=b; Domain=third.test", { ...map, "*": "b.test" })).toBe("a=b; Domain=b.test");
    for (const name of ["toString", "__proto__", "constructor"]) {
      expect(rewrite(`a=b; Domain=${name}`, map)).toBe(`a=b; Domain=${name}`);
    }
  });
});

describe("the option cookiePathRewrite", () => {
  test.each([
    ["a=b; Path=/up", "a=b; Path=/shop"],
    ["a=b; path=/up; Domain=up.test", "a=b; path=/shop; Domain=up.test"],
    ["a=b; Path=/up/x", "a=b; Path=/up/x"],
    ["a=b; Path=/UP", "a=b; Path=/UP"],
    ["a=b; Path=/up/", "a=b; Path=/up/"],
    ["a=b; Path=/\u00e9", "a=b; Path=/\u00ff"],
    ["a=\u00e9; Path=/a b\u00a0", "a=\u00e9; Path=/c"],
    ["a=b", "a=b"],
  ])("a path is looked up in a map by its whole value: %j becomes %j", (cookie, rewritten) => {
    const map = { "/up": "/shop", "/\u00e9": "/\u00ff", "/a b\u00a0": "/c" };
    expect(rewrite(cookie, undefined, map)).toBe(rewritten);
  });

  test("can be used together with cookieDomainRewrite", () => {
    expect(rewrite("a=b; Path=/x; Domain=y; Secure", "", "/")).toBe("a=b; Path=/; Secure");
  });
});

describe("the option cookieSecure", () => {
  test.each([
    ["a=b; Secure", "a=b"],
    ["a=b;secure ;HttpOnly", "a=b;HttpOnly"],
    ["a=b; Secure=x; Path=/", "a=b; Path=/"],
    ["a=b; SameSite=None; Secure; Partitioned", "a=b"],
    ['a=b; samesite = "none" ; Max-Age=1', "a=b; Max-Age=1"],
    ["a=b; SameSite=Lax; Secure", "a=b; SameSite=Lax"],
    ["a=b; SameSite=Strict", "a=b; SameSite=Strict"],
    ["a=b; SameSite=Nonesuch; Secured; XSecure", "a=b; SameSite=Nonesuch; Secured; XSecure"],
    ["Secure", "Secure"],
    ["secure=1; Secure", "secure=1"],
    ['a="b; Secure"; Secure', 'a="b; Secure"'],
    ["a=__Host-b; Secure", "a=__Host-b"],
    ["__Host-a=b; Path=/; Secure; SameSite=None", "__Host-a=b; Path=/; Secure; SameSite=None"],
    [" __secure-a=b; Secure; Domain=x", " __secure-a=b; Secure"],
    ["__Http-a=b; Secure; HttpOnly", "__Http-a=b; Secure; HttpOnly"],
    ["__Hosted-a=b; Secure", "__Hosted-a=b"],
  ])("false removes what clients accept only over HTTPS: %j becomes %j", (cookie, rewritten) => {
    expect(compileCookieRewrite("", undefined, false)?.(cookie)).toBe(rewritten);
  });

  test("true changes nothing", () => {
    expect(compileCookieRewrite("", undefined, true)?.("a=b; Secure")).toBe("a=b; Secure");
    expect(compileCookieRewrite(undefined, undefined, true)).toBeUndefined();
  });
});

test("a cookie with a long run of white space, quotes or separators is rewritten in linear time", () => {
  for (const filling of [" ", '"', ' "', ";=", '="', '; domain="']) {
    // Quadratic time would exceed the timeout of the test.
    const cookie = `a=b; Domain=x${filling.repeat(500_000)}y; Path=/`;
    expect(rewrite(cookie, "z", "/z")).toMatch(/Path=\/z$/);
    expect(compileCookieRewrite("z", "/z", false)?.(cookie)).toMatch(/Path=\/z$/);
  }
});

describe("fuzzed cookies", () => {
  test("attributes are recognized as by an equivalent regular expression, which takes quadratic time", () => {
    const attribute = /^(;[ \t]*(domain|path)[ \t]*=[ \t]*"?)((?:.*[^ \t"])?)("?[ \t]*)$/is;
    const parts = /(?:^|;)[^=;]*(?:=[ \t]*"[^"]*"[ \t]*(?=;|$)|[^;]*)/g;
    const expected = (cookie: string): string =>
      cookie.replace(parts, (part) => {
        const [, before = "", name = "", value = "", after = ""] = attribute.exec(part) ?? [];
        if (value === "") return part;
        return name.length === 4 ? `${before}<${value}>${after}` : "";
      });
    const scraps = [
      ...Array.from(';;;= \t""\nx\u00a0'),
      "; path=",
      ";Domain =",
      "; PATH = ",
      "path",
      "domain",
    ];
    const cookies = fc.array(fc.constantFrom(...scraps), { maxLength: 14 });
    fc.assert(
      fc.property(cookies, (each) => {
        const cookie = each.join("");
        const values = Array.from(cookie.matchAll(parts), ([part]) => attribute.exec(part)?.[3]);
        const paths = Object.fromEntries(values.map((value = "") => [value, `<${value}>`]));
        expect(rewrite(cookie, "", paths)).toBe(expected(cookie));
      }),
      { numRuns: 20_000 },
    );
  });

  const text = fc.stringMatching(/^[a-zA-Z0-9 ,=.:\u00e9\u00ff-]{0,6}$/);
  const quoted = fc.stringMatching(/^[a-z ;=,]{0,8}$/).map((inner) => `"${inner}"`);
  const anyCase = (word: string): fc.Arbitrary<string> =>
    fc
      .array(fc.boolean(), { minLength: word.length, maxLength: word.length })
      .map((upper) =>
        Array.from(word, (letter, i) => (upper[i] ? letter.toUpperCase() : letter)).join(""),
      );
  const space = fc.constantFrom("", " ", "  ", "\t");
  const ours = fc.oneof(anyCase("domain"), anyCase("path"));
  const value = fc.constantFrom("up.test", ".UP.test", "other.test", "/up", "/");
  const other = fc
    .tuple(fc.constantFrom("Secure", "expires", "x-domain", "Max-Age"), fc.oneof(text, quoted))
    .map(([name, each]) => `${name}=${each}`);

  /** Generates an attribute in parts. Its `name` is empty if the attribute must not change. */
  const attribute = fc.oneof(
    fc.tuple(space, ours, space, space, value, space).map(([a, name, b, c, each, d]) => ({
      before: `${a}${name}${b}=${c}`,
      each,
      after: d,
      name,
    })),
    other.map((before) => ({ before, each: "", after: "", name: "" })),
  );
  const pair = fc.tuple(fc.stringMatching(/^[a-z]{1,3}$/), fc.oneof(text, quoted));

  test("only the values of Domain and Path change, all other bytes are kept", () => {
    const domains = { "up.test": "shop.test", "*": "" };
    const paths = { "/up": "/shop" };
    const fresh = (name: string, each: string): string => {
      if (name.length === 4) return each === "/up" ? "/shop" : each;
      return name === "" ? each : /^\.?up\.test$/i.test(each) ? "shop.test" : "";
    };
    fc.assert(
      fc.property(pair, fc.array(attribute, { maxLength: 6 }), ([name, first], attributes) => {
        const start = `${name}=${first}`;
        const before = attributes.map((each) => `;${each.before}${each.each}${each.after}`);
        const after = attributes.map((each) => {
          const changed = fresh(each.name.toLowerCase(), each.each);
          const gone = each.name !== "" && changed === "";
          return gone ? "" : `;${each.before}${changed}${each.after}`;
        });
        expect(rewrite(start + before.join(""), domains, paths)).toBe(start + after.join(""));
      }),
      { numRuns: 3_000 },
    );
  });
});
