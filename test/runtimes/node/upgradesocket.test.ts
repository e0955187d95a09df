/** The client's side of an upgrade on Node: early bytes, backpressure, ends, limits, and responses other than 101. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { describe, expect, test, vi } from "vitest";
import {
  createProxy,
  type CreateProxyOptions,
  type NodeProxy,
  type RequestEnd,
} from "../../../runtimes/node.ts";
import { explainError } from "../../../src/explain/errors.ts";
import { useApps } from "../../helpers/apps.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { type Interceptor, type Tunnel } from "../../../src/transport.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import type { Client } from "../../helpers/client.ts";
import { rfc } from "../../conformance/rfc.ts";
import { handshake, offer } from "../../helpers/handshake.ts";
import { mebibyte } from "../../helpers/large.ts";
import { bodyOf, Keeper } from "./_kept.ts";
import { settled, until, within } from "../../helpers/wait.ts";
import { request, type Header } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

/** Serves a proxy that carries `tcp` and WebSockets on a new server. */
async function serve(
  options: Partial<CreateProxyOptions> = {},
): Promise<{ proxy: NodeProxy; server: Server; port: number }> {
  const proxy = createProxy({ target: upstream.url, upgrades: ["tcp", "websocket"], ...options });
  const server = createServer(proxy.nodeHandler);
  proxy.attach(server);
  return { proxy, server, port: await apps.listen(server) };
}

/** The field of a 101 that answers the key of `handshake`. */
const ACCEPT = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

/**
 * Makes the upstream switch to the protocol.
 * @param early the bytes that the upstream sends right after its 101
 * @param isHalfOpen whether the upstream can still send after the client has ended its own direction
 * @returns the upstream's sockets
 */
function switching(early = "", isHalfOpen = false, protocol = "tcp"): Socket[] {
  const sockets: Socket[] = [];
  upstream.script = (call) => {
    const { socket } = call.link.takeOver();
    if (isHalfOpen) socket.removeAllListeners("end");
    socket.resume();
    sockets.push(socket);
    const accept = protocol === "websocket" ? ACCEPT : "";
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
        `Upgrade: ${protocol}\r\n${accept}\r\n${early}`,
    );
  };
  return sockets;
}

async function open(port: number, protocol = "tcp"): Promise<Client> {
  const client = await apps.connect(port);
  client.send(request("GET", "/", protocol === "tcp" ? offer(protocol) : handshake));
  expect((await client.readHead()).status).toBe(101);
  return client;
}

async function receive(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (data: Buffer) => (text += data.toString("latin1"))).resume();
  await within(new Promise((resolve) => socket.on("end", resolve)), "the end of the direction");
  return text;
}

