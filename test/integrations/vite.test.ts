/** The plugin for Vite, in real Vite servers: development, preview and middleware mode. */
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import {
  createServer as createNodeServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  createLogger,
  createServer,
  type InlineConfig,
  type Plugin,
  preview,
  type ViteDevServer,
} from "vite";
import { WebSocket } from "ws";
import { viteProxy, type ViteRoutes } from "../../integrations/vite.ts";
import { connect } from "../helpers/client.ts";
import { findPort } from "../helpers/serve.ts";
import { echo, Upstream } from "../helpers/upstream.ts";
import { pause, until, within } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";
import { type Header, request } from "../helpers/wire.ts";

const upstream = new Upstream();
let root: string;

beforeAll(async () => {
  await upstream.listen();
  root = await mkdtemp(join(tmpdir(), "fetchway-vite-"));
  await mkdir(join(root, "dist"));
  const page = '<script type="module" src="/main.js"></script>page of Vite';
  await writeFile(join(root, "index.html"), page);
  await writeFile(join(root, "dist/index.html"), page);
  await writeFile(join(root, "main.js"), "import.meta.hot?.accept(); export const n = 1;");
});
afterEach(() => upstream.reset());
afterAll(async () => {
  await upstream.stop();
  await rm(root, { recursive: true });
});

interface Running {
  readonly origin: string;
  /** The errors that were logged. */
  readonly logged: string[];
  /** The notices of the plugin that were logged. */
  readonly notices: string[];
  /** The token that Vite's own WebSocket requires. */
  readonly token: string;
  close(): Promise<unknown>;
}

function originOf(server: { address(): unknown } | null): string {
  const address = server?.address() as AddressInfo | undefined;
  return `http://127.0.0.1:${address?.port}`;
}

function tokenOf({ config }: ViteDevServer): string {
  // The property is deprecated because apps do not need it. This test does, because it acts as Vite's client.
  // oxlint-disable-next-line typescript/no-deprecated
  return config.webSocketToken;
}

function configure(plugin: Plugin, logged: string[], notices: string[] = []): InlineConfig {
  const customLogger = createLogger("silent");
  customLogger.error = (message) => void logged.push(message);
  customLogger.info = (message) => void (message.startsWith("fetchway:") && notices.push(message));
  return {
    root,
    configFile: false,
    customLogger,
    plugins: [plugin],
    server: { port: 0, host: "127.0.0.1" },
    preview: { port: 0, host: "127.0.0.1" },
    optimizeDeps: { noDiscovery: true },
  };
}

async function startDev(routes: ViteRoutes): Promise<Running> {
  const [logged, notices]: [string[], string[]] = [[], []];
  const server = await createServer(configure(viteProxy(routes), logged, notices));
  await server.listen();
  const close = (): Promise<void> => server.close();
  return { origin: originOf(server.httpServer), logged, notices, token: tokenOf(server), close };
}

async function startPreview(routes: ViteRoutes): Promise<Running> {
  const [logged, notices]: [string[], string[]] = [[], []];
  const server = await preview(configure(viteProxy(routes), logged, notices));
  const close = (): Promise<void> => server.close();
  return { origin: originOf(server.httpServer), logged, notices, token: "", close };
}

/** Called with each request before Vite. Returns whether it has answered the request. */
type InFront = (req: IncomingMessage, res: ServerResponse) => boolean;

async function startMiddleware(routes: ViteRoutes, inFront?: InFront): Promise<Running> {
  const logged: string[] = [];
  const plugin = viteProxy(routes);
  const http: Server = createNodeServer();
  const notices: string[] = [];
  const config = configure(plugin, logged, notices);
  const server = { middlewareMode: true, hmr: { server: http } };
  const vite = await createServer({ ...config, server });
  http.on("request", (req, res) => {
    if (inFront?.(req, res) !== true) vite.middlewares(req, res);
  });
  plugin.api.attach(http, { routes: inFront !== undefined });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const close = async (): Promise<void> => {
    await vite.close();
    http.close().closeAllConnections();
  };
  return { origin: originOf(http), logged, notices, token: tokenOf(vite), close };
}

