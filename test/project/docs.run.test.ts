/** The blocks of docs/ that are parts of an app. Each runs in an app that defines the names which its page presupposes. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import express from "express";
import { H3, serve as serveH3 } from "h3";
import type { ServerPlugin } from "srvx";
import { Hono } from "hono";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import { createProxy, type NodeProxy, proxyFetch } from "../../runtimes/node.ts";
import type { Interceptor } from "../../src/transport.ts";
import type { Balancer } from "../../src/upstreams/balance.ts";
import { expectAllRun, importBlock, readBlock, withCopy } from "./_blocks.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { echoMessages, sayHello } from "../helpers/handshake.ts";
import { startProgram } from "../helpers/program.ts";
import type { Call } from "../helpers/link.ts";
import { findPort, listen, serve as serveOn } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { patience, pause, within } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";

const root = resolve(import.meta.dirname, "../..");
const TARGET = "http://127.0.0.1:4000";
const upstream = new Upstream();
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const certificate = await makeCertificate();
const ending: (() => unknown)[] = [];

/** The names that the pages introduce in prose, as in test/project/readme.types.test.ts. A block gets them as globals. */
interface Names {
  app: H3;
  hono: Hono;
  expressApp: ReturnType<typeof express>;
  server: Server;
}
let names: Names;
/** The proxies, responses, lines of the log and served apps of the current block. */
let proxies: NodeProxy[] = [];
let responses: Promise<Response>[] = [];
let logged: unknown[][] = [];
let served: { fetch?: unknown; plugins?: unknown[] }[] = [];

beforeAll(() => upstream.listen());
beforeEach(() => {
  proxies = [];
  responses = [];
  logged = [];
  served = [];
  const server = createServer((_, res) => res.end("the app itself"));
  names = {
    app: new H3(),
    hono: new Hono(),
    expressApp: express(),
    server,
  };
  const answer = (text: string) => ({ fetch: () => Promise.resolve(new Response(text)) });
  const create: typeof createProxy = (options) => {
    const proxy = createProxy(options);
    proxies.push(proxy);
    return proxy;
  };
  const globals = {
    ...names,
    createProxy: create,
    proxyFetch: (...args: Parameters<typeof proxyFetch>) => {
      const response = proxyFetch(...args);
      responses.push(response);
      return response;
    },
    proxy: createProxy({ target: upstream.url }),
    serve: (app: object, options: object) => void served.push({ ...app, ...options }),
    target: upstream.url,
    fallback: upstream.url,
    tenants: { "proxy.test": `${upstream.url}/tenant` },
    request: new Request("http://proxy.test/a?b"),
    ca: certificate.cert,
    room: "one",
    env: {
      SERVICE: answer("service"),
      ASSETS: answer("assets"),
      ROOMS: { getByName: (name: string) => answer(`room ${name}`) },
    },
    log: (...values: unknown[]) => void logged.push(values),
  };
  for (const [name, value] of Object.entries(globals)) vi.stubGlobal(name, value);
});
afterEach(async () => {
  await Promise.all(ending.splice(0).map((end) => end()));
  await Promise.all(proxies.map((proxy) => proxy.close(1)));
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  await upstream.reset();
});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await upstream.stop();
});

const toUpstream = (): Record<string, string> => ({ [TARGET]: upstream.url });

/** Sends a request through the proxies that the block has created, and returns the response of the last one. */
async function ask(init?: RequestInit, path = "/a?b"): Promise<Response> {
  const { fetch: handle } = proxies.at(-1) as NodeProxy;
  return handle(new Request(`http://proxy.test${path}`, init));
}

/** Serves a Node handler, and returns its origin. */
async function start(handler: NodeProxy["nodeHandler"]): Promise<string> {
  const { port, close } = await serveOn("node", handler);
  ending.push(close);
  return `http://127.0.0.1:${port}`;
}

