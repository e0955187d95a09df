import { expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { addVia } from "../../../src/request/outgoing.ts";
import { proxyError } from "../../helpers/fakes.ts";

function via(...values: string[]): string | undefined {
  const headers = values.flatMap((value) => ["Via", value]);
  addVia(headers, "Edge", "1.1");
  expect(headers).toHaveLength(2);
  return headers[1];
}

test("Via is created with the received version", () => {
  const headers = ["A", "1"];
  addVia(headers, "edge", "2.0");
  expect(headers).toEqual(["A", "1", "Via", "2.0 edge"]);
});

test("the proxy is appended to an existing Via", () => {
  const headers = ["via", "1.0 a", "B", "1", "Via", "1.1 c"];
  addVia(headers, "fetchway", "1.1");
  expect(headers).toEqual(["B", "1", "Via", "1.0 a, 1.1 c, 1.1 fetchway"]);
});

test.each([
  [["1.1 edge"]],
  [["1.1 EDGE (a comment)"]],
  [["HTTP/1.0 edge(comment)"]],
  [["1.0 a, 1.1\tedge , 1.1 c"]],
  [["1.0 a", "2 edge"]],
])("a request with Via %j has already passed this proxy, and gets 502", (values) => {
  expect(() => via(...values)).toThrow(proxyError("proxy_loop_detected", 502));
});

test.each([
  [["1.1 edges"], "1.1 edges, 1.1 Edge"],
  [["1.1 edge.example", "1.1 edge:80"], "1.1 edge.example, 1.1 edge:80, 1.1 Edge"],
  [["edge"], "edge, 1.1 Edge"],
  [["1.1 a (edge)"], "1.1 a (edge), 1.1 Edge"],
  [["", " "], "1.1 Edge"],
  // U+00A0 is not white space in header fields (RFC 9110 §5.6.3).
  [["\xa0"], "\xa0, 1.1 Edge"],
  [["1.1 edge\xa0"], "1.1 edge\xa0, 1.1 Edge"],
  [["\xa01.1 edges"], "\xa01.1 edges, 1.1 Edge"],
])("a request with Via %j has not passed this proxy, which is appended", (values, expected) => {
  rfc("9110-5.6.1.1-empty-sent");
  expect(via(...values)).toBe(expected);
});
