/** The entry over undici: the options of its pool, its tunnels, and the modules that it loads. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createSecureServer, createServer as createHttp2Server } from "node:http2";
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createConnection, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { Agent, type buildConnector } from "undici";
import { describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import * as ofNode from "../../../runtimes/node.ts";
import * as entry from "../../../runtimes/undici.ts";
import { fillAgentOptions } from "../../../runtimes/undici/agentoptions.ts";
import { SocketTunnel } from "../../../runtimes/undici/sockettunnel.ts";
import { poolSchema, type PoolOptions } from "../../../src/options/pooloptions.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { frame, GOAWAY, RawUpstream, RST_STREAM, uint32 } from "../../helpers/frames.ts";
import { echoMessages, sayHello } from "../../helpers/handshake.ts";
import { startProgram } from "../../helpers/program.ts";
import { listen } from "../../helpers/serve.ts";
import { closing, upstream } from "./_undici.ts";
import { until, within } from "../../helpers/wait.ts";

const { createProxy, createTransport, createUndiciTransport, proxyFetch } = entry;
const { cert, key } = await makeCertificate();

function make(
  pool?: PoolOptions,
  target: entry.CreateProxyOptions["target"] = upstream.url,
): entry.NodeProxy {
  const proxy = createProxy({ target, ...(pool && { pool }) });
  closing.unshift(() => proxy.destroy());
  return proxy;
}

async function ask(proxy: entry.Proxy, path = "/", init?: RequestInit): Promise<string> {
  const answer = await proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return `${answer.status} ${await answer.text()}`;
}

test("fetchway/undici exports the same names as fetchway/node, and createUndiciTransport", () => {
  const own = Object.keys(entry).toSorted();
  expect(own).toEqual([...Object.keys(ofNode), "createUndiciTransport"].toSorted());
  expect(Object.keys(make())).toEqual(Object.keys(ofNode.createProxy({ target: upstream.url })));
});

test("calls of proxyFetch reuse connections", async () => {
  const { calls, links } = upstream;
  // Repeat, because undici uses a connection again only after a turn of the event loop.
  for (let i = 0; i < 50 && calls.length === links.length; i++) {
    const answer = await proxyFetch(new Request("http://proxy.test/"), upstream.url);
    await answer.text();
  }
  expect(links.length).toBeLessThan(calls.length);
});

test("on Bun, which replaces undici, importing the entry fails with an error that says what to import", async () => {
  const { href } = new URL("../../../runtimes/undici.ts", import.meta.url);
  await using program = startProgram("bun", ["-e", `await import(${JSON.stringify(href)})`]);
  await program.printed(/replaces the package undici.*import "fetchway"/);
});

describe("the options of a pool of undici", () => {
  const refused = {
    maxFreeSockets: [1, /lower that, or set `keepAlive: false`/],
    maxTotalFreeSockets: [1, /lower that, or set `keepAlive: false`/],
    timeout: [1000, /set `idleTimeout` of the proxy/],
    maxQueued: [1, /leave the option out/],
    queueTimeout: [1, /set `timeout` of the proxy/],
    minRate: [1, /does not know the clients; leave the option out/],
    minRateGrace: [1, /does not know the clients; leave the option out/],
    proxyProtocol: ["v2", /carry the requests of all clients/],
    noDelay: [false, /leave the option out/],
    dns: [{ ttl: 1 }, /createUndiciTransport\(new Agent\(\)\.compose\(interceptors\.dns\(\)\)\)/],
  } as const;
  const taken: PoolOptions = {
    maxSockets: 1,
    freeSocketTimeout: 1,
    socketTTL: 1,
    connectTimeout: 1,
    keepAlive: false,
    keepAliveInitialDelay: 0,
    http2: true,
    tls: {},
    socketPath: "/x",
  };

  test.each(Object.entries(refused))("the option %s is refused", (name, [value, fix]) => {
    const create = (): unknown => make({ [name]: value });
    expect(create).toThrow(new RegExp(`bad option \`${name}\`: undici`));
    expect(create).toThrow(fix);
  });

  test("each pool option is either refused or accepted", () => {
    const names = [...Object.keys(refused), ...Object.keys(taken)];
    expect(names.toSorted()).toEqual(Object.keys(poolSchema).toSorted());
    expect(() => createTransport(taken)).not.toThrow();
    // These values are accepted, because they say how undici behaves.
    const described: PoolOptions = {
      maxFreeSockets: Infinity,
      timeout: 0,
      maxQueued: Infinity,
      dns: false,
    };
    const rest: PoolOptions = {
      noDelay: true,
      queueTimeout: 0,
      minRate: 0,
      maxTotalFreeSockets: Infinity,
    };
    expect(() => createTransport({ ...described, ...rest })).not.toThrow();
    expect(() => createTransport({ maxSocket: 1 } as never)).toThrow(/did you mean `maxSockets`/);
  });

  test("options with undici's names are refused, and the error names Fetchway's option", () => {
    const wrong = { target: upstream.url, dispatcher: new Agent() };
    expect(() => createProxy(wrong)).toThrow(/transport: createUndiciTransport\(dispatcher\)/);
    expect(() => make({ connections: 1 } as never)).toThrow(/it is called `maxSockets` here/);
  });

  test("maxSockets limits the connections", async () => {
    const proxy = make({ maxSockets: 1 });
    let answer: (() => void) | undefined;
    upstream.script = (call) => void (answer = () => call.reply(200, [], call.target));
    const both = [ask(proxy, "/a"), ask(proxy, "/b")];
    await upstream.call();
    expect(proxy.stats()?.origins[upstream.url]).toMatchObject({ inUse: 1, waiting: 1 });
    answer?.();
    await upstream.call(1);
    answer?.();
    expect(await Promise.all(both)).toEqual(["200 /a", "200 /b"]);
    expect(upstream.links).toHaveLength(1);
  });

  test("maxSockets: Infinity sets no limit", async () => {
    const proxy = make({ maxSockets: Infinity });
    await Promise.all(Array.from({ length: 300 }, () => ask(proxy)));
    expect(upstream.links).toHaveLength(300);
  });

  test("keepAlive: false opens a connection for each request", async () => {
    const proxy = make({ keepAlive: false });
    for (let i = 0; i < 2; i++) await ask(proxy);
    expect(upstream.calls.map((call) => call.get("connection"))).toEqual(["close", "close"]);
    expect(upstream.links).toHaveLength(2);
  });

  test("freeSocketTimeout closes an idle connection", async () => {
    const proxy = make({ freeSocketTimeout: 50 });
    await ask(proxy);
    await until(() => proxy.stats()?.closed === 1, "the connection's close");
    expect(proxy.stats()).toMatchObject({ created: 1, timedOut: 1 });
  });

  test("socketTTL limits the life of a connection", async () => {
    const proxy = make({ socketTTL: 30 });
    await ask(proxy);
    const since = performance.now();
    await until(() => performance.now() - since > 40, "the end of its life");
    await ask(proxy);
    expect(upstream.links).toHaveLength(2);
    await until(() => proxy.stats()?.closed === 1, "the old connection's close");
  });

  test("socketPath applies to targets that have no socket path", async () => {
    const path = join(tmpdir(), `fetchway-undici-${process.pid}`);
    const server = createHttpServer((req, res) => res.end(req.headers.host));
    closing.push(() => server.close());
    server.listen(path);
    await once(server, "listening");
    expect(await ask(make({ socketPath: path }, "http://unix.test"))).toBe("200 unix.test");
    const transport = createUndiciTransport({ socketPath: path });
    closing.unshift(() => transport.destroy?.());
    expect(await ask(createProxy({ target: "http://agent.test", transport }))).toBe(
      "200 agent.test",
    );
  });

  test("tls: the names of its options are checked, and `servername` replaces the host name of the target", async () => {
    let asked: unknown;
    const server = createHttpsServer({ cert, key }, (_, res) => res.end("ok"));
    server.on("secureConnection", (socket) => (asked = socket.servername));
    closing.push(() => server.close());
    const target = `https://127.0.0.1:${await listen(server)}`;
    expect(await ask(make({ tls: { ca: cert, servername: "localhost" } }, target))).toBe("200 ok");
    expect(asked).toBe("localhost");
    const elsewhere = { servername: "other.test", rejectUnauthorized: false };
    expect(await ask(make({ tls: elsewhere }, target.replace("127.0.0.1", "localhost")))).toBe(
      "200 ok",
    );
    expect(asked).toBe("other.test");
    expect(await ask(make({}, target))).toMatch(/tls_certificate_error/);
    expect(() => make({ tls: { CA: cert } as never })).toThrow(/did you mean `ca`/);
  });

  test("http2: HTTP/2 is negotiated by ALPN over TLS, and used with prior knowledge without TLS", async () => {
    const handle = (req: { httpVersion: string }, res: { end(text: string): void }): void =>
      res.end(req.httpVersion);
    const both = createSecureServer({ cert, key, allowHTTP1: true }, handle);
    const plain = createHttp2Server(handle);
    closing.push(
      () => both.close(),
      () => plain.close(),
    );
    const [secure, open] = [await listen(both), await listen(plain)];
    const tls = { ca: cert };
    const url = `https://localhost:${secure}`;
    expect(await ask(make({ tls }, url))).toBe("200 1.1");
    expect(await ask(make({ tls, http2: true }, url))).toBe("200 2.0");
    const unencrypted = make({ http2: true }, `http://127.0.0.1:${open}`);
    const answers = await Promise.all(Array.from({ length: 5 }, () => ask(unencrypted)));
    expect(answers).toEqual(Array(5).fill("200 2.0"));
    expect(unencrypted.stats()).toMatchObject({ created: 1, requests: 5 });
  });
});

describe("several upstreams", () => {
  test("if one upstream refuses the connection, another upstream gets the upload", async () => {
    const good = createHttpServer((req, res) => void req.pipe(res));
    const closed = createHttpServer();
    closing.push(() => good.close());
    const urls = [await listen(closed), await listen(good)].map(
      (port) => `http://127.0.0.1:${port}`,
    );
    await new Promise((resolve) => closed.close(resolve));
    const proxy = make({}, balance(urls, { policy: "first" }));
    const text = "x".repeat(300_000);
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(Buffer.from(text));
        setTimeout(() => controller.close(), 20);
      },
    });
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    expect(await ask(proxy, "/", init)).toBe(`200 ${text}`);
  });

  test.each([
    ["refuses every stream", (id: number) => frame(RST_STREAM, 0, id, uint32(7))],
    ["names an earlier stream in a GOAWAY", () => frame(GOAWAY, 0, 0, uint32(0, 0))],
  ])("if one upstream %s, another upstream gets the POST", async (_, answer) => {
    const bad = new RawUpstream();
    bad.script = (connection, id) => connection.send(answer(id));
    const good = createHttp2Server((_req, res) => res.end("good"));
    closing.push(
      () => bad.close(),
      () => good.close(),
    );
    const urls = [await bad.listen(), `http://127.0.0.1:${await listen(good)}`];
    const proxy = make({ http2: true }, balance(urls, { policy: "first" }));
    expect(await ask(proxy, "/", { method: "POST", body: "x" })).toBe("200 good");
    expect(bad.requests).toBeGreaterThan(0);
  });
});

describe("the options of an agent of undici", () => {
  test("`createUndiciTransport` takes undici's options of an agent", async () => {
    const transport = createUndiciTransport({ connections: 1 });
    closing.push(() => transport.destroy?.());
    const proxy = createProxy({ target: upstream.url, transport });
    const answers = await Promise.all(Array.from({ length: 5 }, () => ask(proxy)));
    expect(answers).toEqual(Array(5).fill("200 "));
    expect(upstream.links).toHaveLength(1);
    expect(upstream.calls[0]?.get("connection")).toBe("keep-alive");
  });

  test("an option that is undefined has its default", () => {
    const unset = { connections: undefined, keepAliveTimeout: undefined } as never;
    expect(fillAgentOptions(unset)).toEqual(fillAgentOptions({}));
  });

  test("the option `connect` can replace the function that opens connections", async () => {
    const opened: string[] = [];
    const connect: buildConnector.connector = ({ port, hostname }, callback) => {
      opened.push(port);
      const socket = createConnection(Number(port), hostname);
      socket.once("connect", () => callback(null, socket));
    };
    const transport = createUndiciTransport({ connect });
    closing.push(() => transport.destroy?.());
    expect(await ask(createProxy({ target: upstream.url, transport }))).toBe("200 ");
    expect(opened).toEqual([String(upstream.port)]);
  });

  test.each([
    [{ factory: () => new Agent() }, /`factory`: pass the agent/],
    [{ maxSockets: 5 }, /`maxSockets`: it is an option of a pool.*createTransport/],
    [{ keepAlive: false }, /`keepAlive`: it is an option of a pool/],
    [{ connections: -1 }, /undici refuses these options of an agent: invalid connections/],
    [{ maxHeaderSize: -1 }, /undici refuses these options of an agent: invalid maxHeaderSize/],
  ])("the options %j are refused", (options, message) => {
    expect(() => createUndiciTransport(options as never)).toThrow(message);
  });
});

describe("tunnels through undici", () => {
  /** Opens a WebSocket through a proxy that is attached to a server. @returns an object with a promise of the close code */
  async function open(proxy: entry.NodeProxy): Promise<{ closed: Promise<number> }> {
    echoMessages(upstream);
    const server = createHttpServer(proxy.nodeHandler);
    proxy.attach(server);
    closing.push(() => server.close());
    const socket = new WebSocket(`ws://127.0.0.1:${await listen(server)}/`);
    socket.on("error", () => {});
    await within(once(socket, "open"), "the opening");
    const closed = once(socket, "close").then(([code]) => code as number);
    return { closed };
  }

  test("stats() counts a tunnel until it is closed", async () => {
    const proxy = make();
    await ask(proxy);
    await open(proxy);
    // The tunnel has a separate connection, so the request's connection is free.
    await until(() => proxy.stats()?.origins[upstream.url]?.free === 1, "a free connection");
    expect(proxy.stats()).toMatchObject({
      created: 2,
      closed: 0,
      requests: 2,
      tunnels: 1,
      origins: { [upstream.url]: { inUse: 0, free: 1, waiting: 0, tunnels: 1 } },
    });
    upstream.links[1]?.socket.destroy();
    await until(() => proxy.stats()?.closed === 1, "the tunnel's close");
    expect(proxy.stats()?.origins[upstream.url]?.tunnels).toBe(0);
  });

  test.each([
    ["close()", (proxy: entry.NodeProxy) => proxy.close()],
    ["close(timeout)", (proxy: entry.NodeProxy) => proxy.close(50)],
    ["destroy()", async (proxy: entry.NodeProxy) => proxy.destroy()],
  ])("%s ends tunnels, without a close code", async (_, end) => {
    const proxy = make();
    const { closed } = await open(proxy);
    await within(end(proxy), "the end");
    expect(await within(closed, "the WebSocket's close")).toBe(1006);
    expect(proxy.stats()).toMatchObject({ tunnels: 1, closed: 1 });
  });

  test("after a refused upgrade, its connection is closed although the agent belongs to the app", async () => {
    const agent = new Agent({ keepAliveTimeout: 60_000 });
    closing.unshift(() => agent.destroy());
    const transport = createUndiciTransport(agent);
    const proxy = createProxy({ target: upstream.url, transport });
    const server = createHttpServer(proxy.nodeHandler);
    proxy.attach(server);
    closing.push(() => server.close());
    upstream.script = (call) => call.reply(403);
    await expect(sayHello(`ws://127.0.0.1:${await listen(server)}/`)).rejects.toThrow(/403/);
    await within((await upstream.call()).link.closed, "the connection's close");
  });

  describe("connections of tunnels", () => {
    /** Makes a tunnel from a connection. @returns the upstream's socket, and the events that the tunnel reports, in order */
    async function connectTunnel(): Promise<{ peer: Socket; events: unknown[] }> {
      const events: unknown[] = [];
      const server = createServer({ allowHalfOpen: true });
      closing.push(() => server.close());
      const accepted = once(server, "connection") as Promise<[Socket]>;
      const tunnel = new SocketTunnel(createConnection(await listen(server), "127.0.0.1"));
      tunnel.attach({
        onData: (bytes) => void events.push(Buffer.from(bytes).toString()),
        onDrain: () => {},
        onEnd: () => void events.push("end"),
        onClose: (error) => void events.push(error),
      });
      const [peer] = await accepted;
      return { peer, events };
    }

    test("a connection that the upstream ends is closed gracefully", async () => {
      const { peer, events } = await connectTunnel();
      peer.end("bytes");
      await until(() => events.length === 3, "the close");
      expect(events).toEqual(["bytes", "end", undefined]);
    });

    test("a connection that the upstream resets is closed with ECONNRESET", async () => {
      const { peer, events } = await connectTunnel();
      peer.write("bytes");
      await until(() => events.length === 1, "the bytes");
      peer.resetAndDestroy();
      await until(() => events.length === 2, "the close");
      expect(events).toEqual(["bytes", expect.objectContaining({ code: "ECONNRESET" })]);
    });
  });

  test("tunnels are opened over HTTP/1.1, even if the agent may use HTTP/2", async () => {
    const server = createSecureServer({ cert, key, allowHTTP1: true }, (_, res) => res.end());
    const sockets = new WebSocketServer({ noServer: true });
    server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) =>
      sockets.handleUpgrade(req, socket, head, (each) =>
        each.on("message", (data: Buffer) => each.send(data.toString())),
      ),
    );
    closing.push(() => server.close());
    const target = `https://localhost:${await listen(server)}`;
    const agent = new Agent({ allowH2: true, connect: { ca: cert } });
    closing.unshift(() => agent.destroy());
    for (const proxy of [
      make({ http2: true, tls: { ca: cert } }, target),
      createProxy({ target, transport: createUndiciTransport(agent) }),
    ]) {
      expect(await ask(proxy)).toBe("200 ");
      const front = createHttpServer(proxy.nodeHandler);
      proxy.attach(front);
      closing.push(() => front.close());
      expect(await sayHello(`ws://127.0.0.1:${await listen(front)}/`)).toBe("hello");
    }
  });
});

