import { describe, expect, test } from "vitest";
import {
  cleanRequest,
  cleanResponse,
  getHeader,
  NameSet,
  REQUEST_ASSERTIONS,
  REQUEST_DROPPED,
  toHeaderList,
  toHeaders,
  withoutNames,
} from "../src/fields/headers.ts";
import { proxyError } from "./_fakes.ts";

const dropped = new NameSet([...REQUEST_DROPPED, ...REQUEST_ASSERTIONS]);

describe("NameSet", () => {
  const names = new NameSet(["cookie", "X-Real-IP", "x-forwarded-"]);

  test("a set on top of another has its names too, and leaves it as it is", () => {
    const more = new NameSet(["Accept", "x-other-"], names);
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
  ])("has not %j", (name) => expect(names.has(name)).toBe(false));
});

describe("cleanRequest", () => {
  test("keeps order, case and duplicates of what goes through, and says what it took", () => {
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
    ];
    expect(cleanRequest(raw, dropped)).toEqual({
      headers: ["B", "1", "a", "2", "b", "3"],
      host: "a.test:80",
      contentLength: 5,
    });
  });

  test.each(REQUEST_DROPPED)("drops %s, however it is written", (name) => {
    const value = { "content-length": "0", "transfer-encoding": "chunked" }[name] ?? "x";
    for (const spelling of [name, name.toUpperCase(), name.replaceAll("-", "_")]) {
      expect(cleanRequest([spelling, value, "kept", "1"], dropped).headers).toEqual(["kept", "1"]);
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
  ])("drops %s unless the peer is trusted or the name is kept", (name) => {
    const raw = [name, "x"];
    expect(cleanRequest(raw, dropped).headers).toEqual([]);
    expect(cleanRequest(raw, new NameSet(REQUEST_DROPPED)).headers).toEqual(raw);
    expect(cleanRequest(raw, dropped, new NameSet([name])).headers).toEqual(raw);
  });

  test.each([
    ["close, X-Secret", ["x-secret", "1"], []],
    ["X-SECRET ,\tx-other", ["X-Secret", "1", "X_Other", "2"], []],
    ["x_secret", ["X-Secret", "1"], []],
    ["keep-alive, upgrade, te, ,", ["x-secret", "1"], ["x-secret", "1"]],
    // U+00A0 is a byte of an option, which then is no field name.
    ["X-A\xa0,\tX-B\t", ["X-A", "1", "X-B", "2"], ["X-A", "1"]],
  ])("Connection: %s", (connection, raw, left) => {
    expect(cleanRequest(["Connection", connection, ...raw], dropped).headers).toEqual(left);
    expect(
      cleanRequest([...raw, "Connection", "close", "connection", connection], dropped).headers,
    ).toEqual(left);
  });

  test("a forwarding field that is nominated is dropped even where it is kept", () => {
    const raw = ["Connection", "x-forwarded-for", "X-Forwarded-For", "1.2.3.4"];
    expect(cleanRequest(raw, dropped, new NameSet(["x-forwarded-for"])).headers).toEqual([]);
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
  ])("refuses %j", (raw) => {
    expect(() => cleanRequest(raw, dropped)).toThrow(proxyError("http_request_error", 400));
  });

  test("tells of Upgrade what the client said, and drops it", () => {
    const raw = ["Upgrade", "h2c", "x-upgrade", "websocket", "upgrade", "websocket"];
    expect(cleanRequest(raw, dropped)).toMatchObject({
      headers: ["x-upgrade", "websocket"],
      upgrade: "h2c,websocket",
    });
  });

  test("refuses a transfer coding that no server undoes", () => {
    expect(() => cleanRequest(["Transfer-Encoding", "gzip, chunked"], dropped)).toThrow(
      proxyError("http_request_error", 501),
    );
    expect(cleanRequest(["transfer-encoding", "Chunked"], dropped).headers).toEqual([]);
  });
});

describe("cleanResponse", () => {
  test("drops what is about the connection, keeps the rest as it is", () => {
    const raw = [
      "Connection",
      "keep-alive, X-Hop",
      "Keep-Alive",
      "timeout=5",
      "X-Hop",
      "1",
      "Alt-Svc",
      "h3",
      "Proxy-Authenticate",
      "x",
      "Set-Cookie",
      "a",
      "Set-Cookie",
      "b",
      "ETag",
      '"x"',
      "Content-Length",
      "5",
    ];
    expect(cleanResponse(200, raw)).toEqual([
      "Set-Cookie",
      "a",
      "Set-Cookie",
      "b",
      "ETag",
      '"x"',
      "Content-Length",
      "5",
    ]);
  });

  test.each([
    [200, ["Content-Length", "5", "Transfer-Encoding", "chunked"], []],
    [200, ["transfer-encoding", "Chunked", "A", "1", "content-length", "5"], ["A", "1"]],
    [204, ["Content-Length", "0", "A", "1"], ["A", "1"]],
    [205, ["Content-Length", "5", "A", "1"], ["A", "1"]],
    [304, ["Content-Length", "5"], ["Content-Length", "5"]],
  ])("a length that is not true goes: %d %j", (status, raw, left) => {
    expect(cleanResponse(status, raw)).toEqual(left);
  });

  test("refuses a transfer coding that is still on the body", () => {
    expect(() => cleanResponse(200, ["Transfer-Encoding", "gzip, chunked"])).toThrow(
      proxyError("http_response_transfer_coding", 502),
    );
  });
});

describe("lists", () => {
  test("withoutNames, getHeader", () => {
    expect(withoutNames(["A", "1", "b", "2", "a", "3"], new NameSet(["a"]))).toEqual(["b", "2"]);
    expect(getHeader(["X-A", "1", "x-a", "2"], "x-a")).toBe("1");
    expect(getHeader(["X-A", "1"], "x-b")).toBeUndefined();
  });

  test("several Set-Cookie stay several through Headers", () => {
    const list = ["set-cookie", "a=1", "set-cookie", "b=2", "x", "1"];
    expect(toHeaderList(toHeaders(list))).toEqual(list);
    expect(toHeaders(list).getSetCookie()).toEqual(["a=1", "b=2"]);
  });
});
