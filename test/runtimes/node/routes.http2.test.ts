/** WebSockets over HTTP/2 (RFC 8441) that pass the app's routes and middleware: `attach(server, { routes: true })`. */
import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  createServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
} from "node:http2";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import { serve } from "srvx";
import { afterEach, describe, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../runtimes/node.ts";
import { unanswered } from "../../../runtimes/node/routed.ts";
import { acceptOf } from "../../../src/websocket/handshake.ts";
import { useApps } from "../../helpers/apps.ts";
import { ask, bridgeTo, connectTo, headOf } from "../../helpers/bridge.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { echoMessages, sayHello } from "../../helpers/handshake.ts";
import { until, within } from "../../helpers/wait.ts";
import { cookies, frameworks } from "./_routed.ts";

// An upgrade leaves `unanswered` when it is answered or its client disconnects. This hook runs after all other cleanup.
afterEach(() => until(() => unanswered.size === 0, "the end of all upgrades"));

const apps = useApps();
const { upstream } = apps;
const certificate = await makeCertificate();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** Opens a session, which is closed after the test. */
async function openSession(origin: string): Promise<ClientHttp2Session> {
  const session = await connectTo(origin, certificate.cert);
  closing.push(() => session.destroy());
  return session;
}

/** Asks for a WebSocket that is refused. Returns the head and the whole body of the response, and the stream's close code. */
async function refusal(
  session: ClientHttp2Session,
  fields: IncomingHttpHeaders,
): Promise<{ head: IncomingHttpHeaders; body: string; code: number | undefined }> {
  const stream = ask(session, fields);
  const head = await headOf(stream);
  const body = await within(text(stream), "the body");
  await until(() => stream.closed, "the end of the stream");
  return { head, body, code: stream.rstCode };
}

/** Makes the upstream answer each handshake with 101, and send all bytes back. Returns its open sockets. */
function switching(): Set<Socket> {
  const sockets = new Set<Socket>();
  upstream.script = async (call) => {
    const { socket, rest } = call.link.takeOver();
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => {});
    const lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"];
    const answer = `Sec-WebSocket-Accept: ${await acceptOf(call.get("sec-websocket-key") ?? "")}`;
    socket.write(`${[...lines, answer].join("\r\n")}\r\n\r\n`);
    socket.write(rest);
    socket.on("data", (data: Buffer) => socket.write(data)).resume();
  };
  return sockets;
}

/** Sends bytes through an open tunnel, and waits until they have come back. */
async function echo(stream: ClientHttp2Stream, sent: string, expected = sent): Promise<void> {
  let received = "";
  stream.on("data", (data: Buffer) => (received += data.toString()));
  stream.write(sent);
  await until(() => received.length >= expected.length, "the echo");
  expect(received).toBe(expected);
}

// Express does not support HTTP/2 servers.
const overHttp2 = Object.entries(frameworks).filter(([name]) => name !== "express");

