/** WebSockets to HTTP/2 upstreams: over HTTP/2 if the upstream announces them (RFC 8441), otherwise over HTTP/1.1. */
import { once } from "node:events";
import {
  createServer as createHttp,
  type IncomingMessage,
  type Server as HttpServer,
} from "node:http";
import {
  connect,
  constants,
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { createProxy, type NodeProxy, type RequestEnd } from "../../../../runtimes/node.ts";
import type { PoolOptions } from "../../../../src/options/pooloptions.ts";
import { rfc } from "../../../conformance/rfc.ts";
import { bridgeFrom, bridgeTo } from "../../../helpers/bridge.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { type Client, connect as connectClient } from "../../../helpers/client.ts";
import {
  DATA,
  END_STREAM,
  frame,
  RawUpstream,
  responseHead,
  SETTINGS,
  uint32,
} from "../../../helpers/frames.ts";
import { handshake, sayHello } from "../../../helpers/handshake.ts";
import { type Program, startProgram } from "../../../helpers/program.ts";
import { listen } from "../../../helpers/serve.ts";
import { settled, until, within } from "../../../helpers/wait.ts";
import { request } from "../../../helpers/wire.ts";

const certificate = await makeCertificate();
const announcing = { settings: { enableConnectProtocol: true } };
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** The WebSocket server behind the upstreams. It sends each message back. */
const echo = new WebSocketServer({
  port: 0,
  host: "127.0.0.1",
  perMessageDeflate: true,
  handleProtocols: (offers) => [...offers].at(-1) ?? false,
});
const closes: number[] = [];
echo.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("error", () => {});
  socket.on("close", (code) => closes.push(code));
});
let echoUrl = "";
beforeAll(() => {
  echoUrl = `http://127.0.0.1:${(echo.address() as { port: number }).port}`;
});
afterEach(() => void closes.splice(0));
afterAll(() => echo.close());

type Answer = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;

/** The extended CONNECT requests of an upstream, and its sessions. */
interface Recorded {
  readonly url: string;
  readonly connects: IncomingHttpHeaders[];
  readonly sessions: ServerHttp2Session[];
}

/** Turns a server into an upstream, and records its requests for WebSockets. */
async function record(
  server: Http2Server | Http2SecureServer,
  scheme: string,
  answer: Answer = (stream, headers) => bridgeFrom(stream, headers, echoUrl),
): Promise<Recorded> {
  const recorded = { connects: [] as IncomingHttpHeaders[], sessions: [] as ServerHttp2Session[] };
  server.on("session", (session: ServerHttp2Session) => recorded.sessions.push(session));
  server.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    stream.on("error", () => {});
    if (headers[":method"] !== "CONNECT") {
      stream.respond({ ":status": 200 });
      return void stream.end("page");
    }
    recorded.connects.push(headers);
    return answer(stream, headers);
  });
  const port = await listen(server);
  closing.push(() => {
    for (const session of recorded.sessions) session.destroy();
    server.close();
  });
  return { ...recorded, url: `${scheme}://localhost:${port}` };
}

const openUpstream = (answer?: Answer): Promise<Recorded> =>
  record(createServer(announcing), "http", answer);

interface Front {
  readonly proxy: NodeProxy;
  readonly url: string;
  readonly port: number;
  readonly ends: RequestEnd[];
}

/** Serves a proxy over HTTP/1.1. */
async function serve(target: string, pool: PoolOptions = {}, options = {}): Promise<Front> {
  const ends: RequestEnd[] = [];
  const proxy = createProxy({
    target,
    pool: { http2: true, tls: { ca: certificate.cert }, ...pool },
    onRequestEnd: (end) => void ends.push(end),
    ...options,
  });
  const server: HttpServer = createHttp(proxy.nodeHandler);
  proxy.attach(server);
  const port = await listen(server);
  closing.push(() => {
    proxy.destroy();
    server.close().closeAllConnections();
  });
  return { proxy, port, url: `ws://127.0.0.1:${port}`, ends };
}

async function open(url: string, ...protocols: string[]): Promise<WebSocket> {
  const socket = new WebSocket(url, protocols);
  closing.push(() => socket.terminate());
  await within(once(socket, "open"), "the opening");
  socket.on("error", () => {});
  return socket;
}

function codeOf(socket: WebSocket): Promise<number> {
  return within(new Promise((resolve) => void socket.on("close", resolve)), "the close");
}

