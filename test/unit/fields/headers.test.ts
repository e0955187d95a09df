import { describe, expect, test } from "vitest";
import {
  getHeader,
  showHeaders,
  takeHeaders,
  NameSet,
  toHeaderList,
  toHeaders,
  withoutNames,
} from "../../../src/fields/headers.ts";

describe("NameSet", () => {
  const names = new NameSet(["cookie", "X-Real-IP", "x_"], undefined, ["x-forwarded-"]);

  test("a set that extends another set contains the names of that set, and leaves it unchanged", () => {
    const more = new NameSet(["Accept"], names, ["x-other-"]);
    for (const name of ["Cookie", "x-forwarded-for", "accept", "X-Other-1"]) {
      expect(more.has(name)).toBe(true);
    }
    expect(more.has("range")).toBe(false);
    expect(["accept", "x-other-1"].filter((name) => names.has(name))).toEqual([]);
  });

  test.each([
    "cookie",
    "Cookie",
    "COOKIE",
    "x-real-ip",
    "X_Real_IP",
    "x-real_ip",
    "X-Forwarded-For",
    "x_forwarded_for",
    "x-forwarded-x",
    "X.Real.IP",
    "x*forwarded|for",
    "x-",
  ])("contains %s", (name) => expect(names.has(name)).toBe(true));

  test.each([
    "",
    "cookies",
    "cooki",
    "set-cookie",
    "x-real-ip2",
    "x-forwarded",
    "y-forwarded-for",
    "x-foo",
    "xxrealxip",
    "x1real2ip",
    "forwarded",
  ])("does not contain %j", (name) => expect(names.has(name)).toBe(false));
});

describe("header lists", () => {
  test("`withoutNames` removes all fields of a name, and `getHeader` returns the first value", () => {
    expect(withoutNames(["A", "1", "b", "2", "a", "3"], new NameSet(["a"]))).toEqual(["b", "2"]);
    expect(getHeader(["X-A", "1", "x-a", "2"], "x-a")).toBe("1");
    expect(getHeader(["x-a", "1"], "X-A")).toBe("1");
    expect(getHeader(["x-^", "1"], "X-~")).toBeUndefined();
    expect(getHeader(["X-A", "1"], "x-b")).toBeUndefined();
  });

  test("several Set-Cookie fields stay separate through Headers", () => {
    const list = ["set-cookie", "a=1", "set-cookie", "b=2", "x", "1"];
    expect(toHeaderList(toHeaders(list))).toEqual(list);
    expect(toHeaders(list).getSetCookie()).toEqual(["a=1", "b=2"]);
  });
});

describe("showHeaders and takeHeaders", () => {
  const list = ["X-B", "1", "Set-Cookie", "a=b", "X-A", "2", "x-b", "3", "set-cookie", "c=d"];
  const lines = [
    ["set-cookie", "a=b"],
    ["set-cookie", "c=d"],
    ["x-a", "2"],
    ["x-b", "1, 3"],
  ];

  test("shows the fields of its list as any `Headers` does, also to other code of the runtime", () => {
    const headers = showHeaders(list);
    expect(Array.from(headers)).toEqual(lines);
    expect(Array.from(new Headers(headers))).toEqual(lines);
    expect(Array.from(new Response(null, { headers }).headers)).toEqual(lines);
    expect(headers).toBeInstanceOf(Headers);
  });

  test("returns the list itself if nothing was changed", () => {
    const headers = showHeaders(list);
    headers.forEach(() => {});
    expect(() => headers.set("a b", "1")).toThrow(TypeError);
    expect(takeHeaders(headers)).toBe(list);
  });

  test("returns the changed fields after the others, which keep their order, names and lines", () => {
    const before = list.slice();
    const headers = showHeaders(list);
    headers.append("x-a", " 4\t");
    headers.set("X-New", "5");
    headers.delete("x-none");
    const others = list.filter((_, i) => i < 4 || i > 5);
    expect(takeHeaders(headers)).toEqual([...others, "x-a", "2, 4", "X-New", "5"]);
    headers.delete("x-new");
    headers.set("X-A", "6");
    headers.append("Set-Cookie", "e=f");
    const cookies = ["Set-Cookie", "a=b", "Set-Cookie", "c=d", "Set-Cookie", "e=f"];
    const kept = ["X-B", "1", "x-b", "3"];
    expect(takeHeaders(headers)).toEqual([...kept, "X-A", "6", ...cookies]);
    expect(list).toEqual(before);
  });

  test("returns no line of a field that was deleted", () => {
    const headers = showHeaders(list);
    headers.delete("X-B");
    expect(takeHeaders(headers)).toEqual(list.filter((_, i) => i > 1 && i !== 6 && i !== 7));
  });

  test("returns the fields of another `Headers` as `toHeaderList` does", () => {
    expect(takeHeaders(new Headers(lines as [string, string][]))).toEqual(lines.flat());
  });
});