/** Opens a WebSocket, and collects the messages that it receives. */
async function open(url: string, protocol?: string): Promise<[WebSocket, string[]]> {
  const socket = new WebSocket(url.replace("http:", "ws:"), protocol);
  const messages: string[] = [];
  socket.on("message", (data: Buffer) => messages.push(data.toString()));
  await within(once(socket, "open"), `the opening of ${url}`);
  return [socket, messages];
}

/** Expects that a WebSocket to the upstream carries a message in each direction. */
async function expectEcho(url: string): Promise<WebSocket> {
  upstream.script = async (call) => {
    const socket = await accept(call);
    socket.on("message", (data: Buffer) => socket.send(`echo of ${data.toString()}`));
  };
  const [socket, messages] = await open(url);
  socket.send("a message");
  await until(() => messages.length > 0, "the echo");
  expect(messages).toEqual(["echo of a message"]);
  return socket;
}

describe.each([
  ["the dev server", startDev],
  ["the preview server", startPreview],
  ["middleware mode", startMiddleware],
])("with the plugin in %s", (_, start) => {
  let running: Running;
  beforeAll(async () => {
    running = await start({
      "/api": upstream.url,
      "/api/v2/": { target: `${upstream.url}/base`, stripPrefix: "/api/v2" },
    });
  });
  afterAll(() => running.close());

  test("requests below a prefix are forwarded, with their bodies", async () => {
    const response = await fetch(`${running.origin}/api/a?b=%2F`, { method: "POST", body: "text" });
    expect(await response.text()).toBe("text");
    expect((await upstream.call()).target).toBe("/api/a?b=%2F");
    await fetch(`${running.origin}/api?c`);
    expect((await upstream.call(1)).target).toBe("/api?c");
  });

  test("the options of the longest prefix apply", async () => {
    await fetch(`${running.origin}/api/v2/a`);
    expect((await upstream.call()).target).toBe("/base/a");
  });

  test("requests below none of the prefixes go to Vite", async () => {
    for (const path of ["/", "/apix"]) {
      const response = await fetch(running.origin + path, { headers: { accept: "text/html" } });
      expect(await response.text()).toContain("page of Vite");
    }
    expect(upstream.calls).toEqual([]);
  });

  test("CVE-2025-24010: a page of another site can read neither Vite's responses nor the upstream's", async () => {
    const { port } = new URL(running.origin);
    for (const path of ["/api/a", "/api/v2/a", "/"]) {
      const client = await connect(Number(port));
      // A host name that an attacker made to resolve to this machine.
      client.send(request("GET", path, [["Host", `evil.test:${port}`]]));
      expect((await client.read()).status, path).toBe(403);
      expect(upstream.calls).toEqual([]);
      const other: Header[] = [
        ["Host", `127.0.0.1:${port}`],
        ["Origin", "http://evil.test"],
      ];
      client.send(request("GET", path, other));
      const answer = await client.read();
      expect(answer.all("access-control-allow-origin"), path).toEqual([]);
      client.leave("FIN");
      await upstream.reset();
    }
  });

  test("WebSockets below a prefix are forwarded", async () => {
    const socket = await expectEcho(`${running.origin}/api/socket`);
    expect((await upstream.call()).target).toBe("/api/socket");
    socket.close();
  });
});