/** Opens a connection, and sends a WebSocket handshake on it. */
async function askRaw(port: number, fields = handshake): Promise<Client> {
  const client = await connectClient(port);
  closing.push(() => client.leave("RST"));
  client.send(request("GET", "/", fields));
  return client;
}

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  let upstream: Recorded;
  let program: Program;
  let ports: Record<"own" | "http2", number>;
  const held: (() => unknown)[] = [];
  beforeAll(async () => {
    upstream = await record(createSecureServer({ ...certificate, ...announcing }), "https");
    // Keep the upstream open for all tests of this `describe`.
    held.push(...closing.splice(0));
    const args = { node: [], bun: ["run"], deno: ["run", "-A"] }[runtime];
    program = startProgram(runtime, [...args, "test/runtimes/sockets/http2/_websockets.ts"], {
      UPSTREAM: upstream.url,
      CA: certificate.cert,
    });
    ports = JSON.parse((await program.printed(/^ports (.*)$/m))[1] as string) as typeof ports;
  }, 60_000);
  afterAll(async () => {
    await program[Symbol.asyncDispose]();
    for (const close of held) close();
  });
  afterEach(() => void upstream.connects.splice(0));

  test("WebSockets of HTTP/1.1 clients share a connection with requests if the upstream announces WebSockets", async () => {
    const url = `ws://127.0.0.1:${ports.own}`;
    expect(await (await fetch(url.replace("ws", "http"))).text()).toBe("page");
    const socket = await open(`${url}/a?b=%2F`, "one", "two");
    expect(socket.protocol).toBe("two");
    const large = Buffer.alloc(4_000_000, "large ");
    socket.send(large);
    const [data] = (await within(once(socket, "message"), "the echo")) as [Buffer];
    expect(data.equals(large)).toBe(true);
    const ended = codeOf(socket);
    socket.close(4002, "bye");
    expect(await ended).toBe(4002);
    await until(() => closes.includes(4002), "the close at the upstream");
    expect(upstream.connects[0]).toMatchObject({ ":path": "/a?b=%2F", ":protocol": "websocket" });
    expect(upstream.sessions).toHaveLength(1);
  });

  test("WebSockets of HTTP/2 clients of a `node:http2` server also reach an upstream that announces WebSockets", async () => {
    const session = connect(`http://127.0.0.1:${ports.http2}`);
    closing.push(() => session.destroy());
    await within(once(session, "remoteSettings"), "the settings");
    const bridge = bridgeTo(() => session);
    closing.push(() => bridge.close());
    expect(await sayHello(`ws://127.0.0.1:${await listen(bridge)}`)).toBe("hello");
    expect(upstream.connects).toHaveLength(1);
  });
});