describe("how a tunnel ends", () => {
  test("a client that closes its direction first still receives data", async () => {
    rfc("9110-9.3.6-tunnel");
    const sockets = switching("", true);
    const { proxy, port } = await serve();
    const client = await open(port);
    const failed = vi.fn();
    client.socket.on("error", failed);
    sockets[0]?.pause();
    client.send("question");
    client.finish();
    expect(await receive(sockets[0] as Socket)).toBe("question");
    const answer = "answer".repeat(1_000_000);
    sockets[0]?.end(answer);
    expect((await client.rest()).toString() === answer).toBe(true);
    await client.closed;
    expect(failed).not.toHaveBeenCalled();
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
  });

  test("an upstream that closes its direction first still receives data", async () => {
    rfc("9110-9.3.6-tunnel");
    const sockets = switching("greeting", true);
    const { proxy, port } = await serve();
    const client = await open(port);
    sockets[0]?.pause();
    sockets[0]?.end();
    expect((await client.rest()).toString()).toBe("greeting");
    client.send("late");
    client.finish();
    expect(await receive(sockets[0] as Socket)).toBe("late");
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
  });

  test.each([
    ["arrives", 1],
    ["is waiting", 8_000_000],
  ])(
    "the tunnel ends when the client closes its TLS connection while a message for the client %s",
    async (_, length) => {
      const sockets = switching("", true);
      const proxy = createProxy({ target: upstream.url, upgrades: ["tcp"], tunnelCloseTimeout: 0 });
      const server = createTlsServer(await makeCertificate());
      let client: Socket | undefined;
      server.on("secureConnection", (socket: Socket) => (client = socket));
      proxy.attach(server);
      const port = await apps.listen(server);
      const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
      socket.write(request("GET", "/", offer("tcp")));
      await within(once(socket, "data"), "the 101");
      socket.pause();
      // Node's TLS connections have no half-open state: the end of the client's side closes the connection.
      if (length > 1) {
        sockets[0]?.write(Buffer.alloc(length));
        await until(() => client?.writableNeedDrain === true, "the bytes that wait");
      }
      sockets[0]?.on("end", () => sockets[0]?.end("late"));
      socket.end();
      socket.resume();
      await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
    },
  );

  test("a reset of the upstream, or `destroy`, closes the connection of a client that keeps its direction open", async () => {
    const sockets = switching("", true);
    for (const by of ["upstream", "proxy"]) {
      const { proxy, server, port } = await serve();
      let isClosed = false;
      server.on("connection", (accepted) => accepted.on("close", () => (isClosed = true)));
      const client = await open(port);
      const socket = sockets.at(-1) as Socket;
      socket.end("bye");
      expect((await client.rest()).toString()).toBe("bye");
      if (by === "proxy") proxy.destroy();
      else socket.resetAndDestroy();
      // After the end of the upstream's direction, only the next write shows a reset.
      client.send("late");
      await until(() => isClosed, `the end of the client's connection by the ${by}`);
    }
  });

  test("the upstream's reset resets the client's connection, and the client's reset closes the upstream's", async () => {
    const sockets = switching();
    const { port } = await serve();
    for (const resets of ["upstream", "client"]) {
      const client = await open(port);
      const socket = sockets.at(-1) as Socket;
      const error = vi.fn();
      (resets === "client" ? socket : client.socket).on("error", error);
      socket.resume();
      if (resets === "client") client.leave("RST");
      else socket.resetAndDestroy();
      client.socket.resume();
      const closed = new Promise<void>((resolve) => socket.on("close", () => resolve()));
      await within(resets === "client" ? closed : client.closed, "the end of the other");
      if (resets === "upstream") expect(error).toHaveBeenCalled();
    }
  });
});

