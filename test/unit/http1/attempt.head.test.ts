/** The request heads that the HTTP/1.1 client writes, and those that it refuses to write. */
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { takeWhole } from "../../../src/body/source.ts";
import { assertHead, writeHead, writeHeadEnd } from "../../../src/http1/attempt.ts";
import type { Codec } from "../../../src/http1/codec.ts";
import { portableCodec } from "./_codec.ts";
import type { ProxyError } from "../../../src/error.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import { fakeRequest, type Given } from "../../helpers/fakes.ts";

/** A codec whose new memory contains other data, which must not appear in a head. */
const usedMemory: Codec = {
  ...portableCodec,
  allocate: (length) => new Uint8Array(length).fill(0xee),
};

function headOf(hop: UpstreamRequest, keepAlive: boolean): string {
  const { method, body, contentLength } = hop;
  const bytes = body === null ? new Uint8Array() : takeWhole(body, contentLength);
  assertHead(hop);
  const end = writeHeadEnd(method, bytes?.byteLength ?? contentLength, keepAlive);
  return Buffer.from(writeHead(usedMemory, hop, end)).toString("latin1");
}

function statusOf(changes: Given<UpstreamRequest>): number {
  try {
    headOf(fakeRequest(changes), true);
    return 200;
  } catch (error) {
    return (error as ProxyError).status;
  }
}

test("the request line and the fields of a request are written unchanged, with Host and Connection", () => {
  rfc(
    "9110-7.2-host-first",
    "9110-7.6.1-end-to-end",
    "9110-7.6.1-listed",
    "9112-2.2-extra-crlf",
    "9112-2.2-leading-space-sent",
  );
  const headers = ["X-A", "\xe9 b", "x-a", ""];
  expect(headOf(fakeRequest({ path: "//a?b%20", headers }), true)).toBe(
    "GET //a?b%20 HTTP/1.1\r\nHost: up.test:4000\r\nX-A: \xe9 b\r\nx-a: \r\nConnection: keep-alive\r\n\r\n",
  );
  expect(headOf(fakeRequest({ host: "other.test" }), false)).toBe(
    "GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n",
  );
});

const stream = (): ReadableStream<Uint8Array> => new ReadableStream();

test.each<[string, Given<UpstreamRequest>, string | undefined]>([
  ["GET without a body", {}, undefined],
  ["POST without a body", { method: "POST" }, "Content-Length: 0"],
  ["DELETE without a body", { method: "DELETE" }, undefined],
  ["QUERY without a body", { method: "QUERY" }, "Content-Length: 0"],
  ["PUT with bytes", { method: "PUT", body: new Uint8Array(3) }, "Content-Length: 3"],
  ["PUT with an empty body", { method: "PUT", body: new Uint8Array() }, "Content-Length: 0"],
  ["GET with bytes", { body: new Uint8Array(3) }, "Content-Length: 3"],
  [
    "POST with a stream of known length",
    { method: "POST", body: stream(), contentLength: 7 },
    "Content-Length: 7",
  ],
  [
    "POST with a stream of unknown length",
    { method: "POST", body: stream() },
    "Transfer-Encoding: chunked",
  ],
])("the head of a %s has the right framing field, or none", (_, changes, line) => {
  const framing = headOf(fakeRequest(changes), true)
    .split("\r\n")
    .filter((each) => /^(?:content-length|transfer-encoding)/i.test(each));
  expect(framing).toEqual(line === undefined ? [] : [line]);
});

describe("no character can end a line, a header field or a request early", () => {
  // All bytes, and characters above U+00FF whose lower byte is a line end or a space (CVE-2018-12116).
  const characters = [...Array(256).keys(), 0x010a, 0x010d, 0x0120].map((code) =>
    String.fromCharCode(code),
  );
  const codes = (allowed: (character: string) => boolean): string[] => characters.filter(allowed);

  test("in a field value", () => {
    rfc("9110-2.2-grammar", "9112-2.2-bare-cr-sent");
    const sent = codes((each) => statusOf({ headers: ["X-A", `a${each}b`] }) === 200);
    expect(sent).toEqual(codes((each) => /^[\t -~\u0080-\u00ff]$/.test(each)));
    expect(statusOf({ host: "a\r\nX-A: b" })).toBe(400);
  });

  test("in a field name or a method", () => {
    rfc("9110-2.2-grammar");
    const token = codes((each) => /^[!#$%&'*+.^_`|~\w-]$/.test(each));
    expect(codes((each) => statusOf({ headers: [`a${each}b`, ""] }) === 200)).toEqual(token);
    expect(codes((each) => statusOf({ method: `a${each}b` }) === 200)).toEqual(token);
    expect(statusOf({ headers: ["", "b"] })).toBe(400);
  });

  test("in a request target", () => {
    rfc("9110-2.2-grammar");
    const sent = codes((each) => statusOf({ path: `/a${each}b` }) === 200);
    expect(sent).toEqual(codes((each) => /^[!-~\u0080-\u00ff]$/.test(each)));
  });
});

test("a request with the method CONNECT is refused with 501", () => {
  expect(statusOf({ method: "CONNECT" })).toBe(501);
});
