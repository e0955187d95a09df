import { readFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import type { TargetOptions } from "../../../src/target/target.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { ask, openLinks, pooled, statsOf, upstream } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { startProgram } from "../../helpers/program.ts";
import { until } from "../../helpers/wait.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

describe("keepAlive: false", () => {
  test("each request has its own connection and sends Connection: close", async () => {
    rfc("9112-9.3-not-persistent", "9112-9.6-client-sends-close");
    const proxy = pooled({ keepAlive: false });
    for (const init of [{}, { method: "HEAD" }, { method: "POST", body: "a" }]) {
      expect(await ask(proxy, "/", init)).toMatch(/^200 /);
    }
    expect(upstream.calls.map((call) => call.get("connection"))).toEqual(Array(3).fill("close"));
    expect(upstream.links).toHaveLength(3);
    await until(() => openLinks() === 0, "all connections closed");
    expect(statsOf(proxy)).toMatchObject({ created: 3, closed: 3, requestsPerSocket: 1 });
  });

  test("each request that has waited also has its own connection", async () => {
    const proxy = pooled({ keepAlive: false, maxSockets: 2 });
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask(proxy)));
    expect(answers).toEqual(Array(20).fill("200 "));
    expect(upstream.links).toHaveLength(20);
  });

  test("by default, requests have Connection: keep-alive", async () => {
    await ask(pooled());
    expect(upstream.calls[0]?.get("connection")).toBe("keep-alive");
  });
});

/**
 * Returns the kernel's timer of the connection from this port, see /proc/net/tcp in proc(5). The kind `02` is
 * keep-alive, and `00` means that no timer runs.
 */
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
  ])(
    "the value %j sets the timer of TCP keep-alive on the socket, and 0 sets none",
    async (keepAliveInitialDelay, kind, seconds) => {
      const given = keepAliveInitialDelay === undefined ? {} : { keepAliveInitialDelay };
      upstream.script = () => {};
      void ask(pooled(given));
      const { link } = await upstream.call();
      const timer = (): ReturnType<typeof keepAliveTimer> =>
        keepAliveTimer(link.socket.remotePort as number);
      // A timer for a delayed acknowledgement may be shown in the same place for a moment.
      await until(
        () => timer()?.kind === kind && Math.abs((timer()?.seconds ?? 0) - seconds) < 5,
        `a timer of ${seconds} s`,
      );
    },
  );
});

/** The handle of a socket, on which Node sets the socket option. */
interface Handle {
  setNoDelay(on: boolean): unknown;
}

test.each([
  [undefined, true],
  [true, true],
  [false, false],
])("the option `noDelay` is set on the socket: %j", async (noDelay, set) => {
  // Open any TCP socket, because its handle has the prototype to spy on.
  await ask(pooled({}));
  const socket = upstream.links[0]?.socket as unknown as { _handle: Handle };
  const spy = vi.spyOn(Object.getPrototypeOf(socket._handle) as Handle, "setNoDelay");
  try {
    await ask(pooled(noDelay === undefined ? {} : { noDelay }));
    // Look only for calls with false, because the upstream calls it with true for its side of the connection.
    expect(spy.mock.calls.some(([on]) => !on)).toBe(!set);
  } finally {
    spy.mockRestore();
  }
});

const [first, second] = [await makeCertificate(), await makeCertificate()];

describe("pool options for targets that do not set them", () => {
  async function secure({ cert, key }: typeof first): Promise<string> {
    const server = createHttpsServer({ cert, key }, (_, res) => res.end("secure"));
    cleanups.push(() => server.close().closeAllConnections());
    return `https://localhost:${await listen(server)}`;
  }

  test("`tls` applies unless the target has its own TLS options", async () => {
    rfc("9110-4.2.2-secured", "9110-4.3.4-invalid", "9112-9.7-tls");
    const url = await secure(first);
    const [ours, theirs] = [{ ca: first.cert }, { ca: second.cert }];
    expect(await ask(pooled({}, url))).toMatch(/^502 .*tls_certificate_error/);
    expect(await ask(pooled({ tls: ours }, url))).toBe("200 secure");
    expect(await ask(pooled({ tls: theirs }, url))).toMatch(/tls_certificate_error/);
    expect(await ask(pooled({ tls: theirs }, { url, tls: ours }))).toBe("200 secure");
    expect(await ask(pooled({ tls: ours }, { url, tls: theirs }))).toMatch(/tls_certificate_error/);
  });

  test("`tls`: `servername` must be a name in the certificate", async () => {
    rfc("9110-4.3.4-certificate");
    const url = await secure(first);
    const tls = { ca: first.cert, servername: "other.test" };
    expect(await ask(pooled({ tls }, url))).toMatch(/^502 .*tls_certificate_error/);
    expect(await ask(pooled({ tls: { ca: first.cert } }, url))).toBe("200 secure");
  });

  test("`tls`: targets with different functions `checkServerIdentity` never share a connection", async () => {
    const url = await secure(first);
    const targets = [() => undefined, () => new Error("refused")].map((checkServerIdentity) => {
      const tls = { ca: first.cert, checkServerIdentity };
      return { url, tls };
    });
    const target = ({ url: asked }: Request): TargetOptions =>
      targets[Number(asked.at(-1))] as TargetOptions;
    const proxy = pooled({}, target);
    expect(await ask(proxy, "/0")).toBe("200 secure");
    expect(await ask(proxy, "/1")).toBe("502 Bad Gateway: tls_certificate_error\n");
    expect(await ask(proxy, "/0")).toBe("200 secure");
    expect(statsOf(proxy)).toMatchObject({ created: 1, requests: 2 });
  });

  test("`tls`: requests with different Host fields share a connection if the target is an IP address", async () => {
    const url = (await secure(first)).replace("localhost", "127.0.0.1");
    const proxy = pooled({ tls: { ca: first.cert } }, url, { changeOrigin: false });
    for (const host of ["a.test", "b.test", "a.test"]) {
      const response = await proxy.fetch(new Request(`http://${host}/`, { headers: { host } }));
      expect(response.status).toBe(200);
      await response.text();
    }
    expect(statsOf(proxy)).toMatchObject({ created: 1, requests: 3 });
  });

  test("`socketPath` applies unless the target has its own", async () => {
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

test("idle connections do not keep the process running", async () => {
  const entry = new URL("../../../runtimes/node.ts", import.meta.url).href;
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

test("`proxyProtocol` with HTTP/2 is refused, because an HTTP/2 connection carries requests of several clients", async () => {
  const wrong =
    /`proxyProtocol` names one client for a connection, and HTTP\/2 shares a connection/;
  expect(() => pooled({ proxyProtocol: "v1", http2: true })).toThrow(wrong);
  expect(() => pooled({ proxyProtocol: "v3" as never })).toThrow(/use "v1" or "v2"/);
  const target = { url: upstream.url, http2: true };
  expect(() => pooled({ proxyProtocol: "v1" }, target)).toThrow(wrong);
  const late = pooled({ proxyProtocol: "v1" }, () => target);
  await expect(late.fetch(new Request("http://proxy.test/"))).rejects.toThrow(wrong);
});
