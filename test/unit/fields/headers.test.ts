import { describe, expect, test } from "vitest";
import {
  getHeader,
  NameSet,
  toHeaderList,
  toHeaders,
  withoutNames,
} from "../../../src/fields/headers.ts";

describe("NameSet", () => {
  const names = new NameSet(["cookie", "X-Real-IP", "x_"], undefined, ["x-forwarded-"]);

  test("a set that extends another one contains its names, and does not change it", () => {
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
    expect(getHeader(["X-A", "1"], "x-b")).toBeUndefined();
  });

  test("several Set-Cookie fields stay separate through Headers", () => {
    const list = ["set-cookie", "a=1", "set-cookie", "b=2", "x", "1"];
    expect(toHeaderList(toHeaders(list))).toEqual(list);
    expect(toHeaders(list).getSetCookie()).toEqual(["a=1", "b=2"]);
  });
});
