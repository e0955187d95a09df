import { readFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { makeCertificate } from "./_certificate.ts";
import { mebibyte } from "./_large.ts";
import { ask, openLinks, originOf, pooled, statsOf, upstream } from "./_pool.ts";
import { portOf } from "./_port.ts";
import { startProgram } from "./_program.ts";
import { pause, until } from "./_wait.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

describe("timeout", () => {
  test("a connection that is silent in use is closed, and its request fails", async () => {
    upstream.script = () => {};
    const proxy = pooled({ timeout: 100 });
    expect(await ask(proxy)).toBe("504 Gateway Timeout: connection_read_timeout\n");
    await until(() => openLinks() === 0, "the connection closed");
    expect(statsOf(proxy)).toMatchObject({ created: 1, closed: 1, timedOut: 1 });
  });

  test("in the middle of a body, too", async () => {
    upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    const proxy = pooled({ timeout: 100 });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    await expect(response.text()).rejects.toMatchObject({ code: "connection_read_timeout" });
    expect(statsOf(proxy)).toMatchObject({ timedOut: 1 });
  });

  test("what moves now and then is not cut", async () => {
    upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
      for (let i = 0; i < 10; i++) {
        await pause(50);
        call.write("x");
      }
    };
    const proxy = pooled({ timeout: 300 });
    expect(await ask(proxy)).toBe(`200 ${"x".repeat(10)}`);
    expect(statsOf(proxy)).toMatchObject({ timedOut: 0 });
  });

  test("nor is an idle connection, which has a time of its own", async () => {
    const proxy = pooled({ timeout: 50, freeSocketTimeout: 60_000 });
    await ask(proxy);
    await pause(200);
    expect(await ask(proxy)).toBe("200 ");
    expect(upstream.links).toHaveLength(1);
    // It is in use again: its time begins anew.
    upstream.script = () => {};
    expect(await ask(proxy)).toMatch(/^504 /);
  });

  test("nor what the client is slow to take", async () => {
    const size = 32 * mebibyte;
    upstream.script = (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      return call.pour(size);
    };
    const proxy = pooled({ timeout: 100 });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    await pause(500);
    expect((await response.arrayBuffer()).byteLength).toBe(size);
    expect(statsOf(proxy)).toMatchObject({ timedOut: 0 });
  });
});

describe("socketTTL", () => {
  test("a connection closes after its response, never during it", async () => {
    let finish: () => void = () => {};
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf");
      finish = () => call.write("!");
    };
    const proxy = pooled({ socketTTL: 100 });
    const answer = ask(proxy);
    await until(() => upstream.calls.length === 1, "the request");
    await pause(300);
    expect(openLinks()).toBe(1);
    finish();
    expect(await answer).toBe("200 half!");
    // Long before its time as an idle one is over.
    await until(() => openLinks() === 0, "the connection closed", 2000);
  });

  test("and takes no further request, busy as it may be", async () => {
    const proxy = pooled({ socketTTL: 200 });
    const since = performance.now();
    while (performance.now() - since < 1000) expect(await ask(proxy)).toBe("200 ");
    const links = upstream.links.length;
    expect(links).toBeGreaterThanOrEqual(4);
    expect(links).toBeLessThanOrEqual(6);
    expect(upstream.calls.length).toBeGreaterThan(3 * links);
  });

  test("an idle one closes at once", async () => {
    const proxy = pooled({ socketTTL: 100, freeSocketTimeout: 60_000 });
    await ask(proxy);
    await until(() => openLinks() === 0, "the connection closed", 2000);
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0 });
  });
});

describe("keepAlive: false", () => {
  test("one connection a request, and the upstream is told", async () => {
    const proxy = pooled({ keepAlive: false });
    for (const init of [{}, { method: "HEAD" }, { method: "POST", body: "a" }]) {
      expect(await ask(proxy, "/", init)).toMatch(/^200 /);
    }
    expect(upstream.calls.map((call) => call.get("connection"))).toEqual(Array(3).fill("close"));
    expect(upstream.links).toHaveLength(3);
    await until(() => openLinks() === 0, "all connections closed");
    expect(statsOf(proxy)).toMatchObject({ created: 3, closed: 3, requestsPerSocket: 1 });
  });

  test("waiting requests as well", async () => {
    const proxy = pooled({ keepAlive: false, maxSockets: 2 });
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask(proxy)));
    expect(answers).toEqual(Array(20).fill("200 "));
    expect(upstream.links).toHaveLength(20);
  });

  test("by default the upstream is told to keep it", async () => {
    await ask(pooled());
    expect(upstream.calls[0]?.get("connection")).toBe("keep-alive");
  });
});

/** The kernel's timer of the connection from this port (proc(5), /proc/net/tcp): `02` is keep-alive, in 1/100 s. */
function keepAliveTimer(port: number): { kind: string; seconds: number } | undefined {
  const hexOf = (number: number): string =>
    `:${number.toString(16).toUpperCase().padStart(4, "0")}`;
  for (const line of readFileSync("/proc/net/tcp", "utf8").split("\n")) {
    const [, local, remote, , , timer = ""] = line.trim().split(/\s+/);
    const [kind = "", when = "0"] = timer.split(":");
    if (local?.endsWith(hexOf(port)) && remote?.endsWith(hexOf(upstream.port)))
      return { kind, seconds: Number.parseInt(when, 16) / 100 };
  }
  return undefined;
}