describe.each([
  ["the dev server", startDev],
  ["middleware mode", startMiddleware],
])("in %s", (_, start) => {
  // The prefix "/" also covers the path of Vite's own WebSocket.
  test.each(["/api", "/"])(
    "hot updates arrive although WebSockets below %s are forwarded to the upstream",
    async (prefix) => {
      const running = await start({ [prefix]: upstream.url });
      try {
        const socket = await expectEcho(`${running.origin}/api/socket`);
        const own = `${running.origin}/?token=${running.token}`;
        const [updates, messages] = await open(own, "vite-hmr");
        await until(() => messages.length > 0, "Vite's greeting");
        expect(messages[0]).toBe('{"type":"connected"}');
        if (prefix === "/api") {
          // Vite sends updates only for modules that it has served.
          expect(await (await fetch(`${running.origin}/main.js`)).text()).toContain("n = ");
        }
        // Change the files until the watcher, which may not be ready yet, has seen a change.
        for (let n = 0; messages.length < 2 && n < 300; n++) {
          await writeFile(
            join(root, "main.js"),
            `import.meta.hot?.accept(); export const n = ${n};`,
          );
          await writeFile(join(root, "index.html"), `page of Vite ${n}`);
          await pause(50);
        }
        expect(messages[1]).toMatch(/"type":"(?:update|full-reload)"/);
        expect(upstream.calls).toHaveLength(1);
        expect(socket.readyState).toBe(WebSocket.OPEN);
        socket.close();
        updates.close();
      } finally {
        await running.close();
      }
    },
  );
});

test("in middleware mode with `routes`, WebSockets for the upstream go through the app, and Vite's own do not", async () => {
  const seen: (string | undefined)[] = [];
  const running = await startMiddleware({ "/": upstream.url }, (req, res) => {
    seen.push(req.url);
    const isRefused = req.url === "/refused";
    if (isRefused) res.writeHead(401).end();
    return isRefused;
  });
  try {
    const socket = await expectEcho(`${running.origin}/api/socket`);
    socket.close();
    const [own] = await open(`${running.origin}/?token=${running.token}`, "vite-hmr");
    own.close();
    await expect(open(`${running.origin}/refused`)).rejects.toThrow("401");
    expect(seen).toEqual(["/api/socket", "/refused"]);
  } finally {
    await running.close();
  }
});

test("a WebSocket that is neither the upstream's nor Vite's goes to other listeners", async () => {
  const logged: string[] = [];
  const server = await createServer(configure(viteProxy({ "/api": upstream.url }), logged));
  try {
    await server.listen();
    const taken: (string | undefined)[] = [];
    server.httpServer?.on("upgrade", (req: IncomingMessage, socket: Duplex) => {
      taken.push(req.url);
      socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    });
    const socket = new WebSocket(`${originOf(server.httpServer)}/other`.replace("http:", "ws:"));
    const [error] = (await within(once(socket, "error"), "the refusal")) as [Error];
    expect(error.message).toContain("403");
    expect(taken).toEqual(["/other"]);
    expect(upstream.calls).toEqual([]);
  } finally {
    await server.close();
  }
});

test("with `wait: 0`, a dead upstream becomes 502, and Vite's logger reports it unless the route has onError", async () => {
  const url = `http://127.0.0.1:${await findPort()}`;
  const seen: string[] = [];
  const running = await startDev({
    "/a": { target: url, wait: 0 },
    "/b": { target: url, wait: 0, onError: (error) => void seen.push(error.code) },
  });
  try {
    expect((await fetch(`${running.origin}/a/path?query`)).status).toBe(502);
    expect(running.logged).toHaveLength(1);
    expect(running.logged[0]).toMatch(
      /^fetchway: GET \/a\/path: 502 connection_refused: 127\.0\.0\.1:\d+ \(is it running\?\)$/,
    );
    expect((await fetch(`${running.origin}/b`)).status).toBe(502);
    expect(seen).toEqual(["connection_refused"]);
    expect(running.logged).toHaveLength(1);
    expect(running.notices).toEqual([]);
  } finally {
    await running.close();
  }
});

test.each([
  ["the dev server", startDev],
  ["the preview server", startPreview],
])("%s lets requests and WebSockets wait for an upstream that restarts", async (_, start) => {
  const port = await findPort();
  const url = `http://127.0.0.1:${port}`;
  const after = new Upstream();
  const running = await start({ "/api": { target: url, wait: 60_000 } });
  try {
    const socket = open(`${running.origin}/api/live`);
    await until(() => running.notices.length > 0, "the notice");
    expect(running.notices).toEqual([`fetchway: requests wait for ${url} (connection refused)`]);
    const posted = fetch(`${running.origin}/api/post`, { method: "POST", body: "abc" });
    after.script = async (call) => {
      if (call.method === "GET") await accept(call);
      else await echo(call);
    };
    await after.listen(port);
    expect(await (await posted).text()).toBe("abc");
    (await socket)[0].terminate();
    await until(() => running.notices.length > 1, "the notice of the end");
    expect(running.notices[1]).toMatch(
      /^fetchway: http:\S+ is back after [\d.]+ s; \d requests? ha/,
    );
    expect(running.logged).toEqual([]);
  } finally {
    await running.close();
    await after.stop();
  }
});

