import { createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { proxyFetch } from "../../../runtimes/node.ts";
import { mebibyte } from "../../helpers/large.ts";
import { ask, openLinks, originOf, pooled, statsOf, upstream } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { pause, until, within } from "../../helpers/wait.ts";

describe("timeout", () => {
  test("a connection in use that stays silent is closed, and its request fails", async () => {
    upstream.script = () => {};
    const proxy = pooled({ timeout: 100 });
    expect(await ask(proxy)).toBe("504 Gateway Timeout: connection_read_timeout\n");
    await until(() => openLinks() === 0, "the connection closed");
    expect(statsOf(proxy)).toMatchObject({ created: 1, closed: 1, timedOut: 1 });
  });

  test("a connection that stays silent within a body is closed", async () => {
    upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    const proxy = pooled({ timeout: 100 });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    await expect(response.text()).rejects.toMatchObject({ code: "connection_read_timeout" });
    expect(statsOf(proxy)).toMatchObject({ timedOut: 1 });
  });

  test("a connection with occasional chunks is not closed", async () => {
    upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
      for (let i = 0; i < 10; i++) {
        await pause(400);
        call.write("x");
      }
    };
    const proxy = pooled({ timeout: 3000 });
    expect(await ask(proxy)).toBe(`200 ${"x".repeat(10)}`);
    expect(statsOf(proxy)).toMatchObject({ timedOut: 0 });
  });

  test("the option `timeout` does not close an idle connection", async () => {
    const proxy = pooled({ timeout: 1800, freeSocketTimeout: 60_000 });
    await ask(proxy);
    await pause(2100);
    expect(await ask(proxy)).toBe("200 ");
    expect(upstream.links).toHaveLength(1);
    // The connection is in use again, so the timeout applies to it again.
    upstream.script = () => {};
    expect(await ask(proxy)).toMatch(/^504 /);
  });

  test("a connection that waits for a slow client is not closed", async () => {
    const size = 32 * mebibyte;
    upstream.script = (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      return call.pour(size);
    };
    // The upstream runs in this process. On a loaded machine, a shorter timeout could pass while the process waits for a core.
    const proxy = pooled({ timeout: 2000 });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    await pause(3000);
    expect((await response.arrayBuffer()).byteLength).toBe(size);
    expect(statsOf(proxy)).toMatchObject({ timedOut: 0 });
  });
});

describe("the upstream's Keep-Alive hint", () => {
  const hint = (seconds: number): void => {
    upstream.script = (call) => call.reply(200, [["Keep-Alive", `timeout=${seconds}, max=9`]]);
  };

  test("a hint shortens freeSocketTimeout to one second less than the hint", async () => {
    hint(3);
    const proxy = pooled({ freeSocketTimeout: 60_000 });
    const since = performance.now();
    expect([await ask(proxy), await ask(proxy)]).toEqual(["200 ", "200 "]);
    expect(upstream.links).toHaveLength(1);
    await until(() => openLinks() === 0, "the connection closed");
    expect(performance.now() - since).toBeGreaterThan(1900);
    // The next response has no Keep-Alive hint, so freeSocketTimeout applies again.
    upstream.script = (call) => call.reply(200);
    await ask(proxy);
    expect(originOf(proxy)?.free).toBe(1);
  });

  test("with a hint of one second, the connection is not kept", async () => {
    hint(1);
    const proxy = pooled({ freeSocketTimeout: 60_000 });
    expect([await ask(proxy), await ask(proxy)]).toEqual(["200 ", "200 "]);
    expect(upstream.links).toHaveLength(2);
  });

  test("a long hint does not lengthen freeSocketTimeout", async () => {
    hint(600);
    await ask(pooled({ freeSocketTimeout: 100 }));
    await until(() => openLinks() === 0, "the connection closed");
  });
});

describe("socketTTL", () => {
  test("a connection closes after its response, never during it", async () => {
    let finish: () => void = () => {};
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf");
      finish = () => call.write("!");
    };
    const proxy = pooled({ socketTTL: 100, freeSocketTimeout: 60_000 });
    const answer = ask(proxy);
    await until(() => upstream.calls.length === 1, "the request");
    await pause(300);
    expect(openLinks()).toBe(1);
    finish();
    expect(await answer).toBe("200 half!");
    await until(() => openLinks() === 0, "the connection closed");
  });

  test("a busy connection takes no further request after socketTTL", async () => {
    const socketTTL = 500;
    const proxy = pooled({ socketTTL });
    const since = performance.now();
    while (upstream.links.length < 3) expect(await ask(proxy)).toBe("200 ");
    // Allow for the inaccuracy of timers.
    expect(performance.now() - since).toBeGreaterThan(2 * socketTTL - 10);
    expect(upstream.calls.length).toBeGreaterThan(upstream.links.length);
  });

  test("an idle connection closes when its socketTTL ends", async () => {
    const proxy = pooled({ socketTTL: 100, freeSocketTimeout: 60_000 });
    await ask(proxy);
    await until(() => openLinks() === 0, "the connection closed");
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
  });
});

describe("connectTimeout", () => {
  test("connectTimeout also limits the TLS handshake", async () => {
    const server = createServer();
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket.on("error", () => {})));
    const url = `https://127.0.0.1:${await listen(server)}`;
    const proxy = pooled({ connectTimeout: 200 }, url);
    const since = performance.now();
    expect(await ask(proxy)).toBe("504 Gateway Timeout: connection_timeout\n");
    // Allow for the inaccuracy of timers.
    expect(performance.now() - since).toBeGreaterThan(190);
    await expect.poll(() => statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
    expect(originOf(proxy, url)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
    await until(() => sockets.length === 1, "the connection at the upstream");
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  test("calls of proxyFetch with different values of connectTimeout share connections", async () => {
    const server = createServer();
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket.on("error", () => {})));
    const silent = `https://127.0.0.1:${await listen(server)}`;
    const request = (): Request => new Request("http://proxy.test/");
    const { status } = await within(proxyFetch(request(), silent, { connectTimeout: 50 }), "a 504");
    expect(status).toBe(504);
    for (const socket of sockets) socket.destroy();
    server.close();
    for (const connectTimeout of [20_000, 20_001, 20_002]) {
      expect((await proxyFetch(request(), upstream.url, { connectTimeout })).status).toBe(200);
    }
    expect(upstream.links).toHaveLength(1);
  });
});
