/** The buffers into which sockets read on Deno: one for all sockets, or one for each socket. */
import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import {
  OWN_READ_SIZE,
  READ_SIZE,
  takeReadBuffer,
} from "../../../runtimes/deno/internals/readbuffers.ts";
import { digestOf, mebibyte } from "../../helpers/large.ts";
import { startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";

/** Returns the buffers into which two sockets read on this version of Deno and this operating system. */
function takeBuffers(deno: string, os = "linux"): Uint8Array[] {
  vi.stubGlobal("Deno", { version: { deno }, build: { os } });
  const buffers = [0, 1].map(() => takeReadBuffer());
  vi.unstubAllGlobals();
  return buffers;
}

test("sockets share a read buffer on versions of Deno that are known to call back synchronously", () => {
  for (const version of ["2.8.3", "2.9.5", "2.9.12"]) {
    const [first, second] = takeBuffers(version);
    expect(first?.byteLength).toBe(READ_SIZE);
    expect(second).toBe(first);
  }
});

test("each socket has its own read buffer on other versions of Deno, on Windows, and without Deno", () => {
  const buffers = ["2.10.0", "2.7.14", "3.2.8", "12.9.1"].flatMap((version) =>
    takeBuffers(version),
  );
  buffers.push(...takeBuffers("2.9.5", "windows"));
  buffers.push(takeReadBuffer());
  expect(new Set(buffers.map(({ buffer }) => buffer)).size).toBe(11);
  expect(new Set(buffers.map(({ byteLength }) => byteLength))).toEqual(new Set([OWN_READ_SIZE]));
});

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

// Retry, because on a busy machine the upstream may write more slowly than Deno reads, so that no chunk is large.
test(
  "on Deno, a large body arrives in large chunks that share no memory",
  { retry: 2 },
  async () => {
    upstream.script = async (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${16 * mebibyte}\r\n\r\n`);
      await call.pour(16 * mebibyte);
    };
    await using program = startProgram("deno", [
      "eval",
      `
    import { createHash } from "node:crypto";
    import { createProxy } from ${JSON.stringify(new URL("../../../runtimes/deno.ts", import.meta.url).href)};
    const proxy = createProxy({ target: ${JSON.stringify(upstream.url)} });
    const { body } = await proxy.fetch(new Request("http://localhost/"));
    const memory = new Set();
    const hash = createHash("sha256");
    let largest = 0, chunks = 0;
    for await (const chunk of body) {
      chunks++;
      hash.update(chunk);
      largest = Math.max(largest, chunk.length);
      memory.add(chunk.buffer);
    }
    const isAlone = memory.size === chunks;
    console.log(JSON.stringify({ digest: hash.digest("hex"), largest, isAlone }));
    await proxy.close();
    `,
    ]);
    const [line] = await program.printed(/\{.*\}/);
    const { digest, largest, isAlone } = JSON.parse(line) as Record<string, unknown>;
    expect({ digest, isAlone }).toEqual({ digest: digestOf(16 * mebibyte), isAlone: true });
    expect(largest).toBeGreaterThan(OWN_READ_SIZE);
  },
);

test("on Deno, bodies that arrive on many connections at the same time are not mixed up", async () => {
  const length = 3 * mebibyte;
  const makeBody = (path: string): Buffer => Buffer.alloc(length, `${path} of this connection, `);
  upstream.script = async (call) => {
    const body = makeBody(call.target);
    call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n`);
    // Write in small steps, so that the connections take turns.
    for (let at = 0; at < length; at += 48_000) {
      call.write(body.subarray(at, at + 48_000));
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await using program = startProgram("deno", [
    "eval",
    `
    import { createHash } from "node:crypto";
    import { createProxy } from ${JSON.stringify(new URL("../../../runtimes/deno.ts", import.meta.url).href)};
    const proxy = createProxy({ target: ${JSON.stringify(upstream.url)} });
    const server = Deno.serve({ port: 0, onListen() {} }, proxy.fetch);
    const digests = await Promise.all(Array.from({ length: 16 }, async (_, i) => {
      const response = await fetch("http://127.0.0.1:" + server.addr.port + "/" + i);
      return createHash("sha256").update(await response.bytes()).digest("hex");
    }));
    console.log(JSON.stringify(digests));
    Deno.exit();
    `,
  ]);
  const [line] = await program.printed(/\[.*\]/);
  const expected = Array.from({ length: 16 }, (_, i) =>
    createHash("sha256")
      .update(makeBody(`/${i}`))
      .digest("hex"),
  );
  expect(JSON.parse(line)).toEqual(expected);
});