test("quickstart: one call forwards requests in an h3 app and in a Hono app", async () => {
  await importBlock("docs/quickstart.md: One call", toUpstream());
  for (const app of [names.app, names.hono]) {
    const response = await app.request("/api/x?y", { method: "PUT", body: "text" });
    expect(await response.text()).toBe("text");
  }
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/x?y", "/x?y"]);
});

test("quickstart: a proxy with options that do not change is mounted in h3 and in Express", async () => {
  // The block closes its proxy at its end. Leave that out, because the apps below still use the proxy.
  vi.stubGlobal("serve", (app: object) => void served.push(app));
  await importBlock("docs/quickstart.md: Options that do not change", {
    ...toUpstream(),
    "await proxy.close();": "export { proxy };",
  });
  expect(served).toEqual([{ fetch: expect.any(Function) as unknown }]);
  upstream.script = (call) => call.reply(302, [["Location", "/login"]]);
  const mounted = await names.app.request("/api/x");
  const origin = await start(names.expressApp as never);
  const used = await fetch(`${origin}/api/x`, { redirect: "manual" });
  for (const { headers } of [mounted, used]) expect(headers.get("location")).toBe("/api/login");
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/x", "/x"]);
  expect(upstream.calls.at(-1)?.get("x-app")).toBe("shop");
});

/** For each example that changes bodies, a function that serves it, and resolves to the URL of the changed body. */
const BODY_EXAMPLES: Readonly<Record<string, () => Promise<string>>> = {
  "docs/bodies.md: Changing bodies": async () => {
    const { default: proxy } = await importBlock<{ default: NodeProxy }>(
      "docs/bodies.md: Changing bodies",
      toUpstream(),
    );
    return start(proxy.nodeHandler);
  },
  "docs/bodies.md: Changing bodies (2)": async () => {
    await importBlock("docs/bodies.md: Changing bodies (2)");
    const { port, close } = await serveOn("h3", names.app);
    ending.push(close);
    return `http://127.0.0.1:${port}/page`;
  },
};

const PAGE = "<body>text";
/** Answers with `PAGE` and a strong validator, or with 204, 304 or 206 if the request asks for that. */
function replyWithPage(call: Call): void {
  const fields: [string, string][] = [
    ["Content-Type", "text/html"],
    ["ETag", '"strong"'],
    ["Accept-Ranges", "bytes"],
  ];
  if (call.target.includes("204")) call.reply(204, fields);
  else if (call.get("if-none-match") !== undefined) call.reply(304, fields);
  else if (call.get("range") !== undefined) {
    call.reply(206, [...fields, ["Content-Range", `bytes 0-3/${PAGE.length}`]], PAGE.slice(0, 4));
  } else if (call.method === "HEAD") {
    call.reply(200, [...fields, ["Content-Length", `${PAGE.length}`]]);
  } else call.reply(200, fields, PAGE);
}

test.each(Object.entries(BODY_EXAMPLES))(
  "%s: the page is changed, and 204, 304, HEAD and range requests are handled correctly",
  async (_, serveExample) => {
    const url = await serveExample();
    upstream.script = replyWithPage;
    const whole = await fetch(url);
    const text = await whole.text();
    expect([whole.status, text]).not.toEqual([200, PAGE]);
    expect(text).toMatch(/^<body><p>Preview<\/p>text$|^<BODY>TEXT$/);
    // The changed page has other byte ranges than the upstream's, so `Range` is not forwarded.
    const part = await fetch(url, { headers: { range: "bytes=0-3" } });
    expect([part.status, await part.text()]).toEqual([200, text]);
    const head = await fetch(url, { method: "HEAD" });
    const empty = await fetch(`${url}?204`);
    const unchanged = await fetch(url, { headers: { "if-none-match": '"other"' } });
    expect([head.status, empty.status, unchanged.status]).toEqual([200, 204, 304]);
    for (const { headers } of [whole, part, head]) {
      expect(headers.get("etag")).not.toBe('"strong"');
      expect(headers.get("accept-ranges")).toBeNull();
      expect([null, `${text.length}`]).toContain(headers.get("content-length"));
    }
    for (const { body } of [head, empty, unchanged]) expect(body).toBeNull();
  },
);

