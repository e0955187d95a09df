import { BlockList, isIP } from "node:net";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { RecentMap } from "../../../src/recentmap.ts";
import { checkRange, unmapAddress } from "../../../src/target/address.ts";
import { compileTrust } from "../../../src/request/trust.ts";

const trusts = (ranges: string[], address: string | undefined): boolean | undefined =>
  compileTrust(ranges)?.(address);

describe("ranges", () => {
  test.each([
    ["10.0.0.0/8", "10.255.0.1", "11.0.0.0"],
    ["10.128.0.0/9", "10.129.9.9", "10.127.255.255"],
    ["192.0.2.128/25", "192.0.2.128", "192.0.2.127"],
    ["192.0.2.4", "192.0.2.4", "192.0.2.5"],
    ["0.0.0.0/0", "203.0.113.7", "2001:db8::1"],
    ["fd00::/8", "fdff::1", "fe00::1"],
    ["2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"],
    ["2001:db8::1", "2001:DB8:0:0:0:0:0:1", "2001:db8::2"],
    ["::/1", "7fff::", "8000::"],
    ["::ffff:10.0.0.0/104", "10.1.1.1", "11.1.1.1"],
    ["10.0.0.0/8", "::ffff:10.1.1.1", "::ffff:11.1.1.1"],
    ["::ffff:0:0/96", "203.0.113.7", "2001:db8::1"],
    ["::fffe:0:0/95", "203.0.113.7", "::fffd:1.2.3.4"],
    ["10.0.0.0/8", "::ffff:a01:101", "::a01:101"],
    ["fe80::/10", "fe80::1%eth0", "fec0::1%eth0"],
    ["fe80::1%eth0", "fe80::1%eth0", "fe80::1%eth1"],
    ["fe80::%eth0/64", "fe80::2%eth0", "fe80::2"],
    ["loopback", "127.9.9.9", "128.0.0.1"],
    ["loopback", "::1", "::2"],
    ["linklocal", "169.254.169.254", "169.253.0.1"],
    ["uniquelocal", "172.31.0.1", "172.32.0.1"],
    ["uniquelocal", "fc00::1", "fe80::1"],
  ])("%s contains %s and not %s", (range, inside, outside) => {
    expect(checkRange(range)).toBeUndefined();
    expect(trusts([range], inside)).toBe(true);
    expect(trusts([range], outside)).toBe(false);
    expect(trusts(["198.51.100.1", range, "198.51.100.2"], inside)).toBe(true);
  });

  test("ranges are read correctly even if there are more of them than the cache holds", () => {
    for (let i = 0; i < 500; i++) {
      const entry = `10.${i >> 8}.${i & 255}.0/24`;
      expect(checkRange(entry)).toBeUndefined();
      expect(trusts([entry], entry.replace("0/24", "7"))).toBe(true);
      expect(trusts([entry], "192.0.2.1")).toBe(false);
    }
    // An invalid entry is refused again, although it is in the cache.
    for (let i = 0; i < 2; i++) {
      expect(trusts(["10.0.0.1/8"], "192.0.2.1")).toBe(false);
      expect(checkRange("10.0.0.1/8")).toMatch(/is not a range/);
    }
  });

  test.each([
    "10.0.0.0/33",
    "::/129",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "10.0.0.0/8/8",
    "10.0.0.0/255.0.0.0",
    "10.0.0",
    "10.0.0.256",
    "010.0.0.1",
    "0x7f.0.0.1",
    "1.2.3.4%eth0",
    "1.2.3.4:80",
    "[::1]",
    ":",
    ":::",
    "1::2::3",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1::2:3:4:5:6:7:8",
    ":1:2:3:4:5:6:7",
    "12345::",
    "1.2.3.4::",
    "::1.2.3.4:5",
    "fe80::1%",
    "localhost",
    "constructor",
    " 10.0.0.1",
    "*",
    "/8",
    "",
  ])("%j is not a range", (entry) => {
    expect(checkRange(entry)).toBe(`${JSON.stringify(entry)} is not an address or a CIDR range`);
    expect(trusts(["0.0.0.0/0", "::/0"], entry)).toBe(false);
  });

  test.each([
    ["10.0.0.1/8", "10.0.0.0/8"],
    ["192.0.2.129/25", "192.0.2.128/25"],
    ["192.0.2.1/0", "0.0.0.0/0"],
    ["2001:DB8::1/32", "2001:db8::/32"],
    ["2001:db8:ffff::/33", "2001:db8:8000::/33"],
    ["fe80::1%eth0/64", "fe80::%eth0/64"],
  ])("%s is refused, with %s suggested", (entry, network) => {
    const [address] = entry.split("/");
    expect(checkRange(entry)).toBe(
      `"${entry}" is not a range: use "${network}", or "${address}" for that address alone`,
    );
    expect(checkRange(network)).toBeUndefined();
  });

  test("an empty list contains no address, and an unknown address is in no range", () => {
    expect(trusts([], "127.0.0.1")).toBe(false);
    expect(trusts(["0.0.0.0/0", "::/0"], undefined)).toBe(false);
  });
});

