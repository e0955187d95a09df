import { describe, expect, test } from "vitest";
import {
  fromHttp2Fields,
  MAX_FIELD_BYTES,
  sendFields,
  toFieldObject,
  toHttp2Fields,
  toJoinedFields,
  toRegularFields,
} from "../../../../runtimes/sockets/http2/http2fields.ts";
import { parseTarget } from "../../../../src/target/target.ts";
import type { UpstreamRequest } from "../../../../src/transport/message.ts";
import { rfc } from "../../../conformance/rfc.ts";

function request(change: Partial<UpstreamRequest> = {}): UpstreamRequest {
  return {
    upstream: parseTarget("https://api.test:8443"),
    method: "GET",
    path: "/p?q",
    headers: [],
    host: undefined,
    body: null,
    contentLength: undefined,
    ...change,
  };
}

const PSEUDO = [
  ":method",
  "GET",
  ":scheme",
  "https",
  ":authority",
  "api.test:8443",
  ":path",
  "/p?q",
];

describe("toHttp2Fields", () => {
  test("pseudo-header fields come first, and all names are in lower case", () => {
    rfc("9113-8.2-lowercase", "9113-8.3.1-authority-sent", "9113-8.3.1-mandatory");
    const headers = ["X-A", "1", "x-a", "2", "Cookie", "a=1; b=2"];
    expect(toHttp2Fields(request({ headers }), undefined)).toEqual([
      ...PSEUDO,
      "x-a",
      "1",
      "x-a",
      "2",
      "cookie",
      "a=1; b=2",
    ]);
  });

  test.each(
    "Connection Keep-Alive Proxy-Connection Transfer-Encoding Upgrade HTTP2-Settings Host TE Content-Length".split(
      " ",
    ),
  )("`toHttp2Fields` leaves out %s", (name) => {
    rfc("9113-8.2.2-connection", "9113-8.2.2-te", "9113-8.2.2-translated");
    expect(toHttp2Fields(request({ headers: [name, "x"] }), undefined)).toEqual(PSEUDO);
  });

  test("the members `host`, `acceptsTrailers` and `trailer`, and the length, become fields", () => {
    rfc("9113-8.2.2-te", "9113-8.3.1-authority-sent");
    const more = request({ host: "h.test", acceptsTrailers: true, trailer: "x-sum" });
    const list = toHttp2Fields(more, 7);
    expect(list[list.indexOf(":authority") + 1]).toBe("h.test");
    expect(list.slice(8)).toEqual(["te", "trailers", "trailer", "x-sum", "content-length", "7"]);
  });

  test("RFC 9113 §8.3.1: `:path` of an OPTIONS request for the whole server is *", () => {
    rfc("9113-8.3.1-path");
    const list = toHttp2Fields(request({ method: "OPTIONS", path: "*" }), undefined);
    expect(list).toEqual(PSEUDO.with(1, "OPTIONS").with(7, "*"));
  });

  test("RFC 9113 §8.2.1: white space around values is removed", () => {
    const headers = ["x-a", " \ta b\t ", "x-b", "", "x-c", "  "];
    expect(toHttp2Fields(request({ headers }), undefined).slice(8)).toEqual([
      "x-a",
      "a b",
      "x-b",
      "",
      "x-c",
      "",
    ]);
  });

  test.each<[string, Partial<UpstreamRequest>, number]>([
    ["CONNECT", { method: "CONNECT" }, 501],
    ["a method that is no token", { method: "GE T" }, 501],
    ["a path with a space", { path: "/a b" }, 400],
    ["an empty path", { path: "" }, 400],
    ["a name that is no token", { headers: ["x a", "1"] }, 400],
    ["a pseudo-header field", { headers: [":path", "/other"] }, 400],
    ["a value with a line end", { headers: ["x-a", "1\r\nx-b: 2"] }, 400],
  ])("`toHttp2Fields` refuses %s", (_, change, status) => {
    rfc("9113-8.3.1-mandatory", "9113-8.3.1-path", "9113-10.3-translation");
    expect(() => toHttp2Fields(request(change), undefined)).toThrow(
      expect.objectContaining({ code: "http_request_error", status }),
    );
  });
});

describe("fromHttp2Fields", () => {
  test("order and repeated fields are kept, and pseudo-header fields are left out", () => {
    const raw = [":status", "200", "b", "1", "a", "2", "b", "3"];
    expect(fromHttp2Fields(raw)).toEqual(["b", "1", "a", "2", "b", "3"]);
  });

  test.each([
    ["x-a", "1\r\n2"],
    ["x-a", "\0"],
    ["x a", "1"],
    ["", "1"],
  ])("`fromHttp2Fields` refuses the field %j: %j", (...field) => {
    expect(() => fromHttp2Fields(field)).toThrow(
      expect.objectContaining({ code: "http_protocol_error" }),
    );
  });

  test("the size of all fields is limited, and each field counts 32 bytes more than its name and value", () => {
    const fits = "v".repeat(MAX_FIELD_BYTES - 3 - 32);
    expect(fromHttp2Fields(["x-a", fits])).toHaveLength(2);
    expect(() => fromHttp2Fields(["x-a", `${fits}v`])).toThrow(
      expect.objectContaining({ code: "http_response_header_section_size" }),
    );
    const many = Array.from({ length: 2 * (MAX_FIELD_BYTES / 34 + 1) }, () => "a");
    expect(() => fromHttp2Fields(many)).toThrow(/./);
  });
});

test("toRegularFields leaves out the fields that HTTP/2 does not have", () => {
  const list = ["Connection", "close", "Content-Length", "3", "Grpc-Status", "0"];
  expect(toRegularFields(list)).toEqual(["grpc-status", "0"]);
});

test("RFC 9113 §8.1: toRegularFields refuses pseudo-header fields, which trailers must not have", () => {
  rfc("9113-8.1-trailers");
  expect(() => toRegularFields([":status", "200"])).toThrow(
    expect.objectContaining({ code: "http_request_error" }),
  );
});

test("an object made of a list of fields keeps repeated fields, and names such as __proto__", () => {
  const list = [
    "set-cookie",
    "a",
    "x",
    "1",
    "set-cookie",
    "b",
    "__proto__",
    "2",
    "x",
    "3",
    "x",
    "4",
  ];
  const fields = toFieldObject(list);
  expect(Object.entries(fields)).toEqual([
    ["set-cookie", ["a", "b"]],
    ["x", ["1", "3", "4"]],
    ["__proto__", "2"],
  ]);
  expect(Object.entries(toJoinedFields(list))).toEqual([
    ["set-cookie", ["a", "b"]],
    ["x", "1, 3, 4"],
    ["__proto__", "2"],
  ]);
});

test("repeated fields that Node does not send twice are joined to one", () => {
  const tried: unknown[] = [];
  const sent = sendFields(["etag", "a", "etag", "b"], (fields) => {
    tried.push(fields);
    if (tried.length > 1) return "sent";
    throw Object.assign(new Error("once"), { code: "ERR_HTTP2_HEADER_SINGLE_VALUE" });
  });
  expect(sent).toBe("sent");
  expect(Object.entries(tried[1] as object)).toEqual([["etag", "a, b"]]);
  const fail = (): never => {
    throw new Error("other");
  };
  expect(() => sendFields([], fail)).toThrow("other");
});
