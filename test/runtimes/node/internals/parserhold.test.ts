/** Node's parser of a connection stops while pipelined requests wait, which bounds the number of waiting bytes. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { Socket } from "node:net";
import { connect as connectSecure } from "node:tls";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../../runtimes/node.ts";
import { turnOf } from "../../../../runtimes/node/turns.ts";
import { useApps } from "../../../helpers/apps.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { Client } from "../../../helpers/client.ts";
import { hide } from "../_hidden.ts";
import { pause, settled, until } from "../../../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const proxies: NodeProxy[] = [];
afterEach(() => {
  for (const proxy of proxies.splice(0)) proxy.destroy();
});

function create(options: Partial<CreateProxyOptions> = {}): NodeProxy {
  const proxy = createProxy({ target: upstream.url, ...options });
  proxies.push(proxy);
  return proxy;
}

/** Starts a server, and returns its port and the sockets of its clients. */
async function start(
  handler: RequestListener,
  server: Server = createServer(handler),
): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  server.on("connection", (socket: Socket) => sockets.push(socket));
  return { port: await apps.listen(server), sockets };
}

/** Returns GETs of about 1 KB each. */
function gets(count: number): Buffer[] {
  const padding: Header = ["X-Padding", "x".repeat(960)];
  return Array.from({ length: count }, (_each, at) => request("GET", `/${at}`, [padding]));
}

describe("pipelined requests if Node hides a member of the parser", () => {
  /** Passes requests to `handler` with a socket that lacks its parser, or whose parser lacks the member `name`. */
  function hideFrom(name: string, handler: RequestListener): RequestListener {
    const hidden = new WeakMap<Socket, Socket>();
    return (req, res) => {
      const { socket } = req;
      const { parser } = socket as Socket & { parser: object };
      const other = hidden.get(socket) ?? hide(socket, "parser");
      hidden.set(socket, other);
      if (name !== "parser") Object.assign(other, { parser: hide(parser, name) });
      handler(Object.create(req, { socket: { value: other } }) as IncomingMessage, res);
    };
  }

  test.each(["parser", "onIncoming", "execute", "resume", "getCurrentBuffer"])(
    "wait in the app, and are sent in order, if this member is missing: %s",
    async (name) => {
      let started = 0;
      const proxy = create();
      const { port } = await start(
        hideFrom(name, (req, res) => {
          started++;
          proxy.nodeHandler(req, res);
        }),
      );
      const client = await apps.connect(port);
      let running = 0;
      upstream.script = async (call) => {
        expect(++running).toBe(1);
        await until(() => started === 10, "all in the app");
        running--;
        call.reply(200, [], call.target);
      };
      client.send(...gets(10));
      for (let at = 0; at < 10; at++) expect((await client.read()).text).toBe(`/${at}`);
    },
  );

  test("a connection on which more than a thousand requests wait is closed", async () => {
    const { port } = await start(hideFrom("parser", create().nodeHandler));
    upstream.script = () => {};
    const client = await apps.connect(port);
    client.send(...gets(1));
    await upstream.call();
    client.send(...gets(1_001));
    expect(await client.rest()).toHaveLength(0);
    expect(upstream.calls).toHaveLength(1);
  });
});

describe("bodies of pipelined requests", () => {
  const bodies = Array.from({ length: 40 }, (_each, at) =>
    Buffer.alloc((at * at * at * 7) % 150_000, `${at},`),
  );
  const bytes = Buffer.concat(
    bodies.flatMap((body, at) => {
      if (at % 4 === 0) return [request("GET", `/${at}`)];
      if (at % 4 < 3) return [request("POST", `/${at}`, [], body)];
      const fields: Header[] = [["Transfer-Encoding", "chunked"]];
      const half = body.length >> 1;
      const chunks = [body.subarray(0, half), body.subarray(half)].filter(({ length }) => length);
      return [request("POST", `/${at}`, fields), ...chunks.map((each) => chunk(each)), lastChunk];
    }),
  );

  test.each([
    ["in one write", false, Infinity],
    ["in chunks of 60,000 bytes", false, 60_000],
    ["in chunks of 7,001 bytes", false, 7_001],
    ["in one write over TLS", true, Infinity],
    ["in chunks of 7,001 bytes over TLS", true, 7_001],
  ])(
    "arrive unchanged, each with its request, when they are sent %s",
    async (_title, isSecure, size) => {
      const { nodeHandler } = create();
      const server = isSecure
        ? createSecureServer(await makeCertificate(), nodeHandler)
        : undefined;
      const { port } = await start(nodeHandler, server);
      upstream.script = async (call) => {
        await call.done;
        call.reply(200, [], call.body);
      };
      const client = isSecure
        ? new Client(connectSecure({ port, host: "127.0.0.1", rejectUnauthorized: false }))
        : await apps.connect(port);
      void (async () => {
        for (let at = 0; at < bytes.length; at += size) {
          if (!client.socket.write(bytes.subarray(at, at + size)))
            await once(client.socket, "drain");
          await new Promise(setImmediate);
        }
      })();
      for (const [at, body] of bodies.entries()) {
        const sent = at % 4 === 0 ? Buffer.alloc(0) : body;
        const { sha256, length } = await client.read();
        expect(length, `body ${at}`).toBe(sent.length);
        expect(sha256).toBe(createHash("sha256").update(sent).digest("hex"));
      }
      client.leave("FIN");
    },
  );
});