describe.each(overHttp2)("%s", (name, start) => {
  const isWeb = ["h3", "srvx", "hono"].includes(name);

  async function open(options: Partial<CreateProxyOptions> = {}): Promise<ClientHttp2Session> {
    const proxy = createProxy({ target: upstream.url, ...options });
    closing.push(() => proxy.destroy());
    const server = await start(proxy, certificate);
    proxy.attach(server, { routes: true });
    return openSession(`https://localhost:${await apps.listen(server)}`);
  }

  test("a WebSocket carries messages, and the response that opens it has the fields and cookies of middleware", async () => {
    const sockets = echoMessages(upstream);
    const session = await open();
    expect(session.remoteSettings.enableConnectProtocol).toBe(true);
    const bridge = await apps.listen(bridgeTo(() => session));
    expect(await sayHello(`ws://127.0.0.1:${bridge}/`)).toBe("hello");
    const stream = ask(session, { ":path": "/chat?x=1", cookie: "x=1" });
    const head = await headOf(stream);
    expect(head).toMatchObject({ ":status": 200, "x-by": "app", "set-cookie": cookies });
    if (name === "hono") expect(head["x-frame-options"]).toBe("SAMEORIGIN");
    for (const field of ["content-length", "sec-websocket-accept", "upgrade", "fetchway-upgrade"]) {
      expect(head[field]).toBeUndefined();
    }
    const call = upstream.calls.at(-1);
    expect(call).toMatchObject({ method: "GET", target: "/chat?x=1", framing: { kind: "none" } });
    expect([call?.all("upgrade"), call?.all("cookie")]).toEqual([["websocket"], ["x=1"]]);
    expect(call?.headers.filter(([field]) => /^(?:fetchway|:)/i.test(field))).toEqual([]);
    stream.end();
    await until(() => sockets[1]?.readyState === WebSocket.CLOSED, "the end at the upstream");
    stream.resume();
    await until(() => stream.closed, "the end of the stream");
    expect(stream.rstCode).toBe(0);
  });

  test("a response of middleware is sent completely, and then the stream ends", async () => {
    const session = await open();
    for (const [path, status, body, field] of [
      ["/refused", 401, "no entry", "x-why"],
      ["/own", 204, "", "x-own"],
    ] as const) {
      const answer = await refusal(session, { ":path": path });
      expect(answer).toMatchObject({ head: { ":status": status }, body, code: 0 });
      expect(answer.head[field]).toBeDefined();
    }
    expect(upstream.calls).toEqual([]);
  });

  test("an exception of the app becomes the framework's 500", async () => {
    const { head } = await refusal(await open(), { ":path": "/broken" });
    expect(head[":status"]).toBe(500);
    expect(upstream.calls).toEqual([]);
  });

  test("a 403 of the upstream reaches the client completely, and bytes after the handshake are discarded", async () => {
    const session = await open();
    const body = "forbidden ".repeat(20_000);
    let early = "";
    upstream.script = (call) => {
      call.onData = (bytes) => (early += bytes.toString());
      call.reply(403, [["X-Up", "1"]], body);
    };
    const stream = ask(session);
    stream.write("GET /smuggled HTTP/1.1\r\n\r\n");
    expect(await headOf(stream)).toMatchObject({ ":status": 403, "x-up": "1" });
    stream.end();
    expect((await within(text(stream), "the body")) === body).toBe(true);
    await until(() => stream.closed, "the end of the stream");
    expect([stream.rstCode, early, upstream.calls.length]).toEqual([0, "", 1]);
  });

  test("if the app does not answer, the client gets 504 after `timeout`", async () => {
    const session = await open({ timeout: 200 });
    const { head, body } = await refusal(session, { ":path": "/never" });
    expect([head[":status"], body]).toEqual([504, "Gateway Timeout: http_response_timeout\n"]);
    expect(head["x-by"]).toBeUndefined();
  });

  test.runIf(isWeb).each(["/cloned", "/copied"])(
    "a copy of the request also opens the tunnel: %s",
    async (path) => {
      switching();
      const stream = ask(await open(), { ":path": path });
      expect((await headOf(stream))[":status"]).toBe(200);
      await echo(stream, "hello");
      expect(apps.only().target).toBe(path === "/copied" ? "/elsewhere" : path);
      expect(apps.only().all("fetchway-upgrade")).toEqual([]);
    },
  );
});

type App = (req: Http2ServerRequest, res: Http2ServerResponse) => unknown;

/** Serves an app on a `node:http2` server, which passes WebSockets to the app. */
async function serveNode(
  toApp: (proxy: NodeProxy) => App,
  options: Partial<CreateProxyOptions> = {},
): Promise<{ proxy: NodeProxy; session: ClientHttp2Session }> {
  const proxy = createProxy({ target: upstream.url, ...options });
  closing.push(() => proxy.destroy());
  const server = createServer(toApp(proxy));
  proxy.attach(server, { routes: true });
  return { proxy, session: await openSession(`http://127.0.0.1:${await apps.listen(server)}`) };
}

/** Serves an app on srvx over TLS, which passes WebSockets to the app. */
async function serveFetch(
  answer: (request: Request, proxy: NodeProxy) => Promise<Response>,
  options: Partial<CreateProxyOptions> = {},
): Promise<ClientHttp2Session> {
  const proxy = createProxy({ target: upstream.url, ...options });
  const server = serve({
    fetch: (given) => answer(given, proxy),
    plugins: [(created) => proxy.plugin(created, { routes: true })],
    tls: certificate,
    port: 0,
    hostname: "127.0.0.1",
    silent: true,
    gracefulShutdown: false,
  });
  closing.push(() => server.close(true));
  await server.ready();
  return openSession(`https://localhost:${new URL(server.url ?? "").port}`);
}