describe("tunnels that one side has closed", () => {
  const CLOSE_TIMEOUT = 300;
  const chunk = Buffer.alloc(65_536, "x");

  interface Closing {
    proxy: NodeProxy;
    client: Client;
    /** The upstream's socket. It does not read, and does not close its own direction when the client ends. */
    socket: Socket;
    ends: RequestEnd[];
    /** Returns how many failures of the upstream were counted. */
    failures: () => number | undefined;
    /** Resolves when the proxy has closed the client's connection. */
    isClientClosed: Promise<void>;
  }

  async function openFor(
    protocol: "tcp" | "websocket",
    tunnelCloseTimeout = CLOSE_TIMEOUT,
  ): Promise<Closing> {
    const sockets = switching("", true, protocol);
    const ends: RequestEnd[] = [];
    const target = balance([upstream.url]);
    const failures = (): number | undefined => target.states()[0]?.failures;
    const { proxy, server, port } = await serve({
      target,
      tunnelCloseTimeout,
      signal: new AbortController().signal,
      onRequestEnd: (end) => void ends.push(end),
    });
    const isClientClosed = new Promise<void>((resolve) => {
      server.on("connection", (accepted) => accepted.on("close", () => resolve()));
    });
    const client = await open(port, protocol);
    const socket = sockets[0] as Socket;
    socket.pause();
    return { proxy, client, socket, ends, failures, isClientClosed };
  }

  /** Waits until no connection to the upstream is left, and the tunnel is reported; returns the report. */
  async function ended({ proxy, ends, isClientClosed }: Closing): Promise<RequestEnd> {
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
    await until(() => ends.length === 1, "the report");
    await within(isClientClosed, "the end of the client's connection");
    expect(proxy.stats()?.origins[upstream.url]?.tunnels ?? 0).toBe(0);
    return ends[0] as RequestEnd;
  }

  async function staysOpen({ proxy, ends }: Closing, time = 3 * CLOSE_TIMEOUT): Promise<void> {
    const began = performance.now();
    await until(() => performance.now() - began > time, "more than the limit");
    expect(proxy.stats()).toMatchObject({ closed: 0, tunnels: 1 });
    expect(ends).toEqual([]);
  }

  /** Writes until the other side makes the writer wait. */
  async function fill(from: Socket): Promise<void> {
    let sent = 0;
    const push = (): void => {
      do sent++;
      while (!from.destroyed && from.write(chunk));
    };
    from.on("drain", push);
    push();
    await settled(() => sent);
    from.off("drain", push);
  }

  test.each(["with unread bytes", "without a byte"])(
    "a WebSocket ends after tunnelCloseTimeout if its client has disconnected and the upstream does not read (%s)",
    async (bytes) => {
      const closing = await openFor("websocket");
      if (bytes === "with unread bytes") closing.client.send("hello");
      closing.client.leave("FIN");
      const { status, protocol, bytesIn, error } = await ended(closing);
      expect({ status, protocol }).toEqual({ status: 101, protocol: "websocket" });
      expect(bytesIn).toBe(bytes === "with unread bytes" ? 5 : 0);
      expect(error).toMatchObject({ code: "connection_read_timeout" });
      expect(closing.failures()).toBe(1);
      expect(explainError(error)).toBe(
        `connection_read_timeout: ${new URL(upstream.url).host} fell silent: the tunnel did not end within ${CLOSE_TIMEOUT} ms (does it still read? see tunnelCloseTimeout)`,
      );
    },
  );

  test("a WebSocket ends when its upstream disconnects, although the client keeps its side open", async () => {
    const closing = await openFor("websocket");
    closing.socket.end("bye");
    expect((await closing.client.rest()).toString()).toBe("bye");
    const { bytesOut, error } = await ended(closing);
    expect(bytesOut).toBe(3);
    expect(error).toMatchObject({ status: 499 });
    expect(closing.failures()).toBe(0);
  });

  test("a WebSocket whose upstream ends its direction is closed although the upstream does not read", async () => {
    const closing = await openFor("websocket");
    await fill(closing.client.socket);
    closing.socket.end();
    const { error } = await ended(closing);
    expect(error).toMatchObject({ code: "connection_read_timeout" });
  });

  test("the last bytes before the end of a WebSocket arrive if the receiver reads", async () => {
    const body = "x".repeat(1_000_000);
    for (const from of ["client", "upstream"]) {
      const closing = await openFor("websocket", 20_000);
      const { client, socket } = closing;
      socket.on("end", () => socket.end());
      if (from === "client") {
        client.socket.end(body);
        expect((await receive(socket)) === body).toBe(true);
      } else {
        socket.resume().end(body);
        expect((await client.rest()).toString() === body).toBe(true);
        client.finish();
      }
      expect((await ended(closing)).error).toBeUndefined();
      await upstream.reset();
    }
  });

  test("a `tcp` tunnel stays open in one direction after the other direction has ended", async () => {
    // The limit also applies while the client does not read, so it is longer than the client's pause of at most 1 s below.
    const limit = 1_600;
    const closing = await openFor("tcp", limit);
    const { client, socket } = closing;
    let received = 0;
    client.socket.on("data", (data: Buffer) => (received += data.length));
    client.finish();
    await staysOpen(closing, 1.2 * limit);
    const large = Buffer.alloc(16 * 1024 * 1024, "x");
    client.socket.pause();
    socket.write(large);
    await settled(() => socket.writableLength, 1_000, 50).catch(() => {});
    client.socket.resume();
    await until(() => received === large.length, "the client to take all");
    await staysOpen(closing, 1.2 * limit);
    socket.resume().end("last");
    await until(() => received === large.length + 4, "the last bytes");
    expect((await ended(closing)).error).toBeUndefined();
  });

  test("a `tcp` tunnel is closed if a side has ended its direction and does not read", async () => {
    for (const stalled of ["client", "upstream"]) {
      const closing = await openFor("tcp");
      const { client, socket } = closing;
      client.socket.pause();
      (stalled === "client" ? client.socket : socket).end();
      await fill(stalled === "client" ? socket : client.socket);
      const { error } = await ended(closing);
      expect(error).toMatchObject({ status: stalled === "client" ? 499 : 504 });
      expect(closing.failures()).toBe(stalled === "client" ? 0 : 1);
      await upstream.reset();
    }
  });

  test("a `tcp` tunnel is closed if its upstream has closed a TLS connection and the client does not read", async () => {
    const certificate = await makeCertificate();
    const secure = createTlsServer(certificate);
    const url = `https://localhost:${await apps.listen(secure)}`;
    const { proxy, server, port } = await serve({
      target: { url, tls: { ca: certificate.cert } },
      tunnelCloseTimeout: CLOSE_TIMEOUT,
    });
    let accepted: Socket | undefined;
    server.on("connection", (socket) => (accepted = socket));
    let socket: Socket | undefined;
    secure.on("upgrade", (_, raw: Socket) => {
      socket = raw;
      raw.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    });
    const client = await open(port);
    client.socket.pause();
    // Send one piece after the other: if more waited for the client, the proxy would not read the end of the upstream.
    const piece = chunk.subarray(0, 32_768);
    let sent = accepted?.bytesWritten ?? 0;
    const waiting = (): number => accepted?.writableLength ?? 0;
    do {
      socket?.write(piece);
      sent += piece.length;
      await until(() => accepted?.bytesWritten === sent, "the piece");
    } while (waiting() === 0 || (await settled(waiting)) === 0);
    socket?.end();
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
    await until(() => accepted?.destroyed === true, "the end of the client's connection");
  });

  test("a `tcp` tunnel is closed when both directions have ended, even if bytes are unread", async () => {
    const closing = await openFor("tcp");
    closing.client.socket.end("unread");
    closing.socket.end();
    await ended(closing);
  });

  test("a tunnel stays open with tunnelCloseTimeout: 0, or while neither side has closed", async () => {
    const closing = await openFor("websocket", 0);
    closing.client.leave("FIN");
    await staysOpen(closing);
    await upstream.reset();
    await staysOpen(await openFor("websocket"));
    closing.socket.destroy();
  });
});