describe.runIf(process.platform === "linux")("keepAliveInitialDelay", () => {
  test.each([
    [undefined, "02", 60],
    [20_000, "02", 20],
    [0, "00", 0],
  ])("%j", async (keepAliveInitialDelay, kind, seconds) => {
    const given = keepAliveInitialDelay === undefined ? {} : { keepAliveInitialDelay };
    upstream.script = () => {};
    void ask(pooled(given));
    const { link } = await upstream.call();
    const timer = (): ReturnType<typeof keepAliveTimer> =>
      keepAliveTimer(link.socket.remotePort as number);
    // A delayed acknowledgement has the same place for a moment.
    await until(
      () => timer()?.kind === kind && Math.abs((timer()?.seconds ?? 0) - seconds) < 5,
      `a timer of ${seconds} s`,
    );
  });
});

test.each([
  [undefined, true],
  [true, true],
  [false, false],
])("noDelay: %j", async (noDelay, set) => {
  const spy = vi.spyOn(Socket.prototype, "setNoDelay");
  try {
    const proxy = pooled(noDelay === undefined ? {} : { noDelay });
    await ask(proxy);
    const port = upstream.links[0]?.socket.remotePort;
    const sockets = spy.mock.contexts as Socket[];
    const ours = sockets.findLastIndex(({ localPort }) => localPort === port);
    expect(spy.mock.calls[ours]).toEqual([set]);
  } finally {
    spy.mockRestore();
  }
});

describe("what the pool has for targets without", () => {
  const [first, second] = [makeCertificate(), makeCertificate()];

  async function secure({ cert, key }: typeof first): Promise<string> {
    const server = createHttpsServer({ cert, key }, (_, res) => res.end("secure"));
    cleanups.push(() => server.close().closeAllConnections());
    return `https://localhost:${await portOf(server)}`;
  }

  test("tls; the target's own wins", async () => {
    const url = await secure(first);
    const [ours, theirs] = [{ ca: first.cert }, { ca: second.cert }];
    expect(await ask(pooled({}, url))).toMatch(/^502 .*tls_certificate_error/);
    expect(await ask(pooled({ tls: ours }, url))).toBe("200 secure");
    expect(await ask(pooled({ tls: theirs }, url))).toMatch(/tls_certificate_error/);
    expect(await ask(pooled({ tls: theirs }, { url, tls: ours }))).toBe("200 secure");
    expect(await ask(pooled({ tls: ours }, { url, tls: theirs }))).toMatch(/tls_certificate_error/);
  });

  test("socketPath; the target's own wins", async () => {
    const start = async (name: string): Promise<string> => {
      const path = join(tmpdir(), `fetchway-${process.pid}-${name}.sock`);
      const server = createHttpServer((_, res) => res.end(name));
      cleanups.push(() => server.close().closeAllConnections());
      await new Promise<void>((resolve) => server.listen(path, resolve));
      return path;
    };
    const [ours, theirs] = [await start("ours"), await start("theirs")];
    expect(await ask(pooled({ socketPath: ours }))).toBe("200 ours");
    expect(await ask(pooled({ socketPath: ours }, `unix:${theirs}`))).toBe("200 theirs");
    expect(upstream.links).toHaveLength(0);
  });
});

describe("connectTimeout", () => {
  test("a server that never answers the TLS handshake", async () => {
    const server = createServer();
    cleanups.push(() => server.close());
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket.on("error", () => {})));
    const url = `https://127.0.0.1:${await portOf(server)}`;
    const proxy = pooled({ connectTimeout: 200 }, url);
    const since = performance.now();
    expect(await ask(proxy)).toBe("504 Gateway Timeout: connection_timeout\n");
    // To the millisecond, more or less: a second would be one of undici's own timers.
    expect(performance.now() - since).toBeGreaterThan(190);
    expect(statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
    expect(originOf(proxy, url)).toEqual({ inUse: 0, free: 0, waiting: 0 });
    await until(() => sockets.length === 1 && sockets[0]?.readableEnded !== undefined, "it");
    for (const socket of sockets) socket.destroy();
  });
});

test("idle connections do not keep the process running", async () => {
  const entry = new URL("../runtimes/node.ts", import.meta.url).href;
  const options = { target: upstream.url, pool: { freeSocketTimeout: 600_000 } };
  const program = startProgram("node", [
    "--input-type=module",
    "-e",
    `import { createProxy } from ${JSON.stringify(entry)};
     const proxy = createProxy(${JSON.stringify({ ...options, pool: { ...options.pool, socketTTL: 600_000, timeout: 600_000 } })});
     const response = await proxy.fetch(new Request("http://proxy.test/"));
     console.log("status", response.status, await response.text(), proxy.stats().created);`,
  ]);
  await program.ended();
  expect(program.output()).toMatch(/status 200 +1/);
  expect(program.code()).toBe(0);
});
