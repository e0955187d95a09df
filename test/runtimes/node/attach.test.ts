/** Which upgrades of a server the proxy takes, and how the others are handled. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createSecureServer as createHttp2Server } from "node:http2";
import type { Duplex } from "node:stream";
import { describe, expect, test, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { createProxy, type NodeProxy } from "../../../runtimes/node.ts";
import { useApps } from "../../helpers/apps.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { echoMessages, handshake, offer, sayHello } from "../../helpers/handshake.ts";
import { until } from "../../helpers/wait.ts";
import { accept } from "../../helpers/websocket.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

/** Starts a server whose ordinary requests the app handles, except those for `/proxied` if there is a proxy. */
async function serveApp(proxy?: NodeProxy): Promise<{ server: Server; port: number }> {
  const server = createServer((req, res) => {
    if (proxy !== undefined && req.url?.startsWith("/proxied")) return proxy.nodeHandler(req, res);
    let body = "";
    req.setEncoding("latin1").on("data", (text: string) => (body += text));
    req.on("end", () => res.end(`the app's ${req.method} ${body}`));
  });
  return { server, port: await apps.listen(server) };
}

test("without attach, a handshake gets 501, and the error in onError says what to call", async () => {
  const onError = vi.fn();
  const proxy = createProxy({ target: upstream.url, onError });
  const port = await apps.serve("node", proxy.nodeHandler);
  const answer = await apps.ask(port, request("GET", "/", handshake));
  expect(answer).toMatchObject({ status: 501, text: "Not Implemented: http_request_error\n" });
  expect(answer.get("proxy-status")).toBe("fetchway; error=http_request_error");
  expect(upstream.calls).toEqual([]);
  expect(onError.mock.calls[0]?.[0]).toMatchObject({
    message: expect.stringMatching(/call proxy\.attach\(server\)/) as string,
  });
  // A request for another protocol is an ordinary request.
  expect((await apps.ask(port, request("GET", "/", offer("h2c")))).status).toBe(200);
});

test("without attach and without `onError`, the first handshake prints a line that says what to call", async () => {
  const printed = vi.spyOn(console, "error").mockImplementation(() => {});
  try {
    const port = await apps.serve("node", createProxy({ target: upstream.url }).nodeHandler);
    for (let i = 0; i < 2; i++) await apps.ask(port, request("GET", "/", handshake));
    await until(() => printed.mock.calls.length > 0, "the line");
    expect(printed.mock.calls).toEqual([
      [
        expect.stringMatching(
          /^fetchway: http_request_error: the request asks to switch to websocket, but the server does not hand over upgrades: make a proxy with createProxy, and call proxy\.attach\(server\), or give the server proxy\.plugin\b/,
        ),
      ],
    ]);
  } finally {
    printed.mockRestore();
  }
});

test("with `fetch` in place of the proxy's own client, a handshake gets 501", async () => {
  const onError = vi.fn();
  const { server, port } = await serveApp();
  createProxy({ target: upstream.url, onError, fetch: globalThis.fetch }).attach(server);
  const answer = await apps.ask(port, request("GET", "/", handshake));
  expect(answer).toMatchObject({ status: 501, text: "Not Implemented: http_request_error\n" });
  expect(answer.get("proxy-status")).toBe("fetchway; error=http_request_error");
  expect(upstream.calls).toEqual([]);
  expect(onError.mock.calls[0]?.[0]).toMatchObject({
    message: expect.stringMatching(
      /cannot switch a connection to websocket.*leave out `transport` and `fetch`/,
    ) as string,
  });
});

test.each(["node", "srvx", "h3", "hono"] as const)(
  "without attach, %s forwards a POST that offers h2c with its body",
  async (kind) => {
    const { nodeHandler, fetch } = createProxy({ target: upstream.url });
    const port = await apps.serve(kind, kind === "node" ? nodeHandler : fetch);
    const client = await apps.connect(port);
    const fields = [...offer("h2c"), ["HTTP2-Settings", "AAEAAEAA"]] as [string, string][];
    client.send(request("POST", "/", fields, "hello"));
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
    client.send(request("POST", "/", [...fields, ["Transfer-Encoding", "chunked"]]));
    client.send(chunk("hello "), chunk("world"), lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: "hello world" });
    expect(upstream.calls.map((call) => call.all("upgrade"))).toEqual([[], []]);
  },
);

const certificate = await makeCertificate();

