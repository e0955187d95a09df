import { describe, expect, test } from "vitest";
import { NameSet } from "../../../src/fields/headers.ts";
import { REQUEST_ASSERTIONS, REQUEST_DROPPED } from "../../../src/fields/hopbyhop.ts";
import { cleanRequestHeaders } from "../../../src/request/outgoing.ts";
import { proxyError } from "../../helpers/fakes.ts";

const dropped = new NameSet(REQUEST_DROPPED, REQUEST_ASSERTIONS);

describe("cleanRequestHeaders", () => {
  test("keeps order, case and duplicates of forwarded fields, and returns Host and the length separately", () => {
    const raw = [
      "Host",
      "a.test:80",
      "B",
      "1",
      "a",
      "2",
      "Content-Length",
      "5",
      "b",
      "3",
      "Connection",
      "close",
      "TE",
      "gzip, trailers;q=1",
      "Trailer",
      "x-a",
      "trailer",
      "x-b",
    ];
    expect(cleanRequestHeaders(raw, dropped)).toEqual({
      headers: ["B", "1", "a", "2", "b", "3"],
      host: "a.test:80",
      contentLength: 5,
      connection: "close",
      isChunked: false,
      acceptsTrailers: true,
      trailer: "x-a,x-b",
    });
  });

  test("reads from TE whether the client accepts trailer fields, and not from a field that an option drops", () => {
    const head = cleanRequestHeaders(["xx", "trailers"], new NameSet(["te", "xx"]));
    expect(head).toMatchObject({ headers: [], acceptsTrailers: false });
  });

  test.each(REQUEST_DROPPED)("drops %s in any spelling", (name) => {
    const value = { "content-length": "0", "transfer-encoding": "chunked" }[name] ?? "x";
    const aliases = Array.from("_.!#$%&'*+^|~`", (mark) => name.replaceAll("-", mark));
    for (const spelling of [name, name.toUpperCase(), ...aliases]) {
      expect(cleanRequestHeaders([spelling, value, "kept", "1"], dropped).headers).toEqual([
        "kept",
        "1",
      ]);
    }
  });

  test.each([
    "Forwarded",
    "X-Forwarded-For",
    "x_forwarded_host",
    "X-FORWARDED-ANYTHING",
    "x_real_IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Forwarded",
    "Forwarded-For",
    "Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "X.Forwarded.For",
    "X'Real~IP",
  ])("drops %s unless the peer is trusted or the name is kept", (name) => {
    const raw = [name, "x"];
    expect(cleanRequestHeaders(raw, dropped).headers).toEqual([]);
    expect(cleanRequestHeaders(raw, new NameSet(REQUEST_DROPPED)).headers).toEqual(raw);
    expect(cleanRequestHeaders(raw, dropped, new NameSet([name])).headers).toEqual(raw);
  });

  test.each([
    ["close, X-Secret", ["x-secret", "1"], []],
    ["X-SECRET ,\tx-other", ["X-Secret", "1", "X_Other", "2"], []],
    ["x_secret", ["X-Secret", "1"], []],
    ["keep-alive, upgrade, te, ,", ["x-secret", "1"], ["x-secret", "1"]],
    // U+00A0 is not white space, but part of the connection option. So "X-A\xa0" names no field.
    ["X-A\xa0,\tX-B\t", ["X-A", "1", "X-B", "2"], ["X-A", "1"]],
  ])("drops the fields that Connection names: %s", (connection, raw, left) => {
    expect(cleanRequestHeaders(["Connection", connection, ...raw], dropped).headers).toEqual(left);
    expect(
      cleanRequestHeaders([...raw, "Connection", "close", "connection", connection], dropped)
        .headers,
    ).toEqual(left);
  });

  test("a forwarding field that Connection names is dropped even if its name is kept", () => {
    const raw = ["Connection", "x-forwarded-for", "X-Forwarded-For", "1.2.3.4"];
    expect(cleanRequestHeaders(raw, dropped, new NameSet(["x-forwarded-for"])).headers).toEqual([]);
  });

  test.each([
    [["Host", "a", "host", "a"]],
    [["Host", "a.test/b"]],
    [["Host", "a.test?b"]],
    [["Host", "a@b.test"]],
    [["Host", "a b"]],
    [["Host", "a\\b"]],
    [["Host", "a, b"]],
    [["Content-Length", "1", "content-length", "1"]],
    [["Content-Length", "1, 1"]],
    [["Content-Length", "+1"]],
    [["Content-Length", "1e3"]],
    [["Content-Length", ""]],
    [["Content-Length", "9".repeat(16)]],
  ])("refuses a request with the fields %j", (raw) => {
    expect(() => cleanRequestHeaders(raw, dropped)).toThrow(proxyError("http_request_error", 400));
  });

  test("returns the values of Upgrade, and drops the field", () => {
    const raw = ["Upgrade", "h2c", "x-upgrade", "websocket", "upgrade", "websocket"];
    expect(cleanRequestHeaders(raw, dropped)).toMatchObject({
      headers: ["x-upgrade", "websocket"],
      upgrade: "h2c,websocket",
    });
  });

  test("refuses a transfer coding other than chunked, because the server does not decode it", () => {
    expect(() => cleanRequestHeaders(["Transfer-Encoding", "gzip, chunked"], dropped)).toThrow(
      proxyError("http_request_error", 501),
    );
    const chunked = ["transfer-encoding", "Chunked"];
    expect(cleanRequestHeaders(chunked, dropped).headers).toEqual([]);
    // HTTP/1.0 has no transfer codings (RFC 9112 §6.1).
    const source = { version: () => "1.0" };
    expect(() => cleanRequestHeaders(chunked, dropped, undefined, source)).toThrow(
      proxyError("http_request_error", 400),
    );
  });
});