test("while pipelined requests wait, their socket is not read, even if other code resumes it; then all are served", async () => {
  const { port, sockets } = await start(create().nodeHandler);
  upstream.script = () => {};
  const client = await apps.connect(port);
  client.send(...gets(2_000));
  const first = await upstream.call(0);
  const [socket] = sockets as [Socket];
  expect(await settled(() => socket.bytesRead)).toBeLessThan(400_000);
  const read = socket.bytesRead;
  for (let i = 0; i < 50; i++) {
    socket.resume();
    await new Promise(setImmediate);
  }
  // Meanwhile, only Node's own buffer of the socket may fill.
  expect(socket.bytesRead - read).toBeLessThan(200_000);
  upstream.script = (call) => call.reply(200, [], call.target);
  first.reply(200, [], "/0");
  for (let at = 0; at < 2_000; at++) expect((await client.read()).text).toBe(`/${at}`);
});

test("pipelined requests that arrive in thousands of packets of one byte are served", async () => {
  const { port, sockets } = await start(create().nodeHandler);
  upstream.script = () => {};
  const client = await apps.connect(port);
  client.socket.setNoDelay(true);
  client.send(request("GET", "/0"), request("GET", "/1"), request("GET", "/2"));
  const first = await upstream.call(0);
  const [socket] = sockets as [Socket];
  const bytes = request("GET", "/3", [["X-Padding", "x".repeat(2_000)]]);
  for (const byte of bytes) socket.emit("data", Buffer.of(byte));
  upstream.script = (call) => call.reply(200, [], call.target);
  first.reply(200, [], "/0");
  for (let at = 0; at < 4; at++) expect((await client.read()).text).toBe(`/${at}`);
});

describe("a connection whose pipelined requests wait unread", () => {
  /** Starts a server that answers in turn, except that the test itself ends the first response. */
  async function hang(): Promise<{ port: number; first: Promise<ServerResponse> }> {
    const first = Promise.withResolvers<ServerResponse>();
    const { port } = await start((req, res) => {
      if (req.url === "/0") return first.resolve(res);
      const end = (): void => void res.end(req.url);
      const turn = turnOf(req, 150);
      if (turn === undefined) end();
      else void turn.then(end);
    });
    return { port, first: first.promise };
  }

  test("the connection is closed if no response makes progress", async () => {
    const { port } = await hang();
    const client = await apps.connect(port);
    client.send(...gets(400));
    expect((await client.rest()).toString()).not.toContain("200 OK");
  });

  test("the connection stays open while the response makes progress", async () => {
    const { port, first } = await hang();
    const client = await apps.connect(port);
    client.send(...gets(400));
    const res = await first;
    const end = performance.now() + 600;
    while (performance.now() < end) {
      res.write("more");
      await pause(20);
    }
    expect(client.isClosed).toBe(false);
    res.end();
    expect((await client.read()).status).toBe(200);
    for (let at = 1; at < 400; at++) expect((await client.read()).text).toBe(`/${at}`);
  });

  test("the connection stays open while only a few requests wait, because Node still reads from it", async () => {
    const { port, first } = await hang();
    const client = await apps.connect(port);
    client.send(...gets(20));
    await pause(600);
    expect(client.isClosed).toBe(false);
    (await first).end();
    expect((await client.read()).status).toBe(200);
    for (let at = 1; at < 20; at++) expect((await client.read()).text).toBe(`/${at}`);
  });
});