test("bodies: a 206 that the client has not requested passes unchanged", async () => {
  const url = await BODY_EXAMPLES["docs/bodies.md: Changing bodies"]?.();
  upstream.script = (call) =>
    call.reply(
      206,
      [
        ["Content-Type", "text/html"],
        ["Content-Range", "bytes 0-5/9"],
      ],
      "<body>",
    );
  const response = await fetch(`${url}`);
  expect([response.status, await response.text()]).toEqual([206, "<body>"]);
});

test("bodies: the field `email` is removed from JSON, even for a client that accepts gzip", async () => {
  const url = await BODY_EXAMPLES["docs/bodies.md: Changing bodies"]?.();
  upstream.script = (call) =>
    call.reply(
      200,
      [
        ["Content-Type", "application/json"],
        ["Content-Encoding", "gzip"],
      ],
      gzipSync('{"email":"a","name":"b"}'),
    );
  const response = await fetch(`${url}`, { headers: { "accept-encoding": "gzip" } });
  expect(await response.json()).toEqual({ name: "b" });
});

test("clients: the block's first proxy sends through a forward proxy, and the second through the runtime's fetch", async () => {
  await importBlock("docs/clients.md: Other HTTP clients", {
    "http://proxy.internal:3128": upstream.url,
  });
  const [viaProxy, own] = proxies as [NodeProxy, NodeProxy];
  await viaProxy.fetch(new Request("http://proxy.test/x"));
  expect(upstream.calls.at(-1)?.target).toBe(`${upstream.url}/x`);
  await own.fetch(new Request("http://proxy.test/y"));
  expect(upstream.calls.at(-1)?.target).toBe("/y");
});

test("clients: a server sends requests and WebSockets through undici", async () => {
  const { proxy, server } = await importBlock<{ proxy: NodeProxy; server: Server }>(
    "docs/clients.md: undici",
    {
      ...toUpstream(),
      "const proxy": "export const proxy",
      "const server": "export const server",
      "listen(3000)": 'listen(0, "127.0.0.1")',
    },
  );
  ending.push(() => proxy.close(1));
  ending.push(() => server.close());
  if (!server.listening) await once(server, "listening");
  const origin = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  await (await fetch(`http://${origin}/x`)).text();
  echoMessages(upstream);
  expect(await sayHello(`ws://${origin}/y`)).toBe("hello");
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/x", "/y"]);
  expect(proxy.stats()).toMatchObject({ requests: 2, tunnels: 1 });
});

const execute = promisify(execFile);

/** Runs a line in a shell, in which `npx fetchway` starts the command from the sources. */
async function runLine(line: string): Promise<string> {
  const command = `"${process.execPath}" "${root}/command/main.ts"`;
  const script = line.replace("npx fetchway", command);
  const env = { ...process.env, NO_COLOR: "1", NODE_OPTIONS: "" };
  const { stdout } = await execute("sh", ["-c", script], { cwd: folder, env });
  return stdout;
}