test("in a tunnel, a receiver that does not read makes the sender wait, in both directions", async () => {
  const sockets = switching();
  const { port } = await serve();
  const client = await open(port);
  const socket = sockets[0] as Socket;
  const chunk = Buffer.alloc(65_536, "x");
  for (const [from, to] of [
    [socket, client.socket],
    [client.socket, socket],
  ] as const) {
    to.pause();
    let sent = 0;
    const push = (): void => {
      while (from.write(chunk)) sent += chunk.length;
      sent += chunk.length;
    };
    from.on("drain", push);
    push();
    const before = await settled(() => sent);
    // The kernel's buffers hold most of these bytes.
    expect(before).toBeLessThan(32 * 1024 * 1024);
    from.removeListener("drain", push);
    let received = 0;
    to.on("data", (data: Buffer) => (received += data.length)).resume();
    await until(() => received >= sent, "all of it");
    expect(received).toBe(sent);
    to.removeAllListeners("data");
  }
});

/**
 * Returns a tunnel that keeps the bytes from the upstream before it passes them on.
 * @param passesLeave whether it also passes on `mayFree`, the permission to free the bytes
 */
function keepFrom(tunnel: Tunnel, keeper: Keeper, passesLeave: boolean): Tunnel {
  return {
    attach: (handler) =>
      tunnel.attach({
        onData(bytes, mayFree) {
          keeper.keep(bytes);
          if (passesLeave) handler.onData(bytes, mayFree);
          else handler.onData(bytes);
        },
        onDrain: () => handler.onDrain(),
        onEnd: () => handler.onEnd(),
        onClose: (error) => handler.onClose(error),
      }),
    write: (bytes) => tunnel.write(bytes),
    pause: () => tunnel.pause(),
    resume: () => tunnel.resume(),
    end: () => tunnel.end(),
    destroy: () => tunnel.destroy(),
  };
}

