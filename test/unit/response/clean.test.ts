import { describe, expect, test, vi } from "vitest";
import { cleanResponse, cleanResponseHeaders } from "../../../src/response/clean.ts";
import type { HeaderList } from "../../../src/fields/headers.ts";
import { fakeRequest, fakeResponse, proxyError } from "../../helpers/fakes.ts";

function cleanHeaders(status: number, headers: HeaderList): HeaderList {
  return cleanResponseHeaders(fakeResponse({ status, headers }), fakeRequest());
}

describe("cleanResponseHeaders", () => {
  test("drops fields about the connection, and keeps the others unchanged", () => {
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
    expect(cleanHeaders(200, raw)).toEqual([
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
  ])("drops a Content-Length only if it may be wrong (status %d: %j)", (status, raw, left) => {
    expect(cleanHeaders(status, raw)).toEqual(left);
  });

  test("refuses a response whose body still has a transfer coding", () => {
    expect(() => cleanHeaders(200, ["Transfer-Encoding", "gzip, chunked"])).toThrow(
      proxyError("http_response_transfer_coding", 502),
    );
  });
});

describe("the rewriting function", () => {
  test.each(["Location", "content-location", "Refresh", "set-cookie"])(
    "is called once for a response with %s, with the first and the last upstream request, and the client's mount",
    (name) => {
      const [request, followed] = [fakeRequest(), fakeRequest({ path: "/followed" })];
      const rewrite = vi.fn((headers: HeaderList) => void (headers[1] = "rewritten"));
      const received = { ...fakeResponse({ headers: [name, "a", name, "b"] }), request: followed };
      const client = { mount: "/api" };
      const { headers } = cleanResponse(received, "GET", request, rewrite, client);
      expect(headers).toEqual([name, "rewritten", name, "b"]);
      expect(rewrite.mock.calls).toEqual([[headers, request, followed, client]]);
    },
  );

  test("is not called for a response without any field that it rewrites", () => {
    const rewrite = vi.fn();
    const headers = ["Content-Type", "text/plain", "Expires", "0", "Connection", "location"];
    cleanResponse(fakeResponse({ headers }), "GET", fakeRequest(), rewrite);
    expect(rewrite).not.toHaveBeenCalled();
  });
});