/** Returns the lines of a block that start the command. */
function linesOf(place: string): string[] {
  return readBlock(place)
    .split("\n")
    .map((line) => line.replace(/^\$ |\s+#.*/g, ""))
    .filter((line) => line.startsWith("npx fetchway"));
}

test("command: the command lines of the pages work with --inspect", async () => {
  const { cert, key } = certificate;
  writeFileSync(join(folder, "cert.pem"), cert);
  writeFileSync(join(folder, "key.pem"), key);
  const lines = [
    ...linesOf("docs/command.md: The command"),
    ...linesOf("docs/command.md: Routes and config files"),
    ...linesOf("docs/limits.md: HTTPS"),
    ...linesOf("docs/command.md: Several upstreams"),
    ...linesOf("docs/command.md: Streams"),
  ];
  expect(lines).toHaveLength(7);
  const outputs = await Promise.all(
    lines.map((line) => runLine(line.includes("--help") ? line : `${line} --inspect /api/x`)),
  );
  expect(outputs[0]).toMatch(/x-app: shop/);
  expect(outputs[1]).toMatch(/--port/);
  expect(outputs[2]).toMatch(/route \/api → http:\/\/localhost:4001[^]*GET \/x HTTP/);
  expect(outputs[3]).toMatch(/GET \/api\/x HTTP/);
  expect(outputs[4]).toMatch(/http:\/\/(?:127\.0\.0\.1|localhost):400[012]\b/);
  expect(outputs[5]).toMatch(/:4001\b/);
  expect(outputs[6]).toMatch(/localhost:400[01]\b/);
});

test("command: the config file has the routes that the page describes", async () => {
  const place = "docs/command.md: Routes and config files (2)";
  await withCopy(place, {}, async (copy) => {
    const inspect = (url: string): Promise<string> =>
      runLine(`npx fetchway --config "${fileURLToPath(copy)}" --inspect ${url}`);
    const [api, docs, rest] = await Promise.all(
      ["/api/x", "http://v2.docs.example/x", "/x"].map(inspect),
    );
    expect(api).toMatch(/http:\/\/127\.0\.0\.1:4001[^]*GET \/x HTTP/);
    expect(docs).toContain("http://127.0.0.1:4002");
    expect(rest).toMatch(/x-request-id: [\w-]{36}/);
  });
});

test("command: the conditions of routes choose the upstreams that the page describes", async () => {
  const [line = ""] = linesOf("docs/command.md: Conditions of a route");
  const outputs = await Promise.all(
    ['"POST /api/x"', "/api/x", "/x?v=2 -H 'cookie: a=b; beta=1'"].map((request) =>
      runLine(`${line} --inspect ${request}`),
    ),
  );
  expect(outputs[0]).toMatch(/route \/api \[POST\|PUT\] → http:\/\/localhost:4001/);
  expect(outputs[1]).toMatch(/route \/ → http:\/\/localhost:4000/);
  expect(outputs[2]).toMatch(/route \/ \[cookie: …, \?v=2\] → http:\/\/localhost:4002/);
});

test("command: the config file with several upstreams has the routes that the page describes", async () => {
  await withCopy("docs/command.md: Several upstreams (2)", {}, async (copy) => {
    const inspect = (url: string): Promise<string> =>
      runLine(`npx fetchway --config "${fileURLToPath(copy)}" --inspect ${url}`);
    const [all, api] = await Promise.all(["/x", "/api/x"].map(inspect));
    expect(all).toMatch(/http:\/\/10\.0\.0\.[12]:4000/);
    expect(api).toMatch(/http:\/\/10\.0\.0\.[34]\b/);
  });
});

test("docs/command.md: --inspect prints the output that its section shows", async () => {
  const place = "docs/command.md: What a request becomes";
  const [line = ""] = linesOf(place);
  const printed = (await runLine(line)).replaceAll(/ +/g, " ");
  const shown = readBlock(place).split("\n").slice(1);
  const expected = shown.map((each) => each.replaceAll(/ +/g, " ")).filter((each) => each !== " …");
  for (const each of expected) expect(printed).toContain(each.trim());
  expect(expected.length).toBeGreaterThan(10);
});

test("connections: the block creates a proxy with pool options, and closes the proxy", async () => {
  await importBlock("docs/connections.md: Connections");
  expect((await ask()).status).toBe(503);
  expect(proxies[0]?.stats()).toMatchObject({ created: 0 });
});

test("hooks: each hook is called", async () => {
  await importBlock("docs/hooks.md: Hooks");
  upstream.script = (call) => {
    call.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    call.reply(200, [["Server", "x"]], "body");
  };
  const response = await ask();
  expect(response.headers.get("server")).toBeNull();
  expect(upstream.calls.at(-1)?.get("x-request-id")).toMatch(/^[\w-]{36}$/);
  expect(logged).toEqual([["</a.css>"]]);
  upstream.script = (call) => call.close();
  const failed = await ask({ method: "POST" });
  expect([failed.status, await failed.text()]).toEqual([502, "Back soon."]);
  const { host } = new URL(upstream.url);
  expect(logged.at(-1)).toEqual([
    `connection_terminated: ${host} closed the connection without an answer (see its log; does it expect https://?)`,
  ]);
});

test("hooks: the end of a request is printed", async () => {
  const print = vi.spyOn(console, "log").mockImplementation(() => {});
  await importBlock("docs/hooks.md: Seeing what happens");
  await (await ask()).text();
  await expect.poll(() => print.mock.calls.length, { timeout: patience }).toBe(1);
  expect(print.mock.calls[0]?.slice(0, 5)).toEqual(["GET", "/a?b", upstream.url, 200, ""]);
  upstream.script = (call) => call.close();
  await (await ask({ method: "POST" })).text();
  await expect.poll(() => print.mock.calls.length, { timeout: patience }).toBe(2);
  expect(print.mock.calls[1]?.[4]).toMatch(/^connection_terminated: 127\.0\.0\.1:/);
});

test("hooks: `explain` shows the upstream request without sending it", async () => {
  const print = vi.spyOn(console, "log").mockImplementation(() => {});
  await importBlock("docs/hooks.md: What a request would become");
  expect(upstream.calls).toEqual([]);
  const [line, ...rows] = print.mock.calls.map((texts) => texts.join(" "));
  expect(line).toBe("GET /a");
  expect(rows).toContainEqual(expect.stringMatching(/^Host: .* the target's/));
  expect(rows).toContain("cookie is not forwarded: dropped");
});

test("hooks: tools can subscribe to the requests of all proxies", async () => {
  const { tracingChannel } = await import("node:diagnostics_channel");
  const { start: begun, error, asyncEnd } = tracingChannel("fetchway.request");
  const before = [begun, error, asyncEnd].map((channel) => channel.hasSubscribers);
  await importBlock("docs/hooks.md: Seeing what happens (2)");
  const after = [begun, error, asyncEnd].map((channel) => channel.hasSubscribers);
  expect([before, after]).toEqual([
    [false, false, false],
    [true, true, true],
  ]);
  const proxy = createProxy({ target: upstream.url });
  expect((await proxy.fetch(new Request("http://proxy.test/"))).status).toBe(200);
});

test("hooks: an interceptor prints each attempt", async () => {
  const print = vi.spyOn(console, "log").mockImplementation(() => {});
  await importBlock("docs/hooks.md: Interceptors");
  await ask();
  expect(print.mock.calls).toEqual([["GET", `${upstream.url}/a?b`, 200]]);
});

test("hooks: the interceptor sends a request to a second upstream if the first one refuses, and waits for its answer", async () => {
  const place = "docs/hooks.md: Interceptors (2)";
  const { fallback } = await importBlock<{ fallback: Interceptor }>(place, {
    "http://10.0.0.2:4000": upstream.url,
    "const fallback": "export const fallback",
  });
  // The answer comes after the 500 ms in which the first upstream has to answer.
  upstream.script = async (call) => {
    await pause(700);
    call.reply(200, [], "x");
  };
  const target = `http://127.0.0.1:${await findPort()}`;
  const proxy = createProxy({ target, interceptors: { request: [fallback] } });
  expect((await proxy.fetch(new Request("http://proxy.test/x"))).status).toBe(200);
  expect(upstream.calls.map((call) => call.target)).toEqual(["/x"]);
});

test("http2: the block runs, and two of its proxies use HTTP/2", async () => {
  const { createServer: createHttp2 } = await import("node:http2");
  const grpc = createHttp2((req, res) => void res.end(`HTTP/${req.httpVersion}`));
  const port = await listen(grpc);
  ending.push(() => new Promise((closed) => void grpc.close(closed)));
  vi.stubGlobal("target", `http://127.0.0.1:${port}`);
  await importBlock("docs/http2.md: HTTP/2 and gRPC", {
    "http://127.0.0.1:50051": `http://127.0.0.1:${port}`,
    "https://10.0.0.5": "https://127.0.0.1:1",
  });
  expect(proxies).toHaveLength(3);
  for (const proxy of proxies.slice(0, 2)) {
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    expect(await response.text()).toBe("HTTP/2.0");
  }
  ending.unshift(() => Promise.all(proxies.map((proxy) => proxy.close(1))));
});

test("redirects: the first proxy follows a redirect, and `redirectTargets` of the second proxy refuses it", async () => {
  await importBlock("docs/redirects.md: Redirects and second attempts");
  upstream.script = (call) =>
    call.target === "/a?b" ? call.reply(302, [["Location", "/there"]]) : call.reply(200, [], "x");
  const [within_, byPredicate] = proxies as [NodeProxy, NodeProxy];
  const request = (): Request => new Request("http://proxy.test/a?b");
  expect((await within_.fetch(request())).status).toBe(200);
  expect((await byPredicate.fetch(request())).status).toBe(302);
});

test("redirects: a status in `statusCodes` causes further attempts, and a proxy without retries makes none", async () => {
  await importBlock("docs/redirects.md: Redirects and second attempts (2)");
  let count = 0;
  upstream.script = (call) => call.reply(++count % 3 === 0 ? 200 : 503);
  const [twice, never] = proxies as [NodeProxy, NodeProxy];
  const request = (): Request => new Request("http://proxy.test/");
  expect((await twice.fetch(request())).status).toBe(200);
  expect((await never.fetch(request())).status).toBe(503);
  expect(count).toBe(4);
});

test("redirects: Location is rewritten as the block's comments say", async () => {
  const place = "docs/redirects.md: Rewriting";
  const code = readBlock(place);
  await importBlock(place, { "http://internal:4000": upstream.url });
  const rows = [...code.matchAll(/^\/\/ Location: (.+?) +(?:→ ([^\s,]+)|not changed)/gm)];
  expect(rows.length).toBe(4);
  for (const [, references = "", changed] of rows) {
    for (const each of references.split(", ")) {
      const sent = each.replace("http://internal:4000", upstream.url);
      upstream.script = (call) => call.reply(302, [["Location", sent]]);
      const { headers } = await ask({}, "/api/x");
      expect(headers.get("location"), each).toBe(changed ?? sent);
    }
  }
});

test("redirects: domain and path of cookies are rewritten", async () => {
  await importBlock("docs/redirects.md: Rewriting (2)");
  const cookies = ["a=1; Domain=internal.example; Path=/v2", "b=2; Domain=x.example; Path=/v2/c"];
  upstream.script = (call) =>
    call.reply(
      200,
      cookies.map((each): [string, string] => ["Set-Cookie", each]),
    );
  expect((await ask()).headers.getSetCookie()).toEqual([
    "a=1; Domain=shop.example; Path=/api",
    "b=2; Path=/v2/c",
  ]);
});

test("redirects: cookies of a remote upstream are rewritten as the block's comments say", async () => {
  const place = "docs/redirects.md: Cookies on http://localhost";
  const rows = [...readBlock(place).matchAll(/^\/\/ Set-Cookie: (.+?) +(?:→ (.+)|not changed)$/gm)];
  expect(rows).toHaveLength(2);
  await importBlock(place, { "https://shop.example": upstream.url });
  for (const [, sent = "", changed = sent] of rows) {
    upstream.script = (call) => call.reply(200, [["Set-Cookie", sent]]);
    expect((await ask()).headers.getSetCookie()).toEqual([changed]);
  }
});

test("security: X-Forwarded-For of a peer in the list is trusted", async () => {
  await importBlock("docs/security.md: Behind another proxy");
  const origin = await start((proxies[0] as NodeProxy).nodeHandler);
  await fetch(origin, { headers: { "x-forwarded-for": "203.0.113.7" } });
  expect(upstream.calls.at(-1)?.all("x-forwarded-for")).toEqual(["203.0.113.7, 127.0.0.1"]);
});

test("targets: a URL, a URL with TLS options, and a function are accepted", async () => {
  await importBlock("docs/targets.md: Targets", {
    "https://api.example": upstream.url,
    "https://10.0.0.5": "https://127.0.0.1:1",
  });
  const statuses = (await Promise.all(responses)).map(({ status }) => status);
  expect(statuses).toEqual([200, 502, 200]);
  const asked = upstream.calls.map(({ target }) => target).toSorted();
  expect(asked).toEqual(["/tenant/a?b", "/v1/a?key=k&b"]);
});

test("targets: apps in the same process respond to requests", async () => {
  names.app.get("/x", () => "the shop");
  await importBlock("docs/targets.md: Apps in this process");
  expect(await (await ask({}, "/shop/x")).text()).toBe("the shop");
  const texts = await Promise.all(responses.map(async (each) => (await each).text()));
  expect(texts).toEqual(["service", "room one", "service"]);
});

test("upstreams: several upstreams are one target, and are checked", async () => {
  upstream.script = (call) => call.reply(200);
  await importBlock("docs/upstreams.md: Several upstreams", {
    "http://10.0.0.1:4000": upstream.url,
    "http://10.0.0.2:4000": upstream.url.replace("127.0.0.1", "localhost"),
    '{ path: "/health" }': '{ path: "/health", interval: 20 }',
  });
  expect((await ask()).status).toBe(200);
  await expect
    .poll(() => upstream.calls.map(({ target }) => target), { timeout: patience })
    .toContain("/health");
});

test("upstreams: a response sets the cookie that keeps a client at its upstream", async () => {
  upstream.script = (call) => call.reply(200);
  await importBlock("docs/upstreams.md: Sessions", {
    "http://10.0.0.1:4000": upstream.url,
    "http://10.0.0.2:4000": upstream.url.replace("127.0.0.1", "localhost"),
    "const target": "globalThis.target",
  });
  const { target } = globalThis as unknown as { target: Balancer };
  const proxy = createProxy({ target });
  const response = await proxy.fetch(new Request("http://proxy.test/"));
  expect(response.headers.get("set-cookie")).toMatch(/^route=[\w-]{22}; /);
});

test("upstreams: if a stream ends without an event, the client gets the stream of another upstream", async () => {
  await importBlock("docs/upstreams.md: Streams that have not begun", {
    "http://10.0.0.1:4000": upstream.url,
    "http://10.0.0.2:4000": upstream.url.replace("127.0.0.1", "localhost"),
  });
  const body = (): string => (upstream.calls.length === 1 ? ": none\n\n" : "data: 1\n\n");
  upstream.script = (call) => call.reply(200, [["Content-Type", "text/event-stream"]], body());
  expect(await (await ask()).text()).toBe("data: 1\n\n");
  expect(new Set(upstream.calls.map((call) => call.get("host"))).size).toBe(2);
});

test("upstreams: the mirror gets a copy of a request", async () => {
  await importBlock("docs/upstreams.md: Mirroring", {
    "http://127.0.0.1:4001": upstream.url,
    "sample: 0.1": "sample: 1",
  });
  await ask();
  await expect
    .poll(() => upstream.calls.map(({ target }) => target), { timeout: patience })
    .toEqual(["/a?b", "/a?b"]);
});

test("websockets: WebSockets of an h3 app go through its middleware, which refuses some of them", async () => {
  await importBlock("docs/websockets.md: On Node, through the app's routes", toUpstream());
  expect(names.server.listenerCount("upgrade")).toBe(1);
  const plugins = served[0]?.plugins as ServerPlugin[];
  const options = { port: 0, hostname: "127.0.0.1", silent: true, gracefulShutdown: false };
  const server = serveH3(names.app, { ...options, plugins });
  await server.ready();
  ending.push(() => server.close(true));
  echoMessages(upstream);
  const url = `${server.url?.replace("http:", "ws:")}api/live`;
  await expect(sayHello(url)).rejects.toThrow("401");
  expect(upstream.calls).toEqual([]);
  expect(await sayHello(url, { headers: { authorization: "Basic YTpi" } })).toBe("hello");
});

test("websockets: the proxy of the block accepts WebSockets, and the app still serves its own pages", async () => {
  await importBlock("docs/websockets.md: On Node, directly to the proxy", {
    'createProxy({ target: "http://127.0.0.1:4000" })': `createProxy({ target: "${upstream.url}" })`,
  });
  expect(served[0]?.plugins).toEqual([expect.any(Function)]);
  const port = await listen(names.server);
  ending.push(() => names.server.close());
  upstream.script = async (call) => (await accept(call)).send("hello");
  const socket = new WebSocket(`ws://127.0.0.1:${port}/api/live`);
  const message = await within(new Promise((got) => socket.once("message", got)), "a message");
  expect(String(message)).toBe("hello");
  socket.terminate();
  const { port: same } = names.server.address() as AddressInfo;
  expect(await (await fetch(`http://127.0.0.1:${same}/`)).text()).toBe("the app itself");
});

test("websockets: onRequest refuses a WebSocket without a login, and passes the user on", async () => {
  await importBlock("docs/websockets.md: A login in onRequest", toUpstream());
  const port = await listen(names.server);
  ending.push(() => names.server.close());
  echoMessages(upstream);
  const url = `ws://127.0.0.1:${port}/live`;
  for (const cookie of ["", "session=forged", "xsession=2f9ad1"]) {
    const headers = { cookie, "x-user": "alice" };
    await expect(sayHello(url, { headers }), cookie).rejects.toThrow("401");
  }
  expect(upstream.calls).toEqual([]);
  const headers = { cookie: "theme=dark; session=2f9ad1", "x-user": "root" };
  expect(await sayHello(url, { headers })).toBe("hello");
  expect(upstream.calls[0]?.get("x-user")).toBe("alice");
});

test("websockets: Bun's servers accept the handlers", async () => {
  const preload = join(folder, "preload.ts");
  writeFileSync(
    preload,
    `globalThis.app = {};
     globalThis.serve = (app, { bun }) => {
       console.log(typeof bun.websocket.open, "served");
       setTimeout(() => process.exit(0), 0);
     };`,
  );
  await withCopy("docs/websockets.md: On Bun and Deno", {}, async (copy) => {
    const file = fileURLToPath(copy);
    await using program = startProgram("bun", ["run", "--preload", preload, file], { PORT: "0" });
    await program.ended();
    expect([program.code(), program.output()]).toEqual([0, expect.stringContaining("served")]);
  });
});

test("websockets: an app on Bun can have its own WebSockets along with the proxy's", async () => {
  const preload = join(folder, "preload.own.ts");
  writeFileSync(
    preload,
    `const { serve } = Bun;
     Bun.serve = (options) => {
       const server = serve(options);
       console.log("port", server.port);
       return server;
     };`,
  );
  echoMessages(upstream);
  const replaced = { [TARGET]: upstream.url };
  await withCopy("docs/websockets.md: On Bun and Deno (2)", replaced, async (copy) => {
    const file = fileURLToPath(copy);
    await using program = startProgram("bun", ["run", "--preload", preload, file], { PORT: "0" });
    const [, port] = await program.printed(/^port (\d+)$/m);
    expect(await sayHello(`ws://127.0.0.1:${port}/chat`)).toBe("lobby: hello");
    expect(await sayHello(`ws://127.0.0.1:${port}/live`)).toBe("hello");
    expect(program.code()).toBeUndefined();
  });
});

test("every code block that is assigned to this file is run", () =>
  expectAllRun("docs.run.test.ts"));