describe("attach", () => {
  const trusting = { ca: certificate.cert };

  test("a server of node:http carries WebSockets", async () => {
    echoMessages(upstream);
    const { server, port } = await serveApp();
    createProxy({ target: upstream.url }).attach(server);
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
  });

  test("a server of node:https carries WebSockets, and X-Forwarded-Proto is https", async () => {
    echoMessages(upstream);
    const server = createSecureServer(certificate);
    const port = await apps.listen(server);
    createProxy({ target: upstream.url }).attach(server);
    expect(await sayHello(`wss://localhost:${port}/`, trusting)).toBe("hello");
    expect(apps.only().get("x-forwarded-proto")).toBe("https");
  });

  test("a server of node:http2 with allowHTTP1 carries WebSockets", async () => {
    echoMessages(upstream);
    const server = createHttp2Server({ ...certificate, allowHTTP1: true });
    const port = await apps.listen(server);
    createProxy({ target: upstream.url }).attach(server);
    expect(await sayHello(`wss://localhost:${port}/`, trusting)).toBe("hello");
  });

  test("a WebSocket reaches an upstream with TLS", async () => {
    const behind = createSecureServer(certificate);
    const sockets = new WebSocketServer({ server: behind });
    sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
    const upstreamPort = await apps.listen(behind);
    const { server, port } = await serveApp();
    const proxy = createProxy({
      target: { url: `https://localhost:${upstreamPort}`, tls: { ca: certificate.cert } },
    });
    proxy.attach(server);
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
    await proxy.close();
  });

  test.each(["srvx", "h3"] as const)(
    "%s: `proxy.plugin` attaches the proxy, and so does `attach` with the server that `serve` returned",
    async (kind) => {
      echoMessages(upstream);
      const proxy = createProxy({ target: upstream.url });
      const plugins = [proxy.plugin];
      const options = { port: 0, hostname: "127.0.0.1", silent: true, gracefulShutdown: false };
      const serveWith = async (more: object) => {
        if (kind === "srvx") {
          const { serve } = await import("srvx");
          return serve({ fetch: () => new Response("app"), ...options, ...more });
        }
        const { H3, serve } = await import("h3");
        return serve(
          new H3().all("/**", () => "app"),
          { ...options, ...more },
        );
      };
      const plugged = await serveWith({ plugins });
      const attached = await serveWith({});
      proxy.attach(attached);
      for (const server of [plugged, attached]) {
        await server.ready();
        const url = server.url?.replace("http:", "ws:") as string;
        expect(await sayHello(url)).toBe("hello");
        expect(await (await fetch(server.url as string)).text()).toBe("app");
        await server.close(true);
      }
      await proxy.close();
    },
  );

  test("`proxy.plugin` does nothing in a server of srvx on Bun", () => {
    const { plugin } = createProxy({ target: upstream.url });
    const server = { runtime: "bun", serve: vi.fn() };
    const { serve } = server;
    plugin(server);
    expect(server.serve).toBe(serve);
  });

  test.each([undefined, null, {}, createServer, { runtime: "bun", serve() {} }])(
    "`attach` refuses %o, which is not a Node server",
    (server) => {
      const { attach } = createProxy({ target: upstream.url });
      expect(() => attach(server as never)).toThrow(
        /^fetchway: attach\(server\) takes a server of node:http/,
      );
    },
  );

  test("a detached proxy takes no further upgrades, and its running tunnels stay open", async () => {
    echoMessages(upstream);
    const { server, port } = await serveApp();
    const detach = createProxy({ target: upstream.url }).attach(server);
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
    await once(socket, "open");
    detach();
    detach();
    expect(await apps.ask(port, request("GET", "/", handshake))).toMatchObject({
      text: "the app's GET ",
    });
    server.on("checkContinue", (_, res: ServerResponse) => res.end("another listener's"));
    const onRequest = vi.fn();
    server.on("request", onRequest);
    const expecting = request("POST", "/", [["Expect", "100-continue"]], "ab");
    expect((await apps.ask(port, expecting)).text).toBe("another listener's");
    expect(onRequest).not.toHaveBeenCalled();
    const echoed = once(socket, "message");
    socket.send("still here");
    expect(String(((await echoed) as [Buffer])[0])).toBe("still here");
    socket.terminate();
    // Another proxy can be attached to the server now.
    createProxy({ target: upstream.url }).attach(server);
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
  });

  test.each([
    { match: "/api" },
    "/api",
    () => true,
    /x/,
    { match: null },
    { matches: () => true },
    null,
  ])("`attach` refuses the options %o, which have no function `match`", (options) => {
    const { attach } = createProxy({ target: upstream.url });
    expect(() => attach(createServer(), options as never)).toThrow(
      /^fetchway: attach\(server, \{ match, routes \}\): use an object whose only options are `match`, a function/,
    );
  });
});

