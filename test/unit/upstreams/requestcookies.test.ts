/** Reading and removing the cookies of a request. */
import { expect, test } from "vitest";
import { cutCookies, readCookies } from "../../../src/upstreams/requestcookies.ts";

test("cookies are read from every field, in order, with any white space around them", () => {
  const headers = [
    "Cookie",
    "a=1; b=2;a=3",
    "x",
    "a=9",
    "cookie",
    "a=4=5",
    "cookie",
    " a = 6 ;xa=7",
  ];
  expect(readCookies(headers, "a")).toEqual(["1", "3", "4=5", "6"]);
  expect(readCookies(headers, "c")).toEqual([]);
  expect(readCookies(["cookie", "a"], "a")).toEqual([]);
});

test.each([
  ["r=1", undefined],
  ["r=1; a=2", "a=2"],
  ["a=2; r=1", "a=2"],
  ["a=1;  b=2; r=1;c=\u00e9", "a=1;  b=2;c=\u00e9"],
  ["r=1; a=1; r=2;r=3", "a=1"],
  ["a=1; r=keep; xr=1; rx=1", "a=1; r=keep; xr=1; rx=1"],
  ["r; ;a=1 ", "r; ;a=1 "],
])("%j without the cookie r is %j", (cookie, left) => {
  const headers = ["x-a", "r=1", "Cookie", cookie, "x-b", "2"];
  cutCookies(headers, "r", (value) => value !== "keep");
  const kept = left === undefined ? [] : ["Cookie", left];
  expect(headers).toEqual(["x-a", "r=1", ...kept, "x-b", "2"]);
});