test("by default, requests wait 5 s for an upstream and then get 503, and Vite's logger reports the reason", async () => {
  const url = `http://127.0.0.1:${await findPort()}`;
  const running = await startDev({ "/a": url });
  try {
    const begin = performance.now();
    expect((await fetch(`${running.origin}/a`)).status).toBe(503);
    expect(performance.now() - begin).toBeGreaterThan(4_900);
    expect(running.logged.join()).toMatch(
      /^fetchway: GET \/a: 503 destination_unavailable: .*wait: 5000 ms/,
    );
  } finally {
    await running.close();
  }
});

describe("mistakes in the routes of the plugin", () => {
  test.each<[string, unknown, string]>([
    [
      "a regular expression as a prefix",
      { "^/api/.*": "http://a.test" },
      'viteProxy "^/api/.*": bad prefix: use a path such as "/api", not a regular expression',
    ],
    [
      "a prefix without a slash",
      { api: "http://a.test" },
      'viteProxy "api": bad prefix: use a path such as "/api"',
    ],
    [
      "`ws: true`",
      { "/live": { target: "http://a.test", ws: true } },
      'viteProxy "/live": bad option `ws`: the plugin forwards WebSockets without it; leave it out',
    ],
    [
      "`ws: false`",
      { "/live": { target: "http://a.test", ws: false } },
      'viteProxy "/live": bad option `ws`: the plugin forwards WebSockets without it; write `upgrades: []`',
    ],
    [
      "options without a target",
      { "/api": { changeOrigin: true } },
      'viteProxy "/api": createProxy(options) takes one object such as { target: "http://127.0.0.1:4000" }',
    ],
    [
      "an option that needs another one",
      { "/api": { target: "http://a.test", redirectTargets: "any" } },
      'viteProxy "/api": `redirectTargets` does nothing without `followRedirects`; set that too',
    ],
    [
      "one wrong option beside `redirectTargets`",
      {
        "/api": {
          target: "http://a.test",
          followRedirects: true,
          redirectTargets: "any",
          timeout: -1,
        },
      },
      'viteProxy "/api": bad option `timeout`: use whole milliseconds, 0 for no limit',
    ],
    [
      "no routes",
      undefined,
      'viteProxy(routes) takes an object such as { "/api": "http://127.0.0.1:4000" }',
    ],
  ])("`viteProxy` refuses %s", (_, routes, message) => {
    expect(() => viteProxy(routes as ViteRoutes)).toThrow(new TypeError(`fetchway: ${message}`));
  });

  test("`viteProxy` reports all mistakes in one error, each with its route", () => {
    const rules = {
      "/api": { target: "localhost:4000", rewrite: (path: string) => path, ws: true },
      "/good": "http://a.test",
      "^/old": "localhost:5000",
    };
    expect(() => viteProxy(rules as ViteRoutes)).toThrow(
      new TypeError(
        [
          'viteProxy "/api": bad target "localhost:4000": write "http://localhost:4000"',
          'viteProxy "/api": bad option `rewrite`: it is called `pathRewrite` here',
          'viteProxy "/api": bad option `ws`: the plugin forwards WebSockets without it; leave it out',
          'viteProxy "^/old": bad prefix: use a path such as "/api", not a regular expression',
          'viteProxy "^/old": bad target "localhost:5000": write "http://localhost:5000"',
        ]
          .map((line) => `fetchway: ${line}`)
          .join("\n"),
      ),
    );
  });
});
