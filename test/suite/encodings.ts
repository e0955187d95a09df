/** Encoded and partial bodies pass unchanged, with the fields that describe them. */
import { brotliCompressSync, gzipSync, zstdCompressSync } from "node:zlib";
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { request, type Header } from "../helpers/wire.ts";

const text: Buffer = Buffer.from("a body that compresses well; ".repeat(400));

async function expectUntouched(t: Tools, coding: string, body: Uint8Array): Promise<void> {
  const fields: Header[] = [
    ["Content-Type", "text/plain; charset=utf-8"],
    ["Content-Encoding", coding],
    ["ETag", '"strong"'],
    ["Vary", "Accept-Encoding"],
    ["Content-Length", String(body.length)],
  ];
  t.upstream.script = (call) => call.reply(200, fields, body);
  const accept = `${coding};q=1.0, identity;q=0.1`;
  const answer = await t.ask(request("GET", "/", [["Accept-Encoding", accept]]));
  expect(t.upstream.calls.at(-1)?.all("accept-encoding")).toEqual([accept]);
  for (const [name, value] of fields) expect(answer.all(name), name).toEqual([value]);
  expect(answer.body.equals(body)).toBe(true);
}

export const encodings = {
  async "a gzip body passes unchanged"(t: Tools): Promise<void> {
    rfc("9110-7.7-no-transform", "9110-8.4-encoding");
    await expectUntouched(t, "gzip", gzipSync(text));
  },

  async "a br body passes unchanged"(t: Tools): Promise<void> {
    await expectUntouched(t, "br", brotliCompressSync(text));
  },

  async "a zstd body passes unchanged"(t: Tools): Promise<void> {
    await expectUntouched(t, "zstd", zstdCompressSync(text));
  },

  async "bodies with several, unknown or wrong content codings pass unchanged"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.4-encoding");
    await expectUntouched(t, "gzip, br", brotliCompressSync(gzipSync(text)));
    await expectUntouched(t, "x-rot13", text);
    await expectUntouched(t, "gzip", Buffer.from("this was never gzipped"));
    await expectUntouched(t, "gzip", Buffer.alloc(0));
  },

  async "a chunked gzip body passes unchanged"(t: Tools): Promise<void> {
    const body = gzipSync(text);
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (const byte of body) call.write("1\r\n", Buffer.of(byte), "\r\n");
      call.write("0\r\n\r\n");
    };
    const answer = await t.ask(request("GET", "/"));
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.body.equals(body)).toBe(true);
  },

  async "the response to HEAD of a gzip resource keeps Content-Encoding, Content-Length and ETag"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.reply(
        200,
        [
          ["Content-Encoding", "gzip"],
          ["Content-Length", "123"],
          ["ETag", '"s"'],
        ],
        null,
      );
    const answer = await t.ask(request("HEAD", "/"));
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.get("content-length")).toBe("123");
    expect(answer.get("etag")).toBe('"s"');
  },

  async "an absent, empty or identity Accept-Encoding is forwarded unchanged"(
    t: Tools,
  ): Promise<void> {
    await t.ask(request("GET", "/"));
    await t.ask(request("GET", "/", [["Accept-Encoding", "identity"]]));
    await t.ask(request("GET", "/", [["Accept-Encoding", ""]]));
    expect(t.upstream.calls.map((call) => call.all("accept-encoding"))).toEqual([
      [],
      ["identity"],
      [""],
    ]);
  },

  async "a gzip request body passes unchanged"(t: Tools): Promise<void> {
    const body = gzipSync(text);
    const answer = await t.ask(request("POST", "/", [["Content-Encoding", "gzip"]], body));
    const [call] = t.upstream.calls;
    expect(call?.get("content-encoding")).toBe("gzip");
    expect(call?.get("content-length")).toBe(String(body.length));
    expect(call?.body.equals(body)).toBe(true);
    expect(answer.body.equals(body)).toBe(true);
  },

  async "a 206 response with Content-Range passes unchanged"(t: Tools): Promise<void> {
    const fields: Header[] = [
      ["Content-Range", "bytes 2-5/10"],
      ["Accept-Ranges", "bytes"],
      ["Content-Length", "4"],
    ];
    t.upstream.script = (call) => call.reply("206 Partial Content", fields, "2345");
    const answer = await t.ask(
      request("GET", "/", [
        ["Range", "bytes=2-5"],
        ["If-Range", '"x"'],
      ]),
    );
    expect(t.upstream.calls[0]?.get("range")).toBe("bytes=2-5");
    expect(t.upstream.calls[0]?.get("if-range")).toBe('"x"');
    expect(answer).toMatchObject({ status: 206, text: "2345" });
    for (const [name, value] of fields) expect(answer.all(name), name).toEqual([value]);
  },

  async "a 206 response of a gzip resource passes unchanged"(t: Tools): Promise<void> {
    const part = gzipSync(text).subarray(5, 25);
    const fields: Header[] = [
      ["Content-Encoding", "gzip"],
      ["Content-Range", "bytes 5-24/900"],
      ["Content-Length", "20"],
    ];
    t.upstream.script = (call) => call.reply("206 Partial Content", fields, part);
    const answer = await t.ask(
      request("GET", "/", [
        ["Range", "bytes=5-24"],
        ["Accept-Encoding", "gzip"],
      ]),
    );
    expect(t.upstream.calls[0]?.get("accept-encoding")).toBe("gzip");
    expect(answer.status).toBe(206);
    expect(answer.body.equals(part)).toBe(true);
    for (const [name, value] of fields) expect(answer.all(name), name).toEqual([value]);
  },

  async "CVE-2026-55603: a form body with CRLF and boundaries in its values is forwarded byte for byte"(
    t: Tools,
  ): Promise<void> {
    const body =
      '--b\r\nContent-Disposition: form-data; name="a\r\nX-Evil: 1"\r\n\r\nv\r\n\r\nGET / HTTP/1.1\r\n\r\n--b--\r\n';
    await t.ask(request("POST", "/", [["Content-Type", "multipart/form-data; boundary=b"]], body));
    expect(t.upstream.calls[0]?.text).toBe(body);
    expect(t.upstream.calls[0]?.get("content-type")).toBe("multipart/form-data; boundary=b");
  },

  async "GHSA-v2v2-hph8-q5xp: a JSON body is forwarded without being parsed"(
    t: Tools,
  ): Promise<void> {
    const body = '"a \\u0041 string"  ';
    const type = "application/json ; charset=utf-8";
    await t.ask(request("POST", "/", [["Content-Type", type]], body));
    expect(t.upstream.calls[0]?.text).toBe(body);
    expect(t.upstream.calls[0]?.get("content-type")).toBe(type);
  },
};
