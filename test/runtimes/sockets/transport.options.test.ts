/** Pool options on Bun and Deno, checked by the bytes on the connection, the counters or the operating system. */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { listen } from "../../helpers/serve.ts";
import { type RuntimeName, Served } from "./_served.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";
import { chunk } from "../../helpers/wire.ts";

const upstream = new Upstream();
const servers: Server[] = [];
beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const server of servers.splice(0)) server.close();
  await upstream.reset();
});
afterAll(() => upstream.stop());

/** Listens on a port or a path until the end of the test. */
async function open(server: Server, where: number | string = 0): Promise<number> {
  servers.push(server);
  if (typeof where === "number") return listen(server, where);
  await once(server.listen(where), "listening");
  return 0;
}

async function requestsAt(count: number): Promise<void> {
  await until(() => upstream.calls.length === count, `${count} requests at the upstream`);
}

const LIMIT = "503 Service Unavailable: connection_limit_reached\n";

describe.each<RuntimeName>(["bun", "deno"])("on %s", (runtime) => {
  test("timeout: a silent connection in use is closed, and its request fails", async () => {
    upstream.script = (call) => {
      if (call.target === "/later") return call.reply(200, [], "ok");
      if (call.target !== "/half") return;
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    };
    const pool = { timeout: 1500, freeSocketTimeout: 2000 };
    await using served = new Served(runtime, upstream.url, pool);
    expect(await served.ask("/silent")).toBe("504 Gateway Timeout: connection_read_timeout\n");
    const half = await (await served.send("/half")).read();
    expect(half).toMatchObject({ status: 200, text: "half", cut: true });
    await until(() => upstream.openLinks === 0, "the connections closed");
    expect(await served.stats()).toMatchObject({ created: 2, closed: 2, timedOut: 2 });
    // The timeout does not apply to idle connections.
    expect(await served.ask("/later")).toBe("200 ok");
    await until(() => upstream.openLinks === 0, "the idle connection closed");
    expect(await served.stats()).toMatchObject({ created: 3, closed: 3, timedOut: 3 });
  });

  test("socketTTL: an expired connection closes after its response, not during it", async () => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { socketTTL: 1000 });
    const client = await served.send("/long");
    const call = await upstream.call(0);
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nlon");
    await new Promise((resolve) => setTimeout(resolve, 1200));
    expect(call.link.isClosed).toBe(false);
    call.write("ger");
    expect(await client.read()).toMatchObject({ status: 200, text: "longer", cut: false });
    await until(() => call.link.isClosed, "the connection closed", 3500);
    // Connections must also expire under steady traffic.
    upstream.script = (each) => each.reply(200);
    while (upstream.links.length < 4) expect(await served.ask("/")).toBe("200 ");
    expect(upstream.calls.length).toBeGreaterThan(upstream.links.length);
  });

  test("connectTimeout includes the TLS handshake", async () => {
    const port = await open(createServer(() => {}));
    await using served = new Served(runtime, `https://127.0.0.1:${port}`, { connectTimeout: 200 });
    expect(await served.ask("/")).toBe("504 Gateway Timeout: connection_timeout\n");
    expect(await served.stats()).toMatchObject({ created: 0, failed: 1 });
  });

  test("maxQueued: requests over the limit get 503 immediately", async () => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { maxSockets: 1, maxQueued: 1 });
    const first = await served.send("/first");
    await requestsAt(1);
    const second = await served.send("/second");
    await served.waiting(upstream.url, 1);
    const refused = await (await served.send("/refused")).read();
    expect(`${refused.status} ${refused.text}`).toBe(LIMIT);
    expect(refused.get("retry-after")).toMatch(/^\d+$/);
    for (const client of [first, second]) {
      upstream.calls.at(-1)?.reply(200, [], "ok");
      expect(await client.read()).toMatchObject({ status: 200, text: "ok" });
      if (client === first) await requestsAt(2);
    }
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/second"]);
  });

  test("queueTimeout: a request that waits longer gets 503 and is never sent", async () => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { maxSockets: 1, queueTimeout: 1500 });
    const first = await served.send("/first");
    await requestsAt(1);
    expect(await served.ask("/late")).toBe(LIMIT);
    upstream.calls[0]?.reply(200, [], "ok");
    expect((await first.read()).text).toBe("ok");
    upstream.script = (call) => call.reply(200, [], "ok");
    expect(await served.ask("/next")).toBe("200 ok");
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/next"]);
  });

  test("keepAlive: false opens one connection per request and sends Connection: close", async () => {
    rfc("9112-9.3-not-persistent", "9112-9.6-client-sends-close");
    await using served = new Served(runtime, upstream.url, { keepAlive: false });
    for (let count = 1; count <= 3; count++) {
      expect(await served.ask("/")).toBe("200 ");
      await until(() => upstream.openLinks === 0, "the connection closed");
    }
    expect(upstream.links).toHaveLength(3);
    expect(upstream.calls.flatMap((call) => call.all("connection"))).toEqual(
      Array(3).fill("close"),
    );
  });

  test.runIf(process.platform === "linux")(
    "noDelay and keepAliveInitialDelay are set on the sockets",
    async () => {
      const seen = async (pool: object): Promise<unknown> => {
        await using served = new Served(runtime, upstream.url, pool);
        await served.ask("/");
        return await served.sockets(upstream.port);
      };
      expect(await seen({})).toEqual([{ noDelay: 1, keepAlive: 1, delay: 60 }]);
      const other = await seen({ noDelay: false, keepAliveInitialDelay: 7000 });
      expect(other).toEqual([{ noDelay: 0, keepAlive: 1, delay: 7 }]);
      const none = await seen({ keepAliveInitialDelay: 0 });
      expect(none).toEqual([expect.objectContaining({ keepAlive: 0 })]);
    },
  );

  test("tls applies to targets that have no TLS options", async () => {
    rfc("9110-4.2.2-secured", "9110-4.3.4-invalid", "9112-9.7-tls");
    const certificate = await makeCertificate();
    const port = await open(createTlsServer(certificate, (_, res) => res.end("secret")));
    const target = `https://localhost:${port}`;
    await using trusting = new Served(runtime, target, { tls: { ca: certificate.cert } });
    expect(await trusting.ask("/")).toBe("200 secret");
    await using other = new Served(
      runtime,
      { url: target, tls: {} },
      { tls: { ca: certificate.cert } },
    );
    expect(await other.ask("/")).toBe("502 Bad Gateway: tls_certificate_error\n");
  });

  test("tls: a certificate for another name is refused", async () => {
    rfc("9110-4.3.4-certificate");
    const certificate = await makeCertificate();
    const port = await listen(createTlsServer(certificate, (_, res) => res.end("secret")));
    const tls = { ca: certificate.cert, servername: "other.test" };
    await using misled = new Served(runtime, { url: `https://localhost:${port}`, tls });
    expect(await misled.ask("/")).toBe("502 Bad Gateway: tls_certificate_error\n");
  });

  test("socketPath applies to targets that have no socket path", async () => {
    const path = (name: string): string =>
      join(tmpdir(), `fetchway-${name}-${runtime}-${process.pid}.sock`);
    for (const name of ["pool", "own"]) {
      await open(
        createHttpServer((_, res) => res.end(name)),
        path(name),
      );
    }
    const url = "http://app.test";
    await using pooled = new Served(runtime, url, { socketPath: path("pool") });
    expect(await pooled.ask("/")).toBe("200 pool");
    expect((await pooled.stats()).origins).toHaveProperty([`unix:${path("pool")}`]);
    const target = { url, socketPath: path("own") };
    await using own = new Served(runtime, target, { socketPath: path("pool") });
    expect(await own.ask("/")).toBe("200 own");
  });

  test("close(timeout) aborts requests that do not end in time, and destroy() aborts them immediately", async () => {
    upstream.script = () => {};
    for (const [index, path] of ["/close?100", "/destroy"].entries()) {
      await using served = new Served(runtime, upstream.url, { maxSockets: 1 });
      const running = await served.send("/running");
      await requestsAt(index + 1);
      const waiting = await served.send("/waiting");
      await served.waiting(upstream.url, 1);
      expect(await served.ask(path)).toMatch(/^200 (?:closed|destroyed)$/);
      for (const client of [running, waiting]) expect((await client.read()).status).toBe(503);
      await until(() => upstream.openLinks === 0, "no connection left");
      const late = await (await served.send("/late")).read();
      expect([late.status, late.get("retry-after")]).toEqual([503, "1"]);
    }
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/running", "/running"]);
  });

  test("stats() forgets origins without connections when there are more than a thousand", async () => {
    await using served = new Served(runtime, "?to", {}, { retry: false });
    for (let count = 0; count < 1100; count++) {
      const refused = `http://127.0.${count >> 7}.${(count & 127) + 1}:1`;
      expect(await served.ask(`/?to=${refused}`)).toMatch(/^502 /);
    }
    upstream.script = (call) => call.reply(200, [], "ok");
    for (let count = 0; count < 2; count++) {
      expect(await served.ask(`/?to=${upstream.url}`)).toBe("200 ok");
    }
    const { origins, failed } = await served.stats();
    expect(Object.keys(origins).length).toBeLessThanOrEqual(1001);
    expect(failed).toBe(1100);
    expect(upstream.links).toHaveLength(1);
  });

  test("an idle connection is closed if the upstream sends an unsolicited response on it", async () => {
    await using served = new Served(runtime, upstream.url);
    expect(await served.ask("/")).toBe("200 ");
    upstream.calls[0]?.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned");
    await until(() => upstream.openLinks === 0, "the connection closed", 3500);
    expect(await served.ask("/next")).toBe("200 ");
    expect(upstream.links).toHaveLength(2);
  });
});
