import { describe, expect, test } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import { BytesBody } from "../../src/body/bytes.ts";
import { clientGone, ProxyError, type ProxyErrorCode, toProxyError } from "../../src/error.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";

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
  ["proxy_loop_detected", 502],
];

describe("ProxyError", () => {
  test.each(STATUSES)("%s has status %d", (code, status) => {
    rfc("9110-15.5.20-421");
    const error = new ProxyError(code);
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: "ProxyError", code, status, message: code });
    expect("cause" in error).toBe(false);
  });

  test("keeps the status, message and cause that it is given", () => {
    const cause = new Error("connect ECONNREFUSED 10.0.0.1:80");
    const error = new ProxyError("http_request_error", { status: 413, message: "big", cause });
    expect(error).toMatchObject({ status: 413, message: "big", cause });
  });

  test.each([200, 399, 600, Number.NaN])(
    "refuses the status %d, which no error can have, and unknown codes",
    (status) => {
      expect(() => new ProxyError("dns_error", { status })).toThrow(RangeError);
      expect(() => new ProxyError("no_such_code" as ProxyErrorCode)).toThrow(RangeError);
    },
  );

  test("`clientGone` creates an error with status 499", () => {
    expect(clientGone()).toMatchObject({ code: "http_request_error", status: 499 });
    expect(clientGone("why").cause).toBe("why");
  });
});

describe("toProxyError", () => {
  test("returns a ProxyError unchanged", () => {
    const error = new ProxyError("dns_error");
    expect(toProxyError(error)).toBe(error);
  });

  test.each([new RangeError("bad"), "bad"])("reports %s as an internal error", (thrown) => {
    const error = toProxyError(thrown);
    expect(error).toMatchObject({ code: "proxy_internal_error", status: 500, message: "bad" });
    expect(error.cause).toBe(thrown);
  });
});

describe("toErrorResponse", () => {
  const secret = new ProxyError("connection_refused", {
    message: "connect ECONNREFUSED 10.0.0.1:80",
    cause: new Error("10.0.0.1"),
  });

  test("names the type of the error, but neither its message nor its cause", () => {
    const reply = toErrorResponse(secret, "GET");
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

  test("names the proxy in Proxy-Status by its pseudonym, in quotes if the pseudonym is not a token", () => {
    const named = (name: string): string | undefined =>
      toErrorResponse(secret, "GET", name).headers[5];
    expect(named("edge")).toBe("edge; error=connection_refused");
    expect(named("1.edge")).toBe('"1.edge"; error=connection_refused');
  });

  test("names the supported HTTP versions in the body of a 505", () => {
    rfc("9110-15.6.6-505");
    const error = new ProxyError("http_request_error", { status: 505 });
    const { body } = toErrorResponse(error, "GET");
    expect(new TextDecoder().decode(body?.whole())).toBe(
      "HTTP Version Not Supported: http_request_error\nThe supported versions are HTTP/1.0 and HTTP/1.1.\n",
    );
  });

  test("sends Retry-After if the error has `retryAfter`", () => {
    const late = new ProxyError("destination_unavailable", { retryAfter: 5 });
    expect(toErrorResponse(late, "GET").headers.slice(-2)).toEqual(["Retry-After", "5"]);
  });

  test("has no body in the response to HEAD, but the Content-Length of the body for GET", () => {
    const { body, headers } = toErrorResponse(secret, "HEAD");
    expect(body).toBeNull();
    expect(headers).toEqual(toErrorResponse(secret, "GET").headers);
  });

  test("has the reason phrase Request Timeout for status 408", () => {
    const error = new ProxyError("http_request_error", { status: 408 });
    expect(toErrorResponse(error, "GET").statusText).toBe("Request Timeout");
  });

  test("has an empty reason phrase for an unknown status", () => {
    const error = new ProxyError("http_request_error", { status: 418 });
    const { statusText, body } = toErrorResponse(error, "GET");
    expect(statusText).toBe("");
    expect(new TextDecoder().decode(body?.whole())).toBe("418: http_request_error\n");
  });
});
