/** WebSockets of HTTP/2 clients (RFC 8441), whose upstream speaks HTTP/1.1. */
import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
} from "node:http2";
import { connect as dial, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { serve } from "srvx";
import { afterEach, describe, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import {
  createProxy,
  type CreateProxyOptions,
  type NodeProxy,
  type RequestEnd,
} from "../../../runtimes/node.ts";
import { acceptOf, isKey } from "../../../src/websocket/handshake.ts";
import { rfc } from "../../conformance/rfc.ts";
import { useApps } from "../../helpers/apps.ts";
import { ask, bridgeTo, connectTo, extended, headOf } from "../../helpers/bridge.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  HEADERS,
  PREFACE,
  RawConnection,
  RST_STREAM,
  SETTINGS,
  uint32,
} from "../../helpers/frames.ts";
import { echoMessages, sayHello } from "../../helpers/handshake.ts";
import { settled, until, within } from "../../helpers/wait.ts";
import { accept } from "../../helpers/websocket.ts";

const apps = useApps();
const { upstream } = apps;
const certificate = await makeCertificate();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Front {
  readonly proxy: NodeProxy;
  readonly server: Server;
  readonly port: number;
  readonly session: ClientHttp2Session;
  readonly ends: RequestEnd[];
}

/** Opens a session, which is closed after the test. */
async function openSession(origin: string): Promise<ClientHttp2Session> {
  const session = await connectTo(origin, certificate.cert);
  closing.push(() => session.destroy());
  return session;
}

/** Serves a proxy over HTTP/2 without TLS. */
async function serveProxy(
  options: Partial<CreateProxyOptions> = {},
  server: Http2Server = createServer(),
  attach: (proxy: NodeProxy, server: Http2Server) => unknown = (proxy) => proxy.attach(server),
): Promise<Front> {
  const ends: RequestEnd[] = [];
  const proxy = createProxy({
    target: upstream.url,
    onRequestEnd: (end) => void ends.push(end),
    ...options,
  });
  closing.push(() => proxy.destroy());
  server.on("request", proxy.nodeHandler);
  attach(proxy, server);
  const port = await apps.listen(server);
  return { proxy, server, port, ends, session: await openSession(`http://127.0.0.1:${port}`) };
}

/** Opens a tunnel. */
async function open(session: ClientHttp2Session): Promise<ClientHttp2Stream> {
  const stream = ask(session);
  expect((await headOf(stream))[":status"]).toBe(200);
  return stream;
}

/** Opens a tunnel, and returns both sides. */
async function openBoth(front: Front, sockets: Socket[]): Promise<[ClientHttp2Stream, Socket]> {
  const stream = await open(front.session);
  return [stream, sockets.at(-1) as Socket];
}

/** Makes the upstream answer each handshake with 101. Returns the upstream's sockets, which get the raw bytes. */
function switching(...fields: string[]): Socket[] {
  const sockets: Socket[] = [];
  upstream.script = async (call) => {
    const { socket } = call.link.takeOver();
    socket.removeAllListeners("end");
    sockets.push(socket.on("error", () => {}).resume());
    const lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"];
    const answer = `Sec-WebSocket-Accept: ${await acceptOf(call.get("sec-websocket-key") ?? "")}`;
    socket.write(`${[...lines, answer, ...fields].join("\r\n")}\r\n\r\n`);
  };
  return sockets;
}

/** Resolves when a socket or a stream is closed, also by an error. */
function closeOf(emitter: Socket | ClientHttp2Stream): Promise<void> {
  return new Promise((resolve) => void emitter.on("close", resolve));
}

async function receive(socket: Socket): Promise<string> {
  let received = "";
  socket.on("data", (data: Buffer) => (received += data.toString("latin1"))).resume();
  await within(once(socket, "end"), "the end of the direction");
  return received;
}

/** Opens a tunnel on stream 1 of a client that sends raw frames. */
async function openRaw(port: number): Promise<RawConnection> {
  const client = new RawConnection(dial(port, "127.0.0.1"), () => {}, PREFACE);
  closing.push(() => client.socket.destroy());
  const fields = Object.entries({ ":scheme": "http", ":authority": "a.test", ...extended });
  const block = Buffer.concat(fields.map(([name, value]) => field(name, value)));
  client.send(Buffer.from(PREFACE), frame(SETTINGS, 0, 0), frame(HEADERS, END_HEADERS, 1, block));
  await until(() => client.has(HEADERS), "the response");
  return client;
}

const servers: Record<string, (proxy: NodeProxy) => Promise<string>> = {
  async "node:http2 without TLS"(proxy) {
    const server = createServer(proxy.nodeHandler);
    proxy.attach(server);
    return `http://127.0.0.1:${await apps.listen(server)}`;
  },
  async "node:http2 with TLS"(proxy) {
    const server = createSecureServer({ ...certificate, allowHTTP1: true }, proxy.nodeHandler);
    proxy.attach(server);
    return `https://localhost:${await apps.listen(server)}`;
  },
  async srvx(proxy) {
    const server = serve({
      fetch: proxy.fetch,
      plugins: [proxy.plugin],
      tls: certificate,
      port: 0,
      hostname: "127.0.0.1",
      silent: true,
      gracefulShutdown: false,
    });
    closing.push(() => server.close(true));
    await server.ready();
    return `https://localhost:${new URL(server.url ?? "").port}`;
  },
};

describe.each(Object.entries(servers))("%s", (_, start) => {
  /** Starts the server, and a bridge through which `ws` can be its client. */
  async function openBridge(): Promise<string> {
    const proxy = createProxy({ target: upstream.url });
    closing.push(() => proxy.destroy());
    const session = await openSession(await start(proxy));
    return `ws://127.0.0.1:${await apps.listen(bridgeTo(() => session))}`;
  }

  test("the server announces WebSockets, and the proxy tunnels them", async () => {
    echoMessages(upstream);
    expect(await sayHello(await openBridge())).toBe("hello");
  });

  test("a tunnel carries compressed messages of 8 MB, subprotocols and close codes", async () => {
    const url = await openBridge();
    const large = Buffer.alloc(8_000_000, "large and ");
    upstream.script = async (call) => {
      const socket = await accept(call, "chat.v2");
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
      socket.on("close", (code, reason) => upstream.faults.push(`${code} ${String(reason)}`));
    };
    const client = new WebSocket(url, ["chat.v1", "chat.v2"]);
    await within(once(client, "open"), "the opening");
    expect([client.protocol, client.extensions]).toEqual(["chat.v2", "permessage-deflate"]);
    client.send(large);
    const [echoed] = (await within(once(client, "message"), "the echo")) as [Buffer];
    expect(echoed.equals(large)).toBe(true);
    client.close(4001, "bye");
    expect((await within(once(client, "close"), "the close"))[0]).toBe(4001);
    await until(() => upstream.faults.length > 0, "the upstream's close");
    expect(upstream.faults.splice(0)).toEqual(["4001 bye"]);
  });
});

describe("the handshake", () => {
  test("the upstream gets an HTTP/1.1 handshake with the proxy's own key", async () => {
    rfc("8441-5-fields", "6455-4.1-key", "6455-4.1-handshake-sent");
    switching(
      "Set-Cookie: a=1",
      "Set-Cookie: b=2",
      "Sec-WebSocket-Protocol: b",
      "Content-Length: 5",
    );
    const { session, ends } = await serveProxy({ via: "edge" });
    const stream = ask(session, {
      ":path": "/a//b?c=%2F",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      "sec-websocket-protocol": "a, b",
      cookie: "x=1",
      origin: "https://page.test",
    });
    const head = await headOf(stream);
    const call = apps.only();
    expect(call).toMatchObject({ method: "GET", target: "/a//b?c=%2F", framing: { kind: "none" } });
    expect(call.get("host")).toBe(upstream.authority);
    expect([call.get("connection"), call.get("upgrade")]).toEqual(["Upgrade", "websocket"]);
    const keys = call.all("sec-websocket-key");
    expect([keys.length, isKey(keys[0] ?? "")]).toEqual([1, true]);
    expect(keys[0]).not.toBe("dGhlIHNhbXBsZSBub25jZQ==");
    expect(call.get("sec-websocket-version")).toBe("13");
    expect(call.get("sec-websocket-protocol")).toBe("a, b");
    expect(call.get("cookie")).toBe("x=1");
    expect(call.get("origin")).toBe("https://page.test");
    expect(call.get("via")).toBe("2.0 edge");
    expect(call.get("x-forwarded-proto")).toBe("http");
    expect(call.headers.filter(([name]) => name.startsWith(":"))).toEqual([]);
    expect(head).toMatchObject({
      ":status": 200,
      "set-cookie": ["a=1", "b=2"],
      "sec-websocket-protocol": "b",
    });
    for (const name of ["sec-websocket-accept", "connection", "upgrade", "content-length"]) {
      expect(head[name]).toBeUndefined();
    }
    stream.close();
    await until(() => ends.length > 0, "the end");
    expect(ends[0]).toMatchObject({ method: "GET", status: 101, protocol: "websocket" });
  });

  test("the hooks see the handshake", async () => {
    switching();
    const { session } = await serveProxy({
      onRequest: ({ headers }, request) => {
        if (request.headers.get("cookie") === null) return new Response("log in", { status: 401 });
        headers.set("x-method", request.method);
        return undefined;
      },
      onResponse: (response) => response.headers.set("x-hook", String(response.status)),
    });
    const refused = ask(session);
    expect([(await headOf(refused))[":status"], await text(refused)]).toEqual([401, "log in"]);
    const head = await headOf(ask(session, { cookie: "id=1" }));
    expect(head).toMatchObject({ ":status": 200, "x-hook": "101" });
    expect(apps.only().get("x-method")).toBe("GET");
  });

  test.each<[status: number, what: string, fields: IncomingHttpHeaders]>([
    [400, "another version", { "sec-websocket-version": "8" }],
    [400, "a malformed subprotocol", { "sec-websocket-protocol": "a b" }],
    [400, "a malformed extension", { "sec-websocket-extensions": "a;;" }],
    [501, "another protocol", { ":protocol": "connect-udp" }],
  ])("the client gets %i for %s", async (status, _, fields) => {
    rfc("6455-4.2.1-validated", "6455-4.2.2-version", "6455-4.4-versions");
    const { session } = await serveProxy();
    const stream = ask(session, fields);
    const head = await headOf(stream);
    const version = status === 400 ? "13" : undefined;
    expect([head[":status"], head["sec-websocket-version"]]).toEqual([status, version]);
    expect(await text(stream)).toMatch(/: http_request_error\n$/);
    await until(() => stream.closed, "the end of the stream");
    expect(upstream.calls).toEqual([]);
  });

  test("a CONNECT without `:protocol` gets 405, also from a proxy's `upgrade`", async () => {
    for (const attach of [undefined, byUpgrade]) {
      const { session } = await serveProxy({}, createServer(), attach);
      const stream = session.request({ ":method": "CONNECT", ":authority": "other.test:1" });
      const head = await headOf(stream);
      expect([head[":status"], head["allow"]]).toEqual([405, expect.stringContaining("GET")]);
      stream.close();
    }
    expect(upstream.calls).toEqual([]);
  });

  test("the client gets 502 if Sec-WebSocket-Accept of the 101 is wrong, or if its subprotocol was not offered", async () => {
    const { session } = await serveProxy();
    const lines =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    upstream.script = (call) => {
      call.link.takeOver().socket.resume().write(`${lines}Sec-WebSocket-Accept: wrong\r\n\r\n`);
    };
    expect((await headOf(ask(session)))[":status"]).toBe(502);
    switching("Sec-WebSocket-Protocol: other");
    expect((await headOf(ask(session)))[":status"]).toBe(502);
    await until(() => upstream.openLinks === 0, "the end of the upstream's connections");
  });

  test("if the upstream refuses, the client gets its whole response, and bytes after the handshake are discarded", async () => {
    const { session, proxy } = await serveProxy();
    const body = "no ".repeat(200_000);
    let early = "";
    upstream.script = (call) => {
      call.onData = (bytes) => (early += bytes.toString());
      call.reply(401, [["WWW-Authenticate", "Basic"]], body);
    };
    const stream = ask(session);
    stream.write("early bytes");
    const head = await headOf(stream);
    expect([head[":status"], head["www-authenticate"]]).toEqual([401, "Basic"]);
    expect(await text(stream)).toBe(body);
    await until(() => stream.closed, "the end of the stream");
    expect([stream.rstCode, early]).toEqual([0, ""]);
    expect(proxy.stats()?.tunnels).toBe(0);
    // The session is still usable.
    switching();
    await open(session);
  });

  test("the handshake with the upstream is aborted when the client disconnects before the response", async () => {
    const { session, ends } = await serveProxy();
    upstream.script = () => {};
    const stream = ask(session);
    const call = await upstream.call();
    stream.close(constants.NGHTTP2_CANCEL);
    await within(call.link.closed, "the end of the upstream's connection");
    await until(() => ends.length > 0, "the end");
    expect(ends[0]?.status).toBe(499);
  });
});

describe("a tunnel", () => {
  test("bytes that either side sends right after the handshake are forwarded", async () => {
    const sockets: Socket[] = [];
    upstream.script = async (call) => {
      const { socket } = call.link.takeOver();
      sockets.push(socket);
      const answer = await acceptOf(call.get("sec-websocket-key") ?? "");
      const lines = "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
      socket.write(`${lines}Sec-WebSocket-Accept: ${answer}\r\n\r\nhello`);
    };
    const { session } = await serveProxy();
    const stream = ask(session);
    stream.write("early");
    await headOf(stream);
    stream.end();
    expect(await receive(sockets[0] as Socket)).toBe("early");
    sockets[0]?.end();
    expect(await text(stream)).toBe("hello");
  });

  test("when one side ends its direction, the tunnel stays open in the other direction", async () => {
    rfc("8441-5-end");
    const sockets = switching();
    const front = await serveProxy();
    const large = "answer".repeat(1_000_000);
    const [first, firstSocket] = await openBoth(front, sockets);
    first.end("question");
    expect(await receive(firstSocket)).toBe("question");
    firstSocket.end(large);
    expect((await text(first)) === large).toBe(true);
    const [second, secondSocket] = await openBoth(front, sockets);
    secondSocket.end("greeting");
    expect(await text(second)).toBe("greeting");
    second.end(large);
    expect((await receive(secondSocket)) === large).toBe(true);
    await until(() => front.ends.length === 2, "both ends");
    expect(front.ends.map(({ error }) => error)).toEqual([undefined, undefined]);
    await until(() => front.proxy.stats()?.closed === 2, "the end of the upstream's connections");
    expect([first.rstCode, second.rstCode]).toEqual([0, 0]);
  });

  test.each([constants.NGHTTP2_CANCEL, constants.NGHTTP2_NO_ERROR])(
    "the connection to the upstream is reset when the client resets its stream with %i",
    async (code) => {
      rfc("8441-5-end");
      const sockets = switching();
      const { port, ends, proxy } = await serveProxy();
      const client = await openRaw(port);
      client.send(frame(DATA, 0, 1, Buffer.from("half of a message")));
      const [socket] = sockets as [Socket];
      await within(once(socket, "data"), "the message");
      const seen: unknown[] = [];
      socket.on("end", () => seen.push("end"));
      socket.on("error", (error) => seen.push((error as NodeJS.ErrnoException).code));
      client.send(frame(RST_STREAM, 0, 1, uint32(code)));
      await until(() => socket.destroyed, "the end at the upstream");
      expect(seen).toEqual(["ECONNRESET"]);
      await until(() => ends.length > 0 && proxy.stats()?.closed === 1, "the end of the tunnel");
    },
  );

  test("the upstream's connection is closed when the client ends and then resets its stream", async () => {
    const sockets = switching();
    const { port, proxy } = await serveProxy();
    const client = await openRaw(port);
    const ended = once(sockets[0] as Socket, "end");
    const reset = frame(RST_STREAM, 0, 1, uint32(constants.NGHTTP2_CANCEL));
    client.send(frame(DATA, END_STREAM, 1, Buffer.from("question")), reset);
    await within(ended, "the end at the upstream");
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
  });

  test("the client's stream is reset with CONNECT_ERROR when the upstream resets, so it never looks complete", async () => {
    rfc("8441-5-end");
    const sockets = switching();
    const client = await openRaw((await serveProxy()).port);
    client.send(frame(DATA, 0, 1, Buffer.from("x")));
    sockets[0]?.write("half of a message");
    await until(() => client.has(DATA), "the message");
    sockets[0]?.resetAndDestroy();
    await until(() => client.resets.length > 0, "the reset");
    expect(client.resets).toEqual([[1, constants.NGHTTP2_CONNECT_ERROR]]);
    const isEnd = ({ type, flags }: { type: number; flags: number }): boolean =>
      type === DATA && (flags & END_STREAM) !== 0;
    expect(client.frames.some(isEnd)).toBe(false);
  });

  test("the tunnel ends when the client's session ends", async () => {
    const sockets = switching();
    const front = await serveProxy();
    const [, socket] = await openBoth(front, sockets);
    const closed = closeOf(socket);
    front.session.destroy();
    await within(closed, "the end at the upstream");
    await until(() => front.ends.length > 0, "the end");
  });

  test("the sender has to wait while the receiver does not read", async () => {
    const sockets = switching();
    const front = await serveProxy();
    const [stream, socket] = await openBoth(front, sockets);
    stream.pause();
    let sent = 0;
    const bytes = Buffer.alloc(65_536);
    const flood = (): void => {
      for (let room = true; room && sent < 512 * 1024 * 1024; sent += bytes.length) {
        room = socket.write(bytes);
      }
    };
    socket.on("drain", flood);
    flood();
    const before = process.memoryUsage().arrayBuffers;
    const down = await settled(() => socket.bytesWritten);
    expect(down).toBeLessThan(64 * 1024 * 1024);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(32 * 1024 * 1024);

    const [other, deaf] = await openBoth(front, sockets);
    deaf.pause();
    let up = 0;
    const pump = (): void => {
      for (let room = true; room && up < 512 * 1024 * 1024; up += bytes.length) {
        room = other.write(bytes);
      }
    };
    other.on("drain", pump);
    pump();
    expect(await settled(() => up)).toBeLessThan(64 * 1024 * 1024);
    // All bytes arrive once the receiver reads.
    let received = 0;
    deaf.on("data", (data: Buffer) => (received += data.length)).resume();
    other.removeListener("drain", pump);
    other.end();
    await within(once(deaf, "end"), "the end", 60_000);
    expect(received).toBe(up);
  });

  test("a tunnel that is silent for tunnelTimeout is closed on both sides", async () => {
    const sockets = switching();
    const front = await serveProxy({ tunnelTimeout: 2000 });
    const [stream, socket] = await openBoth(front, sockets);
    const closed = [closeOf(socket), closeOf(stream)];
    await within(Promise.all(closed), "the end of both sides");
    expect(stream.rstCode).not.toBe(0);
  });

  test("a tunnel that only the client has ended is closed after tunnelCloseTimeout", async () => {
    const sockets = switching();
    const front = await serveProxy({ tunnelCloseTimeout: 200 });
    const [stream] = await openBoth(front, sockets);
    stream.resume().end();
    await within(closeOf(stream), "the end of the stream");
    await until(() => front.ends.length > 0, "the end");
    expect(front.ends[0]?.error).toMatchObject({ code: "connection_read_timeout" });
  });

  test("several tunnels and requests share a session, and close() of the proxy ends the tunnels", async () => {
    const sockets = switching();
    const front = await serveProxy();
    const streams = await Promise.all([1, 2, 3].map(() => open(front.session)));
    expect(sockets).toHaveLength(3);
    upstream.script = (call) => call.reply(200, [], "page");
    const page = front.session.request({ ":path": "/page" });
    expect(await text(page)).toBe("page");
    streams.forEach((stream, i) => stream.write(`message ${i}`));
    const received = sockets.map(async (socket) =>
      String(((await once(socket, "data")) as [Buffer])[0]),
    );
    expect((await Promise.all(received)).toSorted()).toEqual([
      "message 0",
      "message 1",
      "message 2",
    ]);
    const ended = streams.map((stream) => closeOf(stream.resume()));
    await front.proxy.close();
    await within(Promise.all(ended), "the end of all streams");
    expect(front.proxy.stats()).toMatchObject({ tunnels: 3 });
  });

  test("the client gets 500, and the tunnel is closed, if an interceptor makes a field of the 101 invalid", async () => {
    const sockets = switching();
    const { session } = await serveProxy({
      interceptors: {
        request: [
          (next) => async (request, scope) => {
            const response = await next(request, scope);
            return { ...response, headers: [...response.headers, "x-bad", "a\nb"] };
          },
        ],
      },
    });
    const printed = vi.spyOn(console, "error").mockImplementation(() => {});
    expect((await headOf(ask(session)))[":status"]).toBe(500);
    expect(printed.mock.calls).toMatchObject([[{ status: 400 }]]);
    printed.mockRestore();
    await until(() => sockets[0]?.destroyed === true, "the end of the upstream's connection");
  });
});

function byUpgrade(proxy: NodeProxy, server: Http2Server): void {
  server.on("connect", proxy.upgrade);
}

describe("attach", () => {
  const announcing = { settings: { enableConnectProtocol: true } };
  const isAnnounced = ({ remoteSettings }: ClientHttp2Session): boolean | undefined =>
    remoteSettings.enableConnectProtocol;

  test("the server announces WebSockets only while a proxy that takes them is attached without `match`", async () => {
    const secret = createServer();
    const proxy = createProxy({ target: upstream.url });
    const origin = `http://127.0.0.1:${await apps.listen(secret)}`;
    const states: (boolean | undefined)[] = [];
    const note = async (): Promise<unknown> => states.push(isAnnounced(await openSession(origin)));
    await note();
    proxy.attach(secret, { match: () => true });
    await note();
    const detach = proxy.attach(secret);
    await note();
    detach();
    await note();
    createProxy({ target: upstream.url, upgrades: ["tcp"] }).attach(secret);
    await note();
    expect(states).toEqual([false, false, true, false, false]);
  });

  test("WebSockets that `match` excludes go to other listeners for `connect`, or get 501", async () => {
    switching();
    const match = ({ url }: { url?: string | undefined }): boolean => url === "/ours";
    const front = await serveProxy({}, createServer(announcing), (proxy, server) =>
      proxy.attach(server, { match }),
    );
    expect((await headOf(ask(front.session, { ":path": "/ours" })))[":status"]).toBe(200);
    expect((await headOf(ask(front.session)))[":status"]).toBe(501);
    front.server.on(
      "connect",
      (_: unknown, res: { writeHead(status: number): { end(): void } }) => {
        if (!("stream" in res)) return;
        if (!(res as { headersSent?: boolean }).headersSent) res.writeHead(418).end();
      },
    );
    expect((await headOf(ask(front.session)))[":status"]).toBe(418);
  });

  test("with `routes`, the server also announces WebSockets, and they go through the app", async () => {
    switching();
    const server = createServer((_, res) => void res.writeHead(401).end());
    const proxy = createProxy({ target: upstream.url });
    proxy.attach(server, { routes: true, match: ({ url }) => url === "/login" });
    const detach = proxy.attach(server);
    const origin = `http://127.0.0.1:${await apps.listen(server)}`;
    const session = await openSession(origin);
    expect(isAnnounced(session)).toBe(true);
    expect((await headOf(ask(session, { ":path": "/login" })))[":status"]).toBe(401);
    expect((await headOf(ask(session)))[":status"]).toBe(200);
    detach();
    expect(isAnnounced(await openSession(origin))).toBe(false);
    proxy.attach(server, { routes: true });
    const routed = await openSession(origin);
    expect(isAnnounced(routed)).toBe(true);
    expect((await headOf(ask(routed)))[":status"]).toBe(401);
  });

  test("`attach` is not needed if `proxy.upgrade` is a listener for `connect`", async () => {
    switching();
    const front = await serveProxy({}, createServer(announcing), byUpgrade);
    await open(front.session);
  });

  test("`attach` does not throw for a server without `updateSettings`", async () => {
    const server = createSecureServer(certificate);
    Object.assign(server, { updateSettings: undefined });
    expect(() => createProxy({ target: upstream.url }).attach(server)).not.toThrow();
  });
});
