/** The sockets of the HTTP/1.1 client on Bun and Deno, between responses and during bodies. */
import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type RuntimeName, Served } from "./_served.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { pause, until } from "../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

describe.each<RuntimeName>(["bun", "deno"])("on %s", (runtime) => {
  test("a connection that was paused by a slow client is reused", async () => {
    const size = 48 * 1024 * 1024;
    upstream.script = (call) => call.reply(200, [], Buffer.alloc(size));
    await using served = new Served(runtime, upstream.url);
    for (let count = 0; count < 2; count++) {
      const client = await served.connect();
      client.socket.pause();
      client.send(request("GET", `/${count}`));
      await until(
        () => (upstream.calls[count]?.link.socket.writableLength ?? 0) > 0,
        "a full pipe",
      );
      await pause(100);
      client.socket.resume();
      expect(await client.read()).toMatchObject({ status: 200, length: size, cut: false });
    }
    expect(upstream.links).toHaveLength(1);
  });

  test("a connection is reused although its last chunk was larger than the reader's demand", async () => {
    // Of these bodies, Bun and Deno read some with a large last chunk and others with a small one.
    const sizes = [65_536, 131_072, 200_000, 262_144, 400_000, 1_048_576, 3, 700_001];
    upstream.script = (call) =>
      call.reply(200, [], Buffer.alloc(Number(call.target.slice(1)), "x"));
    await using served = new Served(runtime, upstream.url);
    for (const size of [...sizes, ...sizes]) {
      const client = await served.send(`/${size}`);
      expect(await client.read()).toMatchObject({ status: 200, length: size, cut: false });
    }
    expect(upstream.links).toHaveLength(1);
  });

  test("a connection with traffic in either direction does not time out", async () => {
    upstream.script = async (call) => {
      await call.done;
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (let count = 0; count < 10; count++) {
        call.write(chunk(`${count}`));
        await pause(200);
      }
      call.write(lastChunk);
    };
    await using served = new Served(runtime, upstream.url, { timeout: 1800 });
    const client = await served.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]));
    for (let count = 0; count < 10; count++) {
      client.send(chunk(`${count}`));
      await pause(200);
    }
    client.send(lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: "0123456789", cut: false });
    expect(upstream.calls[0]?.text).toBe("0123456789");
    expect(await served.stats()).toMatchObject({ timedOut: 0 });
  });

  test("a close-delimited body arrives completely, and never looks complete if the connection is reset", async () => {
    const size = 2 * 1024 * 1024;
    upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\n\r\n", Buffer.alloc(size));
      await until(() => call.link.socket.writableLength === 0, "all of it sent");
      await pause(50);
      if (call.target === "/reset") call.reset();
      else call.close();
    };
    await using served = new Served(runtime, upstream.url);
    const whole = await (await served.send("/whole")).read();
    expect(whole).toMatchObject({ status: 200, length: size, cut: false });
    expect((await (await served.send("/reset")).read()).cut).toBe(true);
    expect(upstream.links).toHaveLength(2);
  });

  test("an upload that is paused arrives unchanged", async () => {
    upstream.script = async (call) => {
      call.link.socket.pause();
      await pause(300);
      call.link.socket.resume();
      await call.done;
      call.reply(200, [], call.sha256);
    };
    // The body is larger than all buffers, and no two chunks of it are equal.
    const body = Buffer.from(new Uint32Array(6 * 1024 * 1024).map((_, at) => at).buffer);
    const expected = createHash("sha256").update(body).digest("hex");
    await using served = new Served(runtime, upstream.url);
    for (const framing of ["Content-Length", "Transfer-Encoding"]) {
      const client = await served.connect();
      if (framing === "Content-Length") client.send(request("POST", "/", [], body));
      else client.send(request("POST", "/", [[framing, "chunked"]]), chunk(body), lastChunk);
      expect((await client.read()).text).toBe(expected);
    }
  });

  test("bodies of concurrent exchanges are not mixed up", async () => {
    // The runtimes read from all connections into shared or reused memory, in which bodies must not mix.
    upstream.script = async (call) => {
      await call.done;
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (let at = 0; at < call.text.length; at += 10_000) {
        call.write(chunk(call.text.slice(at, at + 10_000)));
        await pause(1);
      }
      call.write(lastChunk);
    };
    await using served = new Served(runtime, upstream.url);
    const exchange = async (id: number): Promise<void> => {
      const client = await served.connect();
      const body = `${id} `.repeat(50_000);
      client.send(request("POST", "/", [], body));
      const { text, cut } = await client.read();
      expect({ id, same: text === body, cut }).toEqual({ id, same: true, cut: false });
    };
    await Promise.all(Array.from({ length: 40 }, (_, id) => exchange(id)));
  });
});