test.each([
  ["that an interceptor keeps do not change", false],
  ["that no other code keeps are freed when they are sent", true],
])("large chunks that a tunnel carries from the upstream %s", async (_, passesLeave) => {
  const sockets = switching();
  const keeper = new Keeper();
  const keep: Interceptor =
    (next) =>
    async (...args) => {
      const response = await next(...args);
      const { tunnel } = response;
      return tunnel === undefined
        ? response
        : { ...response, tunnel: keepFrom(tunnel, keeper, passesLeave) };
    };
  const { port } = await serve({ interceptors: { request: [keep] } });
  const client = await open(port);
  const sent = bodyOf(1, 2_000_000);
  sockets[0]?.end(sent);
  expect((await client.rest()).equals(sent)).toBe(true);
  const large = keeper.kept.filter(({ copy }) => copy.length > 32_768);
  expect(large.length).toBeGreaterThan(0);
  if (passesLeave) await until(() => large.every(({ piece }) => piece.length === 0), "free memory");
  else keeper.expectUnchanged();
});

describe("limits of tunnels", () => {
  test("tunnelTimeout closes only a tunnel that is silent in both directions", async () => {
    const sockets = switching();
    const { proxy, port } = await serve({ tunnelTimeout: 1700 });
    const client = await open(port);
    let [received, hasEnded] = [0, false];
    client.socket.on("data", () => received++).on("end", () => (hasEnded = true));
    const pulse = setInterval(() => sockets[0]?.write("x"), 50);
    const began = performance.now();
    await until(() => performance.now() - began > 2100, "more than the limit");
    expect(hasEnded).toBe(false);
    clearInterval(pulse);
    await until(() => hasEnded, "the end of the silent tunnel");
    expect(received).toBeGreaterThan(1);
    await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
  });

  test("stats() counts tunnels separately from connections in use", async () => {
    switching();
    const { proxy, port } = await serve();
    const clients = [await open(port), await open(port)];
    const { tunnels, origins } = proxy.stats() ?? {};
    expect(tunnels).toBe(2);
    expect(origins?.[upstream.url]).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 2 });
    for (const client of clients) client.leave("FIN");
    await until(() => proxy.stats()?.origins[upstream.url]?.tunnels === 0, "their end");
    expect(proxy.stats()).toMatchObject({ created: 2, closed: 2, requests: 2, tunnels: 2 });
  });

  test("`close(timeout)` ends tunnels after the timeout, and `close(0)` ends them immediately", async () => {
    switching();
    for (const timeout of [0, 200]) {
      const { proxy, port } = await serve();
      const client = await open(port);
      const began = performance.now();
      client.socket.resume();
      await Promise.all([proxy.close(timeout), within(client.closed, "the end of the tunnel")]);
      if (timeout > 0) expect(performance.now() - began).toBeGreaterThan(timeout - 20);
      const late = await apps.ask(port, request("GET", "/", offer("tcp")));
      expect(late.status).toBe(503);
      expect(late.get("retry-after")).toBe("1");
    }
  });
});