describe("upgrades that the proxy does not take", () => {
  const takesSocket = (req: IncomingMessage): boolean => req.url === "/socket";

  test("an upgrade that `match` excludes goes to other listeners, even if they are added later", async () => {
    echoMessages(upstream);
    const { server, port } = await serveApp();
    createProxy({ target: upstream.url }).attach(server, { match: takesSocket });
    const other = new WebSocketServer({ noServer: true });
    server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (req.url !== "/other") return;
      other.handleUpgrade(req, socket, head, (webSocket) => {
        webSocket.on("message", (data: Buffer) => webSocket.send(`other ${data.toString()}`));
      });
    });
    expect(await sayHello(`ws://127.0.0.1:${port}/socket`)).toBe("hello");
    expect(await sayHello(`ws://127.0.0.1:${port}/other`)).toBe("other hello");
    expect(upstream.calls.map((call) => call.target)).toEqual(["/socket"]);
  });

  test("each of two proxies on a server gets the upgrades that its own `match` accepts", async () => {
    echoMessages(upstream);
    const { server, port } = await serveApp();
    for (const name of ["a", "b"]) {
      const proxy = createProxy({ target: `${upstream.url}/${name}` });
      proxy.attach(server, { match: (req) => req.url === `/${name}` });
    }
    expect(server.listenerCount("upgrade")).toBe(1);
    expect(await sayHello(`ws://127.0.0.1:${port}/b`)).toBe("hello");
    expect(await sayHello(`ws://127.0.0.1:${port}/a`)).toBe("hello");
    expect(upstream.calls.map((call) => call.target)).toEqual(["/b/b", "/a/a"]);
  });

  test("an upgrade that no listener takes gets one response, and reaches no upstream", async () => {
    const { server, port } = await serveApp();
    const proxy = createProxy({ target: upstream.url });
    proxy.attach(server, { match: takesSocket });
    proxy.attach(server, { match: takesSocket });
    const answer = await apps.ask(port, request("GET", "/elsewhere", handshake));
    expect([200, 501]).toContain(answer.status);
    expect(upstream.calls).toEqual([]);
  });

  test("an exception of `match` is printed, and the request goes to the app, or gets 501 from an older Node", async () => {
    const report = vi.spyOn(console, "error").mockImplementation(() => {});
    const { server, port } = await serveApp();
    const match = ({ url = "" }: IncomingMessage): boolean => URL.canParse(new URL(url).href);
    createProxy({ target: upstream.url }).attach(server, { match });
    const refused = await apps.ask(port, request("GET", "//", handshake));
    // A server without `shouldUpgradeCallback` cannot take an upgrade back.
    expect(refused.status).toBe("shouldUpgradeCallback" in server ? 200 : 501);
    const answer = await apps.ask(port, request("GET", "//", [["Expect", "100-continue"]]));
    expect(answer).toMatchObject({ status: 200, text: "the app's GET " });
    expect(report.mock.calls.flat()).toEqual([expect.any(TypeError), expect.any(TypeError)]);
    report.mockRestore();
  });

  test("an upgrade that `match` excludes gets 501 if the app passes the request to `nodeHandler`", async () => {
    const proxy = createProxy({ target: upstream.url });
    const { server, port } = await serveApp(proxy);
    proxy.attach(server, { match: takesSocket });
    const answer = await apps.ask(port, request("GET", "/proxied", handshake));
    expect(answer.status).toBe(501);
    expect(upstream.calls).toEqual([]);
  });

  test("an upgrade that no listener takes is an ordinary request, whatever `shouldUpgradeCallback` returns", async () => {
    const options = { shouldUpgradeCallback: () => true } as object;
    const server = createServer(options, (req, res) => void req.pipe(res));
    const onConnection = vi.fn();
    server.on("connection", onConnection);
    const port = await apps.listen(server);
    createProxy({ target: upstream.url }).attach(server);
    const client = await apps.connect(port);
    for (const text of ["the first", "the second"]) {
      client.send(request("POST", "/", offer("tcp"), text));
      expect(await client.read()).toMatchObject({ status: 200, text });
    }
    expect(upstream.calls).toEqual([]);
    // With `shouldUpgradeCallback`, the server emits no "upgrade" for these requests, so the proxy need not pass
    // them back on a new connection.
    if ("shouldUpgradeCallback" in server) expect(onConnection).toHaveBeenCalledTimes(1);
  });

  test("a request for h2c reaches the app with its body, even if other code listens for upgrades", async () => {
    const { server, port } = await serveApp();
    createProxy({ target: upstream.url }).attach(server);
    for (const _ of ["without another listener", "with one"]) {
      const client = await apps.connect(port);
      const fields = [...offer("h2c"), ["HTTP2-Settings", "AAEAAEAA"]] as [string, string][];
      client.send(request("POST", "/", [["Content-Length", "11"], ...fields]), "hello");
      await until(() => server.listenerCount("upgrade") > 0, "the listener");
      client.send(" world");
      expect(await client.read()).toMatchObject({ text: "the app's POST hello world" });
      client.send(request("GET", "/"));
      expect(await client.read()).toMatchObject({ text: "the app's GET " });
      server.on("upgrade", () => {});
    }
    expect(upstream.calls).toEqual([]);
  });
});