describe("streams of HTTP/2 clients", () => {
  test("bytes that the client sends before the 101 reach the upstream only after the 101", async () => {
    switching();
    const { session } = await serveNode((proxy) => proxy.nodeHandler);
    const stream = ask(session);
    stream.write("early ");
    expect((await headOf(stream))[":status"]).toBe(200);
    await echo(stream, "bytes", "early bytes");
  });

  test("the app can neither read, nor pause, nor write the stream of a tunnel", async () => {
    switching();
    const events: string[] = [];
    const { session } = await serveNode(({ nodeHandler }) => async (req, res) => {
      req.on("data", () => events.push("data"));
      await once(req, "end");
      events.push(req.method);
      // Koa sets this status by default.
      res.statusCode = 404;
      nodeHandler(req, res);
      await until(() => res.headersSent, "the head");
      req.pause();
      expect(res.write("no")).toBe(true);
      res.writeHead(500).end("no", () => events.push(`end, ${res.statusCode}`));
    });
    const stream = ask(session);
    stream.write("early ");
    expect((await headOf(stream))[":status"]).toBe(200);
    await until(() => events.length === 2, "the app's end");
    expect(events).toEqual(["GET", "end, 200"]);
    await echo(stream, "bytes", "early bytes");
  });

  test("a client that ends its direction still receives data", async () => {
    const sockets = switching();
    const { session } = await serveNode(({ nodeHandler }) => nodeHandler);
    const stream = ask(session);
    expect((await headOf(stream))[":status"]).toBe(200);
    const [socket] = [...sockets] as [Socket];
    socket.removeAllListeners("end");
    stream.end("question");
    await within(once(socket, "end"), "the end at the upstream");
    socket.end(", answer");
    expect(await within(text(stream), "the answer")).toBe("question, answer");
    await until(() => stream.closed, "the end of the stream");
    expect(stream.rstCode).toBe(0);
  });

  test.each([constants.NGHTTP2_CANCEL, constants.NGHTTP2_NO_ERROR])(
    "when the client resets its stream with %i, the app and the upstream see the end",
    async (code) => {
      const events: string[] = [];
      const { session } = await serveNode(({ nodeHandler }) => (req, res) => {
        events.push("request");
        res.on("close", () => events.push("close"));
        if (req.url !== "/never") nodeHandler(req, res);
      });
      const held = ask(session, { ":path": "/never" });
      await until(() => unanswered.size > 0 && events.length === 1, "the request");
      held.close(code);
      await until(() => unanswered.size === 0 && events.length === 2, "the end");
      expect(events).toEqual(["request", "close"]);

      upstream.script = () => {};
      const other = ask(session);
      const call = await upstream.call();
      other.close(code);
      await within(call.link.closed, "the end of the upstream's connection");
    },
  );

  test("if the client ends its stream before the response, the request's signal aborts, and the tunnel is closed", async () => {
    const sockets = switching();
    const aborted = vi.fn();
    const held = vi.fn();
    const session = await serveFetch(async (given, proxy) => {
      given.signal.addEventListener("abort", aborted);
      await proxy.fetch(given);
      held();
      return new Promise(() => {});
    });
    const stream = ask(session);
    await until(() => held.mock.calls.length === 1, "the tunnel");
    expect(sockets.size).toBe(1);
    stream.end();
    await until(() => aborted.mock.calls.length === 1 && sockets.size === 0, "the ends");
  });

  test.each([
    ["a missing version", { "sec-websocket-version": undefined }],
    ["another version", { "sec-websocket-version": "12" }],
    ["a malformed subprotocol", { "sec-websocket-protocol": "a b" }],
  ])("a handshake with %s gets 400, and does not reach the app", async (_, fields) => {
    const app = vi.fn();
    const { session } = await serveNode(() => app);
    const { head, body } = await refusal(session, fields);
    expect([head[":status"], head["sec-websocket-version"]]).toEqual([400, "13"]);
    expect(body).toMatch(/: http_request_error\n$/);
    expect(app).not.toHaveBeenCalled();
  });

  test("the handshake has the proxy's own key, even if the client sends a key", async () => {
    switching();
    const keys: unknown[] = [];
    const { session } = await serveNode(({ nodeHandler }) => (req, res) => {
      keys.push(req.headers["sec-websocket-key"]);
      nodeHandler(req, res);
    });
    const stream = ask(session, { "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" });
    expect((await headOf(stream))[":status"]).toBe(200);
    expect(apps.only().all("sec-websocket-key")).toEqual(keys);
    expect(keys).not.toContain("dGhlIHNhbXBsZSBub25jZQ==");
  });
});