describe("responses other than 101 to a handshake", () => {
  test("a large response arrives whole, and ends the connection", async () => {
    const size = 8 * 1024 * 1024;
    upstream.script = (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      return call.pour(size);
    };
    const { port } = await serve();
    const client = await apps.connect(port);
    client.send(request("GET", "/", handshake));
    const answer = await client.read();
    expect(answer).toMatchObject({ status: 200, length: size, cut: false });
    expect(answer.get("connection")).toBe("close");
    expect(await client.rest()).toHaveLength(0);
  });

  test("a truncated response does not look complete", async () => {
    upstream.script = (call) =>
      call.write("HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    const { port } = await serve();
    const client = await apps.connect(port);
    client.send(request("GET", "/", handshake));
    const head = await client.readHead();
    apps.only().reset();
    expect(await client.readBody(head)).toMatchObject({ status: 403, cut: true });
  });

  test("bytes that follow a handshake are read only up to a limit, and dropped if the upstream refuses", async () => {
    upstream.script = async (call) => {
      const before = await settled(() => sent);
      expect(before).toBeLessThan(32 * 1024 * 1024);
      call.reply(403, [], "no");
    };
    const { port } = await serve();
    const client = await apps.connect(port);
    client.send(request("GET", "/", handshake));
    const chunk = Buffer.alloc(65_536);
    let sent = 0;
    const push = (): void => {
      while (!client.socket.destroyed && client.socket.write(chunk)) sent += chunk.length;
      sent += chunk.length;
    };
    client.socket.on("drain", push);
    push();
    expect((await client.read()).status).toBe(403);
    expect(upstream.calls).toHaveLength(1);
  });

  test("an exception of a hook is printed, and the client gets 500", async () => {
    const report = vi.spyOn(console, "error").mockImplementation(() => {});
    const error = new Error("of the hook");
    for (const hook of ["onRequest", "onResponse"]) {
      switching();
      const options = {
        [hook]: () => {
          throw error;
        },
      };
      const { proxy, port } = await serve(options);
      expect((await apps.ask(port, request("GET", "/", offer("tcp")))).status).toBe(500);
      expect(report).toHaveBeenLastCalledWith(error);
      await until(() => (proxy.stats()?.origins[upstream.url]?.tunnels ?? 0) === 0, "no tunnel");
      await upstream.reset();
    }
    report.mockRestore();
  });

  test("an invalid header field that an interceptor has added is not sent", async () => {
    const report = vi.spyOn(console, "error").mockImplementation(() => {});
    switching();
    const { port } = await serve({
      interceptors: {
        request: [
          (next) => async (hop, scope) => {
            const response = await next(hop, scope);
            return { ...response, headers: [...response.headers, "x-a", "b\r\nx-c: d"] };
          },
        ],
      },
    });
    const answer = await apps.ask(port, request("GET", "/", offer("tcp")));
    expect(answer.status).toBe(500);
    expect(answer.get("x-c")).toBeUndefined();
    expect(report).toHaveBeenCalled();
    report.mockRestore();
  });
});

test("a pipelined handshake gets its 101 after the response to the request before it", async () => {
  const { port } = await serve();
  const sockets = switching();
  const script = upstream.script;
  let release = (): void => {};
  upstream.script = (call) => {
    if (call.target !== "/first") return script(call);
    release = () => call.reply(200, [], "first");
  };
  const client = await apps.connect(port);
  client.send(request("GET", "/first"), request("GET", "/second", offer("tcp")));
  await upstream.call();
  await settled(() => upstream.calls.length);
  release();
  expect(await client.read()).toMatchObject({ status: 200, text: "first" });
  expect((await client.readHead()).status).toBe(101);
  expect(upstream.calls.map((call) => call.target)).toEqual(["/first", "/second"]);
  expect(sockets).toHaveLength(1);
});

test.each([
  ["a handshake", false, request("GET", "/second", offer("tcp")), 101],
  ["a handshake that the app answers", true, request("GET", "/second", offer("tcp")), 101],
  ["a refused request", false, request("CONNECT", "a.test:1"), 405],
])(
  "a large response arrives whole before the answer to %s that is pipelined behind it",
  async (_, routes, second, status) => {
    const proxy = createProxy({ target: upstream.url, upgrades: ["tcp"] });
    const server = createServer(proxy.nodeHandler);
    proxy.attach(server, { routes });
    const sockets = new Set<Socket>();
    server.on("connection", (socket) => sockets.add(socket));
    const client = await apps.connect(await apps.listen(server));
    switching();
    const { script } = upstream;
    upstream.script = (call) =>
      call.target === "/first" ? call.reply(200, [], "x".repeat(8 * mebibyte)) : script(call);
    client.socket.pause();
    client.send(request("GET", "/first"), second);
    await until(() => [...sockets].some((socket) => socket.writableNeedDrain), "a full connection");
    client.socket.resume();
    expect(await client.read()).toMatchObject({ status: 200, length: 8 * mebibyte, cut: false });
    expect((await client.readHead()).status).toBe(status);
  },
);

test("the refusal of a pipelined handshake is sent after the response to the request before it", async () => {
  const report = vi.spyOn(console, "error").mockImplementation(() => {});
  const hook = (path: string): Response => {
    if (path === "/thrown") throw new Error("of the hook");
    return new Response("no", { status: 403 });
  };
  const { port } = await serve({
    onRequest: ({ path }) => (/own|thrown/.test(path) ? hook(path) : undefined),
  });
  for (const [path, status, fields] of [
    ["/body", 400, [["Content-Length", "1"]]],
    ["/own", 403, []],
    ["/thrown", 500, []],
  ] as [string, number, Header[]][]) {
    const client = await apps.connect(port);
    upstream.script = () => {};
    client.send(request("GET", "/first"), request("GET", path, [...offer("tcp"), ...fields]));
    (await upstream.call()).reply(200, [], "first");
    expect(await client.read()).toMatchObject({ status: 200, text: "first" });
    expect(await client.read(), path).toMatchObject({ status, cut: false });
    await upstream.reset();
  }
  expect(report).toHaveBeenCalledTimes(1);
  report.mockRestore();
});

test("no tunnel remains if the client disconnects before it gets the 101", async () => {
  const sockets = switching();
  const { script } = upstream;
  const { proxy, port } = await serve({
    onResponse: async () => {
      client.leave("FIN");
      await settled(() => sockets.length);
    },
  });
  const client = await apps.connect(port);
  client.send(request("GET", "/", offer("tcp")));
  expect(script).toBe(upstream.script);
  await until(() => proxy.stats()?.closed === 1, "the end of the upstream's connection");
  expect(proxy.stats()?.origins[upstream.url]).toMatchObject({ tunnels: 0 });
});

test("a handshake is aborted when its client disconnects, also after another request of an interceptor has ended", async () => {
  const ends: RequestEnd[] = [];
  const authorize: Interceptor = (next) => async (hop, scope) => {
    const check = { ...hop, path: "/check", upgrade: undefined };
    expect((await next(check, scope.fork())).status).toBe(204);
    return next(hop, scope);
  };
  const { port } = await serve({
    interceptors: { request: [authorize] },
    onRequestEnd: (end) => void ends.push(end),
  });
  upstream.script = (call) => (call.target === "/check" ? call.reply(204) : undefined);
  const client = await apps.connect(port);
  client.send(request("GET", "/tunnel", offer("tcp")));
  const call = await upstream.call(1);
  client.leave("FIN");
  await within(call.link.closed, "the end of the upstream's connection");
  await until(() => ends.length === 1, "the report");
  expect(ends[0]?.status).toBe(499);
});

test("a waiting handshake that moves to another proxy gets that proxy's protocol and tunnelTimeout", async () => {
  switching("", false, "second");
  const before = await serve({ target: "http://127.0.0.1:1", upgrades: ["first"], wait: 60_000 });
  const after = await serve({ upgrades: ["second"], tunnelTimeout: 200 });
  const client = await apps.connect(before.port);
  client.send(request("GET", "/", offer("first, second")));
  await until(() => before.proxy.stats()?.held === 1, "the wait");
  before.proxy.moveWaiting(() => after.proxy);
  const head = await client.readHead();
  expect([head.status, head.get("upgrade")]).toEqual([101, "second"]);
  await within(client.rest(), "the end of the silent tunnel");
});
