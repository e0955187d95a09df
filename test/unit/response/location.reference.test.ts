import { expect, test } from "vitest";
import { parseReference } from "../../../src/response/location.ts";

test.each([
  ["../b?c#d", "http://a.test/b?c#d"],
  ["//b.test", "http://b.test/"],
  ["\\\\b.test", "http://b.test/"],
  ["/\u00c3\u00a9", "http://a.test/%c3%a9"],
  ["/\u00ff?\u00e9", "http://a.test/%ff?%e9"],
  ["mailto:a@b.test", "mailto:a@b.test"],
])("parseReference resolves %j to %s", (reference, href) => {
  expect(parseReference(reference, "http://a.test/x/y")?.href).toBe(href);
});

test("parseReference returns null for an invalid URL", () => {
  expect(parseReference("http://", "http://a.test")).toBeNull();
  expect(parseReference("/a")).toBeNull();
});