describe("`proxy.upgrade` as the app's own listener", () => {
  test("WebSockets are carried, and a request for another protocol is forwarded once", async () => {
    echoMessages(upstream);
    const { server, port } = await serveApp();
    server.on("upgrade", createProxy({ target: upstream.url }).upgrade);
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
    upstream.script = (call) => call.reply(200, [], "plain");
    const client = await apps.connect(port);
    client.send(request("GET", "/", offer("h2c")));
    expect(await client.read()).toMatchObject({ status: 200, text: "plain" });
    expect(await client.rest()).toHaveLength(0);
  });

  test("a request for another protocol gets 400 if it has a body, because the server has not parsed the body", async () => {
    const { server, port } = await serveApp();
    server.on("upgrade", createProxy({ target: upstream.url }).upgrade);
    const answer = await apps.ask(port, request("POST", "/", offer("h2c"), "body"));
    expect(answer.status).toBe(400);
    expect(upstream.calls).toEqual([]);
  });
});

test("an upgrade request without `Host` gets 400, as Node answers any other request", async () => {
  const { server, port } = await serveApp();
  createProxy({ target: upstream.url }).attach(server);
  const head = request("GET", "/", handshake)
    .toString()
    .replace(/^Host:.*\r\n/im, "");
  expect((await apps.ask(port, Buffer.from(head))).status).toBe(400);
  expect(upstream.calls).toEqual([]);
});

test("only upgrades to the protocols of the option `upgrades` are carried", async () => {
  upstream.script = (call) => {
    const { socket, rest } = call.link.takeOver();
    call.reply("101 Switching Protocols", offer("tcp"), null);
    socket.write(rest);
    socket.on("data", (data: Buffer) => socket.write(data)).resume();
  };
  const { server, port } = await serveApp();
  createProxy({ target: upstream.url, upgrades: ["TCP"] }).attach(server);
  const client = await apps.connect(port);
  client.send(request("GET", "/", offer("tcp")), "any bytes");
  const head = await client.readHead();
  expect(head.status).toBe(101);
  expect(head.headers.map(([name, value]) => `${name}: ${value}`)).toEqual([
    "Connection: Upgrade",
    "Upgrade: tcp",
  ]);
  client.finish();
  expect((await client.rest()).toString()).toBe("any bytes");
  const answer = await apps.ask(port, request("GET", "/", handshake));
  expect(answer.text).toBe("the app's GET ");
});

test("an upgrade may be a POST, as Docker sends it, and may have `Content-Length: 0`, as Java sends it", async () => {
  upstream.script = async (call) => {
    if (call.get("upgrade") === "websocket") return void (await accept(call));
    call.link.takeOver();
    call.reply("101 Switching Protocols", offer("tcp"), null);
  };
  const { server, port } = await serveApp();
  createProxy({ target: upstream.url, upgrades: ["websocket", "tcp"] }).attach(server);
  const empty: [string, string][] = [["Content-Length", "0"]];
  for (const [method, fields] of [
    ["POST", [...offer("tcp"), ...empty]],
    ["POST", offer("tcp")],
    ["GET", [...empty, ...handshake]],
  ] as const) {
    const client = await apps.connect(port);
    client.send(`${method} / HTTP/1.1\r\nHost: a\r\n`);
    client.send(`${fields.map(([name, value]) => `${name}: ${value}`).join("\r\n")}\r\n\r\n`);
    const head = await client.readHead();
    expect(head.status).toBe(101);
    expect(upstream.calls.at(-1)?.method).toBe(method);
    client.socket.destroy();
  }
});

test("`signal` ends a tunnel on both sides, and leaves no listener behind", async () => {
  const controller = new AbortController();
  const add = vi.spyOn(controller.signal, "addEventListener");
  const remove = vi.spyOn(controller.signal, "removeEventListener");
  const sockets = echoMessages(upstream);
  const { server, port } = await serveApp();
  createProxy({ target: upstream.url, signal: controller.signal }).attach(server);
  expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
  await until(() => remove.mock.calls.length >= add.mock.calls.length, "no listener");

  const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
  await once(socket, "open");
  const ends = [socket, sockets[1] as WebSocket].map((each) => once(each, "close"));
  controller.abort();
  await Promise.all(ends);
});
