import { describe, expect, test } from "vitest";
import {
  getHeader,
  NameSet,
  toHeaderList,
  toHeaders,
  withoutNames,
} from "../src/fields/headers.ts";

describe("NameSet", () => {
  const names = new NameSet(["cookie", "X-Real-IP", "x-forwarded-"]);

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
  ])("has %s", (name) => expect(names.has(name)).toBe(true));

  test.each([
    "",
    "cookies",
    "cooki",
    "set-cookie",
    "x-real-ip2",
    "x-forwarded",
    "y-forwarded-for",
    "forwarded",
  ])("does not have %j", (name) => expect(names.has(name)).toBe(false));
});

describe("lists", () => {
  test("withoutNames, getHeader", () => {
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