describe("tunnels", () => {
  test("`stats()` counts the tunnel, and `destroy` ends it", async () => {
    const sockets = switching();
    const { session, proxy } = await serveNode(({ nodeHandler }) => nodeHandler);
    const stream = ask(session);
    expect((await headOf(stream))[":status"]).toBe(200);
    expect(proxy.stats()).toMatchObject({ tunnels: 1 });
    stream.resume();
    proxy.destroy();
    await until(() => stream.closed && sockets.size === 0, "the ends");
    expect(stream.rstCode).not.toBe(0);
  });

  test("only one of two concurrent calls of a proxy opens a tunnel, and the other call gets 500", async () => {
    const sockets = switching();
    const session = await serveFetch(
      async (given, proxy) => {
        const both = await Promise.all([proxy.fetch(given), proxy.fetch(given.clone())]);
        expect(new Set(both.map(({ status }) => status))).toEqual(new Set([204, 500]));
        const isOpen = given.url.endsWith("/open");
        return both.find(({ status }) => (status === 204) === isOpen) as Response;
      },
      { log: false },
    );
    const stream = ask(session, { ":path": "/open" });
    expect((await headOf(stream))[":status"]).toBe(200);
    await until(() => sockets.size === 1, "one tunnel");
    stream.close();
    // If the app returns the response of the refused call, no tunnel is opened.
    const { head, body } = await refusal(session, { ":path": "/closed" });
    expect([head[":status"], body]).toEqual([500, "Internal Server Error: proxy_internal_error\n"]);
    await until(() => sockets.size === 0, "the end of all tunnels");
  });

  test.each([
    ["204 of its own", () => new Response(null, { status: 204 })],
    [
      "403 with the fields of the proxy's response",
      ({ headers }: Response) => new Response("no", { status: 403, headers }),
    ],
    [
      "204 with another token",
      ({ headers }: Response) => {
        const changed = new Headers(headers);
        changed.set("fetchway-upgrade", crypto.randomUUID());
        return new Response(null, { status: 204, headers: changed });
      },
    ],
  ])("the tunnel is closed if the app responds with a %s", async (_, toAnswer) => {
    const sockets = switching();
    const session = await serveFetch(async (given, proxy) => toAnswer(await proxy.fetch(given)));
    const { head } = await refusal(session, {});
    expect([204, 403]).toContain(head[":status"]);
    await until(() => sockets.size === 0, "the end at the upstream");
  });

  test("the tunnel is closed, and the client gets 500, if middleware makes a field invalid", async () => {
    const sockets = switching();
    const { session } = await serveNode(({ nodeHandler }) => (req, res) => {
      nodeHandler(req, res);
      const getHeaderNames = res.getHeaderNames.bind(res);
      const getHeader = res.getHeader.bind(res);
      Object.assign(res, {
        getHeaderNames: () => [...getHeaderNames(), "x-bad"],
        getHeader: (field: string) => (field === "x-bad" ? "a\nb" : getHeader(field)),
      });
    });
    const report = vi.spyOn(console, "error").mockImplementation(() => {});
    const { head } = await refusal(session, {});
    report.mockRestore();
    expect(head[":status"]).toBe(500);
    await until(() => sockets.size === 0, "the end at the upstream");
  });
});

test("a response that the app sends after `timeout` is discarded", async () => {
  const events: string[] = [];
  const { session } = await serveNode(
    () => (_, res) => {
      res.stream.on("finish", () => {
        res.writeHead(200, { "x-late": "1" });
        res.write("late");
        res.end(() => events.push("end"));
      });
      res.setHeader("x-app", "1");
    },
    { timeout: 100 },
  );
  const { head, body } = await refusal(session, {});
  expect([head[":status"], head["x-app"], head["x-late"]]).toEqual([504, undefined, undefined]);
  expect(body).toBe("Gateway Timeout: http_response_timeout\n");
  await until(() => events.length === 1, "the late end");
});

test("a client cannot take over another client's WebSocket, even with the WebSocket's `Fetchway-Upgrade` token", async () => {
  switching();
  const tokens: (string | null)[] = [];
  const session = await serveFetch(
    (given, proxy) => {
      tokens.push(given.headers.get("fetchway-upgrade"));
      if (given.url.endsWith("/held")) return new Promise(() => {});
      return proxy.fetch(given.url.endsWith("/own") ? given : given.clone());
    },
    { log: false },
  );
  ask(session, { ":path": "/held" });
  await until(() => tokens.length === 1, "the first request");
  const stolen = { "fetchway-upgrade": tokens[0] as string };
  for (const path of ["/own", "/copied"]) {
    const stream = ask(session, { ":path": path, ...stolen });
    expect((await headOf(stream))[":status"]).toBe(200);
    await echo(stream, path);
    stream.close();
  }
  expect(new Set(tokens).size).toBe(3);
  expect(tokens.join()).not.toContain(", ");
  upstream.script = (call) => call.reply(200, [], "page");
  const page = session.request({ ":path": "/page", ...stolen });
  expect((await headOf(page))[":status"]).toBe(200);
  expect(tokens.at(-1)).toBe(null);
  for (const call of upstream.calls) expect(call.all("fetchway-upgrade")).toEqual([]);
  // `unanswered` still has the other upgrade, under two keys: its message and its token.
  expect(unanswered.size).toBe(2);
});
