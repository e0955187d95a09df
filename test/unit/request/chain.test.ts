import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import type { HeaderList } from "../../../src/fields/headers.ts";
import { dropUntrusted } from "../../../src/request/chain.ts";
import { compileTrust, type Trust } from "../../../src/request/trust.ts";

const ours = compileTrust(["10.0.0.0/8", "fd00::/8"]) as Trust;
const everybody = compileTrust(true) as Trust;

/** Returns the fields that `dropUntrusted` leaves. */
function leave(fields: HeaderList, trusts: Trust): HeaderList {
  const headers = [...fields];
  dropUntrusted(headers, trusts);
  return headers;
}

/** Calls `dropUntrusted` with a field that has these lines, and returns the remaining value of the field. */
function cut(name: string, lines: string[], trusts: Trust = ours): string | undefined {
  const left = leave(
    lines.flatMap((line) => [name, line]),
    trusts,
  );
  expect(left.length).toBeLessThanOrEqual(2);
  return left[1];
}

describe("X-Forwarded-For", () => {
  test.each([
    ["203.0.113.7", "203.0.113.7"],
    ["6.6.6.6, 203.0.113.7", "203.0.113.7"],
    ["6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7, 10.0.0.2"],
    ["10.6.6.6, 203.0.113.7, 10.0.0.2,10.0.0.3", "203.0.113.7, 10.0.0.2, 10.0.0.3"],
    ["10.0.0.1, 10.0.0.2", "10.0.0.1, 10.0.0.2"],
    ["6.6.6.6, 2001:db8::1, fd00::2", "2001:db8::1, fd00::2"],
    // Ports, brackets, and IPv4-mapped IPv6 addresses.
    ["6.6.6.6, 203.0.113.7:5678, 10.0.0.2:80", "203.0.113.7:5678, 10.0.0.2:80"],
    [
      "6.6.6.6, [2001:db8::1]:80, [fd00::2]:80, [fd00::3]",
      "[2001:db8::1]:80, [fd00::2]:80, [fd00::3]",
    ],
    ["6.6.6.6, 203.0.113.7, ::ffff:10.0.0.2", "203.0.113.7, ::ffff:10.0.0.2"],
    // An invalid address ends the chain like an unknown client.
    ["10.0.0.1, unknown, 10.0.0.2", "unknown, 10.0.0.2"],
    ["10.0.0.1, _hidden", "_hidden"],
    ["10.0.0.1, 10.0.0.2 evil, 10.0.0.3", "10.0.0.2 evil, 10.0.0.3"],
    ["10.0.0.1, 010.0.0.2", "010.0.0.2"],
    ["10.0.0.1, 10.0.0.2:", "10.0.0.2:"],
    ["10.0.0.1, [10.0.0.2", "[10.0.0.2"],
    [" , 6.6.6.6,, 203.0.113.7 ,", "203.0.113.7"],
    // Only spaces and tabs may surround a member of a list (RFC 9110 §5.6.1): U+00A0 is part of the member.
    ["6.6.6.6, 203.0.113.7,\t10.0.0.2\t", "203.0.113.7, 10.0.0.2"],
    ["6.6.6.6, \xa010.0.0.2, 10.0.0.3", "\xa010.0.0.2, 10.0.0.3"],
    ["6.6.6.6, 10.0.0.2\xa0", "10.0.0.2\xa0"],
  ])("of the chain %s, %s is kept", (value, left) => {
    expect(cut("X-Forwarded-For", [value])).toBe(left);
    expect(cut("x-forwarded-for", value.split(","))).toBe(left);
  });

  test.each(["", " , ,"])("with the empty value %j is removed", (value) => {
    expect(cut("X-Forwarded-For", [value])).toBeUndefined();
  });

  test("with 200,000 addresses is read completely", () => {
    const value = "10.0.0.1,".repeat(200_000);
    expect(cut("X-Forwarded-For", [`${value}6.6.6.6,10.0.0.2`])).toBe("6.6.6.6, 10.0.0.2");
    expect(cut("X-Forwarded-For", [value])).toHaveLength(200_000 * 10 - 2);
  });

  test("is kept completely when every address is trusted", () => {
    const lines = ["6.6.6.6, unknown", "evil,10.0.0.1"];
    expect(cut("X-Forwarded-For", lines, everybody)).toBe("6.6.6.6, unknown, evil, 10.0.0.1");
  });

  test("is cut in the same way as by a simple reference implementation", () => {
    const trusted = ["10.0.0.1", "10.0.0.2:81", "[fd00::1]:81", "fd00::2"];
    const others = ["203.0.113.7", "[2001:db8::1]", "unknown", "_x", "10.evil"];
    const entry = fc.oneof(
      fc.constantFrom(...trusted),
      fc.constantFrom(...trusted),
      fc.constantFrom(...others),
    );
    fc.assert(
      fc.property(
        fc.array(fc.array(entry, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
        (lines) => {
          const expected: string[] = [];
          let believed = true;
          for (const each of lines.flat().toReversed()) {
            if (!believed) break;
            expected.unshift(each);
            believed = trusted.includes(each);
          }
          const values = lines.map((line) => line.join(", "));
          expect(cut("X-Forwarded-For", values)).toBe(expected.join(", "));
        },
      ),
    );
  });
});

describe("scheme, host and port of the client's request", () => {
  test.each(["X-Forwarded-Proto", "x-forwarded-host", "X-Forwarded-Port"])(
    "%s keeps only the value that a trusted proxy added, unless the whole chain is trusted",
    (name) => {
      const chain = ["X-Forwarded-For", "203.0.113.7"];
      const whole = ["X-Forwarded-For", "10.0.0.1"];
      const lines = [name, "evil, b", name, "c, d"];
      expect(leave([name, "a", ...chain], ours)).toEqual([...chain, name, "a"]);
      expect(leave([...chain, ...lines], ours)).toEqual([...chain, name, "d"]);
      expect(leave([...chain, name, " , "], ours)).toEqual(chain);
      expect(leave([...whole, ...lines], ours)).toEqual([...whole, ...lines]);
      expect(leave([...chain, ...lines], everybody)).toEqual([...chain, ...lines]);
    },
  );

  test.each(["X-Forwarded-Proto", "x-forwarded-host", "X-Forwarded-Port"])(
    "%s without X-Forwarded-For keeps the last value, which the peer added",
    (name) => {
      const lines = [name, "evil, b", name, "c, d"];
      for (const trusts of [ours, everybody]) {
        expect(leave(lines, trusts)).toEqual([name, "d"]);
        expect(leave([...lines, "X-Forwarded-For", " , "], trusts)).toEqual([name, "d"]);
        expect(leave([name, "d"], trusts)).toEqual([name, "d"]);
      }
    },
  );
});

test("aliases such as X_Forwarded_For are removed, and other fields are kept", () => {
  const others = ["X-Forwarded-Prefix", "/a, /b", "X_Other", "1", "X-Forwarded", "2", "A", "3"];
  const aliases = [
    "X_Forwarded_For",
    "10.0.0.1",
    "x-forwarded_proto",
    "https",
    "X_FORWARDED-X",
    "1",
  ];
  for (const trusts of [ours, everybody]) {
    expect(leave([...aliases, ...others], trusts)).toEqual(others);
  }
});

describe("Forwarded", () => {
  test.each([
    ["for=6.6.6.6, for=203.0.113.7", "for=203.0.113.7"],
    [
      "for=6.6.6.6;host=evil, for=203.0.113.7;proto=https,for=10.0.0.2",
      "for=203.0.113.7;proto=https, for=10.0.0.2",
    ],
    [
      'for=6.6.6.6, For="[2001:db8::1]:4711", FOR="[fd00::1]:_p"',
      'For="[2001:db8::1]:4711", FOR="[fd00::1]:_p"',
    ],
    ["for=10.0.0.9, for=unknown, for=10.0.0.2", "for=unknown, for=10.0.0.2"],
    ["for=10.0.0.9, for=_hidden;by=_x, for=10.0.0.2", "for=_hidden;by=_x, for=10.0.0.2"],
    ["for=6.6.6.6, proto=https, for=10.0.0.2", "proto=https, for=10.0.0.2"],
    ["for=10.0.0.1 ; proto=http;, ;for=10.0.0.2,, ;", "for=10.0.0.1 ; proto=http;, ;for=10.0.0.2"],
    // A comma, semicolon or escaped quote inside a quoted string does not separate.
    ['for="6.6.6.6, for=10.0.0.1", for=10.0.0.2', 'for="6.6.6.6, for=10.0.0.1", for=10.0.0.2'],
    [
      'for=6.6.6.6, for="203.0.113.7";ext="a\\", b;c", for=10.0.0.2',
      'for="203.0.113.7";ext="a\\", b;c", for=10.0.0.2',
    ],
    ['for=6.6.6.6, for="10.0.0.\\1"', 'for=6.6.6.6, for="10.0.0.\\1"'],
    ['for=6.6.6.6, for="\\203.0.113.7"', 'for="\\203.0.113.7"'],
  ])("of the chain %s, %s is kept", (value, left) => {
    rfc("9110-5.6.4-quoted-pair");
    expect(cut("Forwarded", [value])).toBe(left);
  });

  test("in several lines is read as one list", () => {
    expect(cut("forwarded", ["for=6.6.6.6", "for=203.0.113.7", "for=10.0.0.2"])).toBe(
      "for=203.0.113.7, for=10.0.0.2",
    );
  });

  test.each([
    'for="6.6.6.6, for=203.0.113.7',
    "for=6.6.6.6, for=[2001:db8::1]",
    "for=1.2.3.4:80",
    "for=1.2.3.4 proto=https",
    "for, for=10.0.0.1",
    "for=, for=10.0.0.1",
    "for = 1.2.3.4",
    "for=1.2.3.4;for=10.0.0.1",
    "for=1.2.3.4;FOR=10.0.0.1",
    'for="1.2.3.4"x',
    'for="1.2.3.4\\"',
    "=x",
    "for=1.2.3.4;@",
    "",
    " , ;",
  ])("%j is removed as a whole", (value) => {
    for (const trusts of [ours, everybody])
      expect(cut("Forwarded", [value], trusts)).toBeUndefined();
  });

  test("is kept completely when every address is trusted", () => {
    const value = 'for=unknown, proto=https, for="[::1]:80"';
    expect(cut("Forwarded", [value], everybody)).toBe(value);
  });

  test("is cut in the same way as by a simple reference implementation, also with quoted values", () => {
    const trusted = ["10.0.0.1", "10.0.0.2:81", "[fd00::1]:81"];
    const others = ["203.0.113.7", "[2001:db8::1]", "unknown", "_x", '"', ", for=10.0.0.1", "a\\;"];
    const node = fc.constantFrom(...trusted, ...trusted, ...others);
    const quote = (text: string): string => `"${text.replaceAll(/["\\]/g, "\\$&")}"`;
    const element = fc.record({
      node,
      before: fc.constantFrom("", "proto=https;", 'x=",";'),
      after: fc.constantFrom("", ";by=_a", '; host="a, b;c=\\""'),
    });
    fc.assert(
      fc.property(fc.array(element, { minLength: 1, maxLength: 6 }), (elements) => {
        const texts = elements.map((each) => `${each.before}for=${quote(each.node)}${each.after}`);
        const client = elements.findLastIndex((each) => !trusted.includes(each.node));
        expect(cut("Forwarded", [texts.join(", ")])).toBe(
          texts.slice(Math.max(client, 0)).join(", "),
        );
      }),
    );
  });

  test.each([
    ["spaces", `${" ".repeat(200_000)}@`],
    ["spaces after a pair", `for=a${" ".repeat(200_000)}x`],
    ["an open quote", `for="${"\\a".repeat(100_000)}`],
    ["a token", "a".repeat(200_000)],
    ["empty elements", `${", ".repeat(100_000)}@`],
    ["empty parameters", `${"; ".repeat(100_000)}@`],
  ])("is read in linear time if it repeats %s many times", (_, value) => {
    // Quadratic time would exceed the timeout of the test.
    expect(cut("Forwarded", [value])).toBeUndefined();
  });
});
