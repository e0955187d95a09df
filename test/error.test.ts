import { describe, expect, test } from "vitest";
import { rfc } from "./conformance/rfc.ts";
import { BytesBody } from "../src/body/bytes.ts";
import {
  clientGone,
  ProxyError,
  type ProxyErrorCode,
  toProxyError,
  toReply,
} from "../src/error.ts";

const STATUSES: [ProxyErrorCode, number][] = [
  ["dns_error", 502],
  ["dns_timeout", 504],
  ["destination_unavailable", 503],
  ["connection_refused", 502],
  ["connection_terminated", 502],
  ["connection_timeout", 504],
  ["connection_read_timeout", 504],
  ["tls_certificate_error", 502],
  ["http_request_error", 400],
  ["http_response_incomplete", 502],
  ["http_response_timeout", 504],
  ["http_protocol_error", 502],
  ["proxy_internal_error", 500],
  ["proxy_loop_detected", 508],
];

describe("ProxyError", () => {
  test.each(STATUSES)("%s answers %d", (code, status) => {
    rfc("9110-15.5.20-421");
    const error = new ProxyError(code);
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: "ProxyError", code, status, message: code });
    expect("cause" in error).toBe(false);
  });

  test("keeps what it is told", () => {
    const cause = new Error("connect ECONNREFUSED 10.0.0.1:80");
    const error = new ProxyError("http_request_error", { status: 413, message: "big", cause });
    expect(error).toMatchObject({ status: 413, message: "big", cause });
  });

  test.each([200, 399, 600, Number.NaN])(
    "has no status %d: no response could have it",
    (status) => {
      expect(() => new ProxyError("dns_error", { status })).toThrow(RangeError);
      expect(() => new ProxyError("no_such_code" as ProxyErrorCode)).toThrow(RangeError);
    },
  );

  test("clientGone is 499", () => {
    expect(clientGone()).toMatchObject({ code: "http_request_error", status: 499 });
    expect(clientGone("why").cause).toBe("why");
  });
});

describe("toProxyError", () => {
  test("leaves a ProxyError as it is", () => {
    const error = new ProxyError("dns_error");
    expect(toProxyError(error)).toBe(error);
  });

  test.each([new RangeError("bad"), "bad"])("takes %s for a fault of a hook's", (thrown) => {
    const error = toProxyError(thrown);
    expect(error).toMatchObject({ code: "proxy_internal_error", status: 500, message: "bad" });
    expect(error.cause).toBe(thrown);
  });
});

describe("toReply", () => {
  const secret = new ProxyError("connection_refused", {
    message: "connect ECONNREFUSED 10.0.0.1:80",
    cause: new Error("10.0.0.1"),
  });

  test("says which kind of error, and nothing else", () => {
    const reply = toReply(secret, "GET");
    const text = "Bad Gateway: connection_refused\n";
    expect(reply).toEqual({
      status: 502,
      statusText: "Bad Gateway",
      headers: [
        ["Content-Type", "text/plain; charset=utf-8"],
        ["Content-Length", String(text.length)],
        ["Proxy-Status", "fetchway; error=connection_refused"],
      ].flat(),
      body: new BytesBody(new TextEncoder().encode(text)),
    });
    expect(JSON.stringify(reply)).not.toContain("10.0.0.1");
  });

  test("says when to try again, where that is known", () => {
    const late = new ProxyError("destination_unavailable", { retryAfter: 5 });
    expect(toReply(late, "GET").headers.slice(-2)).toEqual(["Retry-After", "5"]);
  });

  test("has no body for HEAD, and the length it would have", () => {
    const { body, headers } = toReply(secret, "HEAD");
    expect(body).toBeNull();
    expect(headers).toEqual(toReply(secret, "GET").headers);
  });

  test("does without a reason phrase that it does not know", () => {
    const error = new ProxyError("http_request_error", { status: 418 });
    const { statusText, body } = toReply(error, "GET");
    expect(statusText).toBe("");
    expect(new TextDecoder().decode(body?.whole())).toBe("418: http_request_error\n");
  });
});