describe("compared with node:net", () => {
  const word = fc.oneof(
    fc.constantFrom(0, 1, 0x7fff, 0x8000, 0xffff),
    fc.integer({ min: 0, max: 0xffff }),
  );
  const byte = fc.oneof(fc.constantFrom(0, 127, 128, 255), fc.integer({ min: 0, max: 255 }));
  const v4 = fc.array(byte, { minLength: 4, maxLength: 4 }).map((bytes) => bytes.join("."));
  const v6 = fc
    .array(word, { minLength: 8, maxLength: 8 })
    .map((words) => words.map((each) => each.toString(16)).join(":"));
  const spelled = v6.map((text) => new URL(`http://[${text}]`).hostname.slice(1, -1));
  const mapped = v4.map((text) => `::ffff:${text}`);
  const address = fc.oneof(v4, v6, spelled, mapped);

  /** Creates an address that shares a prefix with another one, so that both sides of a range's border are tested. */
  const near = (base: string, flipped: number): string => {
    if (!base.includes(":")) {
      const bytes = base.split(".").map(Number);
      const at = flipped % 32;
      return bytes.map((each, i) => (i === at >> 3 ? each ^ (128 >> (at & 7)) : each)).join(".");
    }
    const full = base.includes("::") ? undefined : base.split(":");
    if (full?.length !== 8) return base;
    return full
      .map((each, i) => {
        const bit = i === flipped >> 4 ? 0x8000 >> (flipped & 15) : 0;
        return (Number.parseInt(each, 16) ^ bit).toString(16);
      })
      .join(":");
  };

  const familyOf = (text: string): "ipv4" | "ipv6" => (isIP(text) === 4 ? "ipv4" : "ipv6");

  test("the same addresses are in the same ranges", () => {
    const bits = fc.integer({ min: 0, max: 128 });
    fc.assert(
      fc.property(address, address, bits, bits, (base, other, length, flipped) => {
        const prefix = familyOf(base) === "ipv4" ? length % 33 : length;
        const oracle = new BlockList();
        oracle.addSubnet(base, prefix, familyOf(base));
        for (const each of [base, other, near(base, flipped)]) {
          const expected = oracle.check(each, familyOf(each));
          expect(trusts([`${base}/${prefix}`], each), `${each} in ${base}/${prefix}`).toBe(
            expected,
          );
        }
      }),
      { numRuns: 2000 },
    );
  });

  test("the same texts are addresses", () => {
    const piece = fc.constantFrom("1", "0", "ffff", "256", "255", ":", "::", ".", "%e", "g", "/");
    const text = fc.oneof(
      fc.array(piece, { maxLength: 16 }).map((pieces) => pieces.join("")),
      address,
    );
    fc.assert(
      fc.property(text, (each) => {
        if (each.includes("/")) return;
        expect(checkRange(each) === undefined, each).toBe(isIP(each) !== 0);
      }),
      { numRuns: 5000 },
    );
  });
});

describe("compileTrust", () => {
  test("true trusts every peer, also one with an unknown address, and false trusts none", () => {
    const everybody = compileTrust(true);
    for (const each of ["10.0.0.1", "unknown", "_hidden", undefined]) {
      expect(everybody?.(each)).toBe(true);
    }
    expect(compileTrust(false)).toBeUndefined();
  });

  test("a predicate is called only with valid addresses", () => {
    const predicate = vi.fn((address: string) => address.startsWith("10."));
    const asked = compileTrust(predicate);
    expect(asked?.("10.0.0.1")).toBe(true);
    expect(asked?.("::ffff:10.0.0.2")).toBe(true);
    expect(asked?.("11.0.0.1")).toBe(false);
    for (const none of ["10.evil", "10.0.0.1, 10.0.0.2", "unknown", "", undefined]) {
      expect(asked?.(none)).toBe(false);
    }
    expect(predicate.mock.calls.flat()).toEqual(["10.0.0.1", "10.0.0.2", "11.0.0.1"]);
  });

  test("a predicate that returns a promise is refused, and the rejection of the promise is handled", () => {
    const late = (async () => {
      throw new Error("late");
    }) as unknown as (address: string) => boolean;
    expect(() => compileTrust(late)?.("10.0.0.1")).toThrow(/`trustProxy`: return the value itself/);
  });

  test("a predicate that returns a promise of another library is refused", () => {
    // oxlint-disable-next-line unicorn/no-thenable
    const thenable = { then: () => {} } as unknown as boolean;
    expect(() => compileTrust(() => thenable)?.("10.0.0.1")).toThrow(/return the value itself/);
  });

  test("a list of 101 ranges is parsed only once, although a generation of the cache holds only 100", () => {
    const entries = Array.from({ length: 101 }, (_, i) => `2001:db8:${i.toString(16)}::/48`);
    const set = vi.spyOn(RecentMap.prototype, "set");
    try {
      for (const entry of entries) expect(checkRange(entry)).toBeUndefined();
      const parsed = new Map(set.mock.calls);
      expect([...parsed.keys()]).toEqual(entries);
      set.mockClear();
      for (const entry of entries) expect(checkRange(entry)).toBeUndefined();
      // Ranges of the older generation are moved to the younger one, as the same objects.
      for (const [entry, ranges] of set.mock.calls) expect(ranges).toBe(parsed.get(entry));
    } finally {
      set.mockRestore();
    }
  });

  test("changes of a list after the call of compileTrust have no effect", () => {
    const list = ["10.0.0.1"];
    const compiled = compileTrust(list);
    list.push("10.0.0.2");
    expect(compiled?.("10.0.0.2")).toBe(false);
  });
});

test.each([
  ["::ffff:192.0.2.7", "192.0.2.7"],
  ["::FFFF:192.0.2.7", "192.0.2.7"],
  ["192.0.2.7", "192.0.2.7"],
  ["2001:db8::7", "2001:db8::7"],
])("unmapAddress converts %j to %j", (shown, address) => {
  expect(unmapAddress(shown)).toBe(address);
});