describe("modules of the entry fetchway/undici", () => {
  const root = fileURLToPath(new URL("../../../", import.meta.url));

  /** Proxies a request in a fresh process, and returns the files of the project that it has loaded by then. */
  async function loadedBy(path: string): Promise<string[]> {
    const code = `import { registerHooks } from "node:module";
      const files = [];
      registerHooks({
        load(url, context, next) {
          files.push(url);
          return next(url, context);
        },
      });
      const { createProxy } = await import(process.argv[1]);
      const { createServer } = await import("node:http");
      const proxy = createProxy({ target: process.argv[2] });
      const server = createServer(proxy.nodeHandler).listen(0, "127.0.0.1", async () => {
        const { port } = server.address();
        const answer = await fetch("http://127.0.0.1:" + port, { method: "POST", body: "x" });
        console.log(JSON.stringify({ text: await answer.text(), files }));
        process.exit();
      });`;
    const args = ["--input-type=module", "--eval", code, join(root, path), upstream.url];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    const { text, files } = JSON.parse(stdout) as { text: string; files: string[] };
    expect(text).toBe("x");
    const own = files.map((url) => url.replace(`file://${root}`, ""));
    return own.filter((file) => !/^(?:node|file):|^node_modules\//.test(file));
  }

  const isClients = (file: string): boolean =>
    file.startsWith("src/http1/") || file.startsWith("runtimes/sockets/");
  /** Modules in the folders of Fetchway's own client that the code for servers uses as well. */
  const shared = [
    "runtimes/sockets/buffercodec.ts",
    "runtimes/sockets/http2/lostsessions.ts",
    "runtimes/sockets/logfailure.ts",
    "runtimes/sockets/openfiles.ts",
    "runtimes/sockets/requestchannel.ts",
    "runtimes/sockets/sharedparts.ts",
    "runtimes/sockets/socketpath.ts",
    "runtimes/sockets/tlsnames.ts",
  ];

  test("no module of Fetchway's own client is loaded when a request is forwarded", async () => {
    const files = await loadedBy("runtimes/undici.ts");
    expect(files).toContain("runtimes/undici/dispatch.ts");
    expect(files.filter(isClients).toSorted()).toEqual(shared);
    expect((await loadedBy("runtimes/node.ts")).filter(isClients)).toContain("src/http1/client.ts");
  });

  test("the entry has no dynamic import of Fetchway's own client", async () => {
    const { metafile } = await build({
      absWorkingDir: root,
      entryPoints: ["runtimes/undici.ts"],
      bundle: true,
      write: false,
      metafile: true,
      format: "esm",
      platform: "node",
      packages: "external",
    });
    // The inputs of the bundle include dynamic imports.
    const [output] = Object.values(metafile.outputs);
    const files = Object.entries(output?.inputs ?? {}).filter(
      ([, { bytesInOutput }]) => bytesInOutput,
    );
    // Clients that speak HTTP/2 need `http2fields.ts` and `streamend.ts`, and `explain` needs `attempt.ts`.
    const further = [
      "runtimes/sockets/http2/http2fields.ts",
      "runtimes/sockets/http2/streamend.ts",
      "src/http1/attempt.ts",
    ];
    expect(
      files
        .map(([file]) => file)
        .filter(isClients)
        .toSorted(),
    ).toEqual([...shared, ...further].toSorted());
  });
});
