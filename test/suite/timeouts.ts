/** Timeouts of the response headers and between the chunks of a body, and slow exchanges that must not time out. */
import { brotliCompressSync, gzipSync } from "node:zlib";
import { expect } from "vitest";
import type { Tools } from "./_suite.ts";
import { pause, within } from "../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

/** A pause in milliseconds. It is longer than `idleTimeout` of the setup `stalling`, which is 500 ms. */
const past = 750;
/** A time in milliseconds. It is longer than the timeouts of the setup `lasting`, which are 2 s. */
const long = 3000;

/**
 * Uploads ten chunks of this size, which takes longer than the timeout, and expects that the upload is not truncated.
 */
async function expectNotCut(t: Tools, size: number): Promise<void> {
  const client = await t.connect("lasting");
  client.send(request("POST", "/", [["Content-Length", `${10 * size}`]]));
  for (let count = 0; count < 10; count++) {
    client.send("x".repeat(size));
    await pause(long / 10);
  }
  expect(await client.read()).toMatchObject({ status: 200, text: "x".repeat(10 * size) });
}

export const timeouts = {
  async "an upstream that stalls before the response headers becomes 504"(t: Tools): Promise<void> {
    t.upstream.script = () => {};
    const answer = await t.ask(request("GET", "/"), "timeouts");
    expect(answer.status).toBe(504);
    expect(answer.get("proxy-status")).toMatch(/^fetchway; error=http_response_timeout/);
    expect(answer.text).not.toMatch(/127\.0\.0\.1|localhost/);
    const call = await t.upstream.call();
    await within(call.link.closed, "the upstream's connection closed");
  },

  async "an upstream that stalls within the response headers becomes 504"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nX-A: b\r\n");
    expect((await t.ask(request("POST", "/", [], "body"), "timeouts")).status).toBe(504);
  },

  async "interim responses do not stop `timeout`"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    expect((await t.ask(request("GET", "/"), "timeouts")).status).toBe(504);
  },

  async "a response body with Content-Length that stalls longer than idleTimeout fails"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    const answer = await t.ask(request("GET", "/"), "stalling");
    expect(answer).toMatchObject({ status: 200, text: "half", cut: true });
    const call = await t.upstream.call();
    await within(call.link.closed, "the upstream's connection closed");
  },

  async "a chunked response body that stalls longer than idleTimeout fails"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    const answer = await t.ask(request("GET", "/"), "stalling");
    expect(answer).toMatchObject({ status: 200, text: "half", cut: true });
  },

  async "a gzip response body that stalls longer than idleTimeout fails"(t: Tools): Promise<void> {
    const coded = gzipSync("a body that compresses well; ".repeat(100));
    for (const field of [`Content-Length: ${coded.length}`, "Transfer-Encoding: chunked"]) {
      t.upstream.script = (call) => {
        const half = coded.subarray(0, 20);
        call.write(`HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n${field}\r\n\r\n`);
        call.write(field.startsWith("Transfer") ? chunk(half) : half);
      };
      const answer = await t.ask(request("GET", "/"), "stalling");
      expect(answer, field).toMatchObject({ status: 200, length: 20, cut: true });
      expect(answer.get("content-encoding")).toBe("gzip");
      const call = t.upstream.calls.at(-1);
      await within(call?.link.closed as Promise<void>, "the upstream's connection closed");
    }
  },

  async "a response body with an idleTimeout set keeps its length and its bytes"(
    t: Tools,
  ): Promise<void> {
    const text = "a body that compresses well; ".repeat(10_000);
    for (const [coding, body] of [
      ["gzip", gzipSync(text)],
      ["br", brotliCompressSync(text)],
      [undefined, Buffer.from(text.slice(0, 5000))],
      ["x-unknown", Buffer.from("nothing at all")],
      ["gzip", Buffer.from("this was never gzipped")],
    ] as const) {
      const fields: Header[] = coding === undefined ? [] : [["Content-Encoding", coding]];
      t.upstream.script = (call) => call.reply(200, fields, body);
      const client = await t.connect("lasting");
      for (let count = 0; count < 2; count++) {
        client.send(request("GET", "/", [["Accept-Encoding", "gzip, br"]]));
        const answer = await client.read();
        expect(answer.all("content-length"), coding).toEqual([String(body.length)]);
        expect(answer.all("content-encoding"), coding).toEqual(fields.map(([, value]) => value));
        expect(answer.body.equals(body), coding).toBe(true);
      }
    }
  },

  async "neither `timeout` nor idleTimeout stops a response body that keeps arriving"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (let count = 0; count < 10; count++) {
        call.write(chunk(`${count}`));
        await pause(long / 10);
      }
      call.write(lastChunk);
    };
    const answer = await t.ask(request("GET", "/"), "lasting");
    expect(answer).toMatchObject({ status: 200, text: "0123456789", cut: false });
  },

  async "`timeout` does not stop a chunked upload that keeps arriving"(t: Tools): Promise<void> {
    const client = await t.connect("lasting");
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]));
    for (let count = 0; count < 10; count++) {
      client.send(chunk(`${count}`));
      await pause(long / 10);
    }
    client.send(lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: "0123456789" });
  },

  async "`timeout` does not stop a small upload with Content-Length that keeps arriving"(
    t: Tools,
  ): Promise<void> {
    await expectNotCut(t, 1);
  },

  async "`timeout` does not stop a large upload with Content-Length that keeps arriving"(
    t: Tools,
  ): Promise<void> {
    await expectNotCut(t, 10_000);
  },

  async "a large upload with Content-Length that stalls becomes 504"(t: Tools): Promise<void> {
    t.upstream.script = () => {};
    const client = await t.connect("lasting");
    client.send(request("POST", "/", [["Content-Length", "200000"]]));
    for (let count = 0; count < 10; count++) {
      client.send("x".repeat(10_000));
      await pause(past / 10);
    }
    expect((await client.read()).status).toBe(504);
    const call = await t.upstream.call();
    await within(call.link.closed, "the upstream's connection closed");
    expect(call.state).toBe("cut");
  },

  async "a stream of server-sent events may be silent for longer than idleTimeout"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n");
      call.write("Transfer-Encoding: chunked\r\n\r\n", chunk("data: 1\n\n"));
      await pause(past);
      call.write(chunk("data: 2\n\n"), lastChunk);
    };
    const answer = await t.ask(request("GET", "/"), "stalling");
    expect(answer).toMatchObject({ text: "data: 1\n\ndata: 2\n\n", cut: false });
  },

  async "a client that pauses longer than idleTimeout gets the whole body"(
    t: Tools,
  ): Promise<void> {
    const size = 16 * 1024 * 1024;
    t.upstream.script = async (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      await call.pour(size);
    };
    const client = await t.connect("lasting");
    client.send(request("GET", "/"));
    const head = await client.readHead();
    await pause(long);
    expect(await client.readBody(head)).toMatchObject({
      length: size,
      cut: false,
    });
  },
};