describe("the handshake", () => {
  test("the upstream gets the fields of RFC 8441, and the client gets an HTTP/1.1 response", async () => {
    rfc("8441-4-pseudo-fields", "8441-5-fields", "6455-4.2.2-accept");
    const upstream = await openUpstream((stream) =>
      stream.respond({
        ":status": 200,
        "sec-websocket-protocol": "b",
        "sec-websocket-accept": "wrong",
        "set-cookie": ["a=1", "b=2"],
      }),
    );
    const { port } = await serve(upstream.url);
    const client = await askRaw(port, [
      ...handshake,
      ["Sec-WebSocket-Protocol", "a, b"],
      ["Cookie", "x=1"],
      ["Origin", "http://page.test"],
    ]);
    const head = await client.readHead();
    expect([head.status, head.all("set-cookie")]).toEqual([101, ["a=1", "b=2"]]);
    expect(head.all("sec-websocket-accept")).toEqual(["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]);
    const [asked = {}] = upstream.connects;
    expect(asked).toMatchObject({
      ":method": "CONNECT",
      ":protocol": "websocket",
      ":scheme": "http",
      ":path": "/",
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "a, b",
      origin: "http://page.test",
      cookie: "x=1",
      "x-forwarded-for": "127.0.0.1",
    });
    expect(Object.keys(asked)).not.toContain("sec-websocket-key");
    expect(Object.keys(asked)).not.toContain("upgrade");
  });

  test("a handshake without a valid key gets 400, because the upstream could not check the key", async () => {
    const upstream = await openUpstream();
    const { port } = await serve(upstream.url);
    const client = await askRaw(port, [...handshake.slice(0, 3), ["Sec-WebSocket-Key", "short"]]);
    expect((await client.read()).status).toBe(400);
    expect(upstream.connects).toEqual([]);
  });

  test("the client gets the whole response of an upstream that refuses", async () => {
    const body = "no ".repeat(100_000);
    const upstream = await openUpstream((stream) => {
      stream.respond({ ":status": 403, "x-why": "policy" });
      stream.end(body);
    });
    const { port, proxy } = await serve(upstream.url);
    const answer = await (await askRaw(port)).read();
    expect([answer.status, answer.get("x-why"), answer.text]).toEqual([403, "policy", body]);
    await until(() => proxy.stats()?.origins[upstream.url]?.free === 1, "the idle connection");
  });

  test("the client gets 502 if the upstream chooses a subprotocol that was not offered", async () => {
    const upstream = await openUpstream((stream) =>
      stream.respond({ ":status": 200, "sec-websocket-protocol": "other" }),
    );
    const { port } = await serve(upstream.url);
    expect((await (await askRaw(port)).read()).status).toBe(502);
  });

  test("a handshake that the upstream has not processed is sent again", async () => {
    let refused = 0;
    const upstream = await openUpstream((stream, headers) => {
      if (refused++ === 0) stream.close(constants.NGHTTP2_REFUSED_STREAM);
      else bridgeFrom(stream, headers, echoUrl);
    });
    expect(await sayHello((await serve(upstream.url)).url)).toBe("hello");
    expect(refused).toBe(2);
  });
});

describe("an upstream with HTTP/2 and HTTP/1.1", () => {
  /** Lets a server take WebSockets over HTTP/1.1. */
  function takeUpgrades(server: Http2SecureServer): void {
    server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) =>
      echo.handleUpgrade(req, socket, head, (each) => echo.emit("connection", each, req)),
    );
  }

  test("WebSockets use HTTP/1.1 unless the upstream announces them, and requests use HTTP/2", async () => {
    rfc("8441-3-announced");
    const server = createSecureServer({ ...certificate, allowHTTP1: true });
    takeUpgrades(server);
    const upstream = await record(server, "https");
    const { proxy, url } = await serve(upstream.url);
    for (let i = 0; i < 2; i++) expect(await sayHello(url)).toBe("hello");
    expect(await (await proxy.fetch(new Request("http://proxy.test/"))).text()).toBe("page");
    expect([upstream.connects.length, upstream.sessions.length]).toEqual([0, 1]);
    const socket = await open(url);
    await expect
      .poll(() => proxy.stats()?.origins[upstream.url])
      .toMatchObject({ tunnels: 1, inUse: 0 });
    const ended = codeOf(socket);
    await within(proxy.close(), "the end of the proxy");
    expect(await ended).toBe(1006);
  });

  test("a WebSocket over HTTP/1.1 does not wait for a free stream of the HTTP/2 connections", async () => {
    const settings = { maxConcurrentStreams: 1 };
    const server = createSecureServer({ ...certificate, allowHTTP1: true, settings });
    takeUpgrades(server);
    const upstream = await record(server, "https");
    server.removeAllListeners("stream");
    const streams: ServerHttp2Stream[] = [];
    server.on("stream", (stream: ServerHttp2Stream) => void streams.push(stream));
    const { proxy, url } = await serve(upstream.url, { maxSockets: 1 });
    const page = proxy.fetch(new Request("http://proxy.test/"));
    await until(() => streams.length === 1, "the request");
    expect(await sayHello(url)).toBe("hello");
    streams[0]?.respond({ ":status": 200 });
    streams[0]?.end("page");
    expect(await (await page).text()).toBe("page");
  });

  test("upgrades to other protocols always use HTTP/1.1", async () => {
    const server = createSecureServer({ ...certificate, ...announcing, allowHTTP1: true });
    server.on("upgrade", (_, socket: Duplex) => {
      socket.end("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nhello");
    });
    const upstream = await record(server, "https");
    const { port } = await serve(upstream.url, {}, { upgrades: ["tcp"] });
    const client = await askRaw(port, [
      ["Connection", "Upgrade"],
      ["Upgrade", "tcp"],
    ]);
    expect((await client.readHead()).status).toBe(101);
    expect((await client.rest()).toString()).toBe("hello");
    expect(upstream.sessions).toEqual([]);
  });
});