test("Node reads from the connection again, even if it stopped reading before the second request", async () => {
  const paths: (string | undefined)[] = [];
  const first = Promise.withResolvers<void>();
  const { port } = await start((req, res) => {
    paths.push(req.url);
    const end = (): void => void req.resume().on("end", () => res.end(req.url));
    const turn = req.url === "/0" ? first.promise : turnOf(req);
    if (turn === undefined) end();
    else void turn.then(end);
  });
  const client = await apps.connect(port);
  // The end of the body fills the buffer of the request, and the next head is in the same read, so Node stops reading.
  client.send(request("POST", "/0", [], Buffer.alloc(70_000)), request("GET", "/1"));
  await until(() => paths.length === 2, "the second request");
  client.send(request("GET", "/2"));
  await pause(50);
  first.resolve();
  for (const text of ["/0", "/1", "/2"]) expect((await client.read()).text).toBe(text);
  client.send(request("GET", "/3"));
  expect((await client.read()).text).toBe("/3");
});

test("the waiting time of a request without a body does not count towards Node's `requestTimeout`", async () => {
  const { nodeHandler } = create();
  // Node applies the limits also to the time between the accept of the connection and the first head.
  const limits = { requestTimeout: 1600, headersTimeout: 1600, connectionsCheckingInterval: 50 };
  const { port } = await start(nodeHandler, createServer(limits, nodeHandler));
  upstream.script = async (call) => {
    if (call.target === "/0") await pause(2400);
    call.reply(200, [], call.target);
  };
  const client = await apps.connect(port);
  client.send(...gets(5));
  for (let at = 0; at < 5; at++) expect((await client.read()).text).toBe(`/${at}`);
});

test("requests that precede a malformed request are answered before the connection is closed", async () => {
  const { port } = await start(create().nodeHandler);
  upstream.script = async (call) => {
    await pause(20);
    call.reply(200, [], call.target);
  };
  const client = await apps.connect(port);
  client.send(...gets(3), "NO HTTP\r\n\r\n");
  for (let at = 0; at < 3; at++) expect((await client.read()).text).toBe(`/${at}`);
  expect((await client.rest()).toString()).toMatch(/^HTTP\/1\.1 400 /);
});

test("an upgrade after pipelined requests is answered after them, and the bytes that follow it are carried", async () => {
  const proxy = create({ upgrades: ["echo"] });
  const server = createServer(proxy.nodeHandler);
  proxy.attach(server);
  const { port } = await start(proxy.nodeHandler, server);
  upstream.script = async (call) => {
    await pause(20);
    if (call.get("upgrade") === undefined) return call.reply(200, [], call.target);
    const { socket, rest } = call.link.takeOver();
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
    );
    socket.write(rest);
    socket.on("data", (bytes: Buffer) => {
      if (bytes.includes("!")) socket.end(bytes);
      else socket.write(bytes);
    });
    socket.resume();
  };
  const fields: Header[] = [
    ["Connection", "Upgrade"],
    ["Upgrade", "echo"],
  ];
  for (const count of [1, 2, 3, 200]) {
    const client = await apps.connect(port);
    client.send(...gets(count), request("GET", "/echo", fields), "early");
    for (let at = 0; at < count; at++) expect((await client.read()).text).toBe(`/${at}`);
    expect((await client.readHead()).status).toBe(101);
    client.send(" and late!");
    expect((await client.rest()).toString()).toBe("early and late!");
  }
});

test("the parser is restored before the next connection uses it", async () => {
  const { nodeHandler } = create();
  const parsers: object[] = [];
  const { port, sockets } = await start((req, res) => {
    const { parser } = req.socket as Socket & { parser: object };
    if (req.url === "/first") parsers.push(parser);
    if (req.url === "/first") expect(Object.hasOwn(parser, "execute")).toBe(false);
    nodeHandler(req, res);
  });
  for (let i = 0; i < 2; i++) {
    const client = await apps.connect(port);
    client.send(request("GET", "/first"), ...gets(3));
    for (let at = 0; at < 4; at++) expect((await client.read()).status).toBe(200);
    client.leave("FIN");
    await until(() => sockets.every(({ destroyed }) => destroyed), "the connection's end");
  }
  // Node has used the same parser for all connections, so the test has seen a restored parser.
  expect(new Set(parsers).size).toBe(1);
});