describe("a tunnel", () => {
  test("stats() counts a WebSocket as a tunnel, and not as a connection in use", async () => {
    const upstream = await openUpstream();
    const { proxy, url, ends } = await serve(upstream.url);
    const sockets = [await open(url), await open(url)];
    const origin = (): unknown => proxy.stats()?.origins[upstream.url];
    expect(origin()).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 2 });
    expect(proxy.stats()).toMatchObject({ created: 1, requests: 2, tunnels: 2 });
    for (const socket of sockets) socket.close();
    await until(() => ends.length === 2, "the ends");
    await until(() => proxy.stats()?.origins[upstream.url]?.free === 1, "the idle connection");
    expect(origin()).toEqual({ inUse: 0, free: 1, waiting: 0, tunnels: 0 });
    expect(ends[0]).toMatchObject({ status: 101, protocol: "websocket", error: undefined });
  });

  test("the pool's `timeout` does not end a silent tunnel", async () => {
    const upstream = await openUpstream();
    const { url } = await serve(upstream.url, { timeout: 1500 });
    const socket = await open(url);
    await new Promise((resolve) => setTimeout(resolve, 2000));
    socket.send("hello");
    await within(once(socket, "message"), "the echo");
  });

  test("a tunnel whose client sends may take any number of PING frames", async () => {
    let onPong = (): void => {};
    const upstream = await openUpstream((stream) => {
      stream.respond({ ":status": 200 });
      stream.on("data", () => stream.session?.ping(() => onPong()));
    });
    const { url } = await serve(upstream.url);
    const socket = await open(url);
    let left = 1100;
    const sent = new Promise<string>((resolve) => {
      onPong = () => (left-- > 0 ? socket.send("message") : resolve("all sent"));
    });
    onPong();
    expect(await within(Promise.race([sent, codeOf(socket)]), "the messages")).toBe("all sent");
  });

  test("when one side ends its direction, the tunnel stays open in the other direction", async () => {
    rfc("8441-5-end");
    const streams: ServerHttp2Stream[] = [];
    const upstream = await openUpstream((stream) => {
      stream.respond({ ":status": 200 });
      // Pause the stream: otherwise, Node closes a stream that nothing reads when its response has ended.
      streams.push(stream.pause());
    });
    const { port, ends } = await serve(upstream.url);
    const first = await askRaw(port);
    await first.readHead();
    first.send("question");
    first.finish();
    expect(await text(streams[0] as ServerHttp2Stream)).toBe("question");
    const large = "answer".repeat(500_000);
    streams[0]?.end(large);
    expect((await first.rest()).toString() === large).toBe(true);
    const second = await askRaw(port);
    await second.readHead();
    streams[1]?.end("greeting");
    expect((await second.rest()).toString()).toBe("greeting");
    second.send("late");
    second.finish();
    expect(await text(streams[1] as ServerHttp2Stream)).toBe("late");
    await until(() => ends.length === 2, "the ends");
    expect(ends.map(({ error }) => error)).toEqual([undefined, undefined]);
    expect(streams.map(({ rstCode }) => rstCode)).toEqual([0, 0]);
  });

  test("when the client's connection breaks, the stream is reset with CANCEL, and never looks complete", async () => {
    rfc("8441-5-end");
    const upstream = new RawUpstream();
    closing.push(() => upstream.close());
    upstream.settings = frame(SETTINGS, 0, 0, Buffer.concat([Buffer.from([0, 8]), uint32(1)]));
    upstream.script = (connection, id) => connection.send(responseHead(id));
    const { port } = await serve(await upstream.listen());
    const client = await askRaw(port);
    expect((await client.readHead()).status).toBe(101);
    client.send("half of a message");
    const [connection] = upstream.connections;
    await until(() => connection?.has(DATA) === true, "the message");
    client.leave("RST");
    await until(() => (connection?.resets.length ?? 0) > 0, "the reset");
    expect(connection?.resets).toEqual([[1, constants.NGHTTP2_CANCEL]]);
    const isEnd = ({ type, flags }: { type: number; flags: number }): boolean =>
      type === DATA && (flags & END_STREAM) !== 0;
    expect(connection?.frames.some(isEnd)).toBe(false);
  });

  test.each([
    constants.NGHTTP2_CANCEL,
    constants.NGHTTP2_INTERNAL_ERROR,
    constants.NGHTTP2_NO_ERROR,
  ])("the client's connection is reset if the upstream resets the stream: %i", async (code) => {
    const streams: ServerHttp2Stream[] = [];
    const upstream = await openUpstream((stream) => {
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      streams.push(stream);
    });
    const { port, ends } = await serve(upstream.url);
    const client = await askRaw(port);
    await client.readHead();
    const received = once(client.socket, "data");
    streams[0]?.write("half of a message");
    await within(received, "the message");
    let failure: unknown;
    client.socket.on("error", (error) => (failure = error));
    streams[0]?.close(code);
    await within(client.closed, "the end at the client");
    expect(failure).toMatchObject({ code: "ECONNRESET" });
    await until(() => ends.length > 0, "the end");
    expect(ends[0]?.error).toBeDefined();
  });

  test("the tunnel ends when the upstream's connection ends", async () => {
    const upstream = await openUpstream();
    const socket = await open((await serve(upstream.url)).url);
    const ended = codeOf(socket);
    upstream.sessions[0]?.destroy();
    expect(await ended).toBe(1006);
  });

  test("a tunnel continues after GOAWAY, and new tunnels use another connection", async () => {
    const upstream = await openUpstream();
    const { url } = await serve(upstream.url);
    const socket = await open(url);
    upstream.sessions[0]?.goaway(constants.NGHTTP2_NO_ERROR);
    // The first PING may overtake GOAWAY, the second one does not.
    for (let i = 0; i < 2; i++) {
      const answered = new Promise((resolve) => upstream.sessions[0]?.ping(resolve));
      await within(answered, "the answer to a PING");
    }
    expect(await sayHello(url)).toBe("hello");
    expect(upstream.sessions).toHaveLength(2);
    const answered = once(socket, "message");
    socket.send("still here");
    expect(String((await within(answered, "the echo"))[0])).toBe("still here");
  });

  test("tunnels count towards the upstream's limit of streams, and another connection is opened for more", async () => {
    const settings = { enableConnectProtocol: true, maxConcurrentStreams: 2 };
    const upstream = await record(createServer({ settings }), "http");
    const { url, proxy } = await serve(upstream.url);
    const sockets = await Promise.all([1, 2, 3].map(() => open(url)));
    expect(proxy.stats()).toMatchObject({ created: 2, tunnels: 3 });
    for (const socket of sockets) {
      const answered = once(socket, "message");
      socket.send("hello");
      await within(answered, "the echo");
    }
  });

  test("after close(), a tunnel stays open until the running requests have ended", async () => {
    const waiting: ServerHttp2Stream[] = [];
    const server = createServer(announcing);
    const upstream = await record(server, "http");
    server.removeAllListeners("stream");
    server.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      if (headers[":method"] === "CONNECT") bridgeFrom(stream, headers, echoUrl);
      else waiting.push(stream);
    });
    const { url, proxy } = await serve(upstream.url);
    const socket = await open(url);
    const page = proxy.fetch(new Request("http://proxy.test/"));
    await until(() => waiting.length > 0, "the request");
    const closed = proxy.close();
    const answered = once(socket, "message");
    socket.send("hello");
    await within(answered, "the echo");
    const ended = codeOf(socket);
    waiting[0]?.respond({ ":status": 200 });
    waiting[0]?.end("page");
    expect(await (await page).text()).toBe("page");
    expect(await ended).toBe(1006);
    await within(closed, "the end of the proxy");
  });

  test("the sender has to wait while the receiver does not read", async () => {
    const streams: ServerHttp2Stream[] = [];
    const upstream = await openUpstream((stream) => {
      stream.respond({ ":status": 200 });
      streams.push(stream.pause());
    });
    const { port } = await serve(upstream.url);
    const bytes = Buffer.alloc(65_536);
    const deaf = await askRaw(port);
    await deaf.readHead();
    deaf.socket.pause();
    let down = 0;
    const flood = (): void => {
      for (let room = true; room && down < 512 * 1024 * 1024; down += bytes.length) {
        room = streams[0]?.write(bytes) === true;
      }
    };
    streams[0]?.on("drain", flood);
    flood();
    expect(await settled(() => down)).toBeLessThan(64 * 1024 * 1024);

    const eager = await askRaw(port);
    await eager.readHead();
    let up = 0;
    const pump = (): void => {
      for (let room = true; room && up < 512 * 1024 * 1024; up += bytes.length) {
        room = eager.socket.write(bytes);
      }
    };
    eager.socket.on("drain", pump);
    pump();
    expect(await settled(() => up)).toBeLessThan(64 * 1024 * 1024);
    eager.socket.removeListener("drain", pump);
    eager.socket.end();
    let received = 0;
    streams[1]?.on("data", (data: Buffer) => (received += data.length)).resume();
    await within(once(streams[1] as ServerHttp2Stream, "end"), "the end", 60_000);
    expect(received).toBe(up);
  });
});
