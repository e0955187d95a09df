/** Upgrades that pass the app's routes and middleware: `attach(server, { routes: true })`. */
import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  ServerResponse,
} from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createSecureServer as createHttp2Server } from "node:http2";
import type { Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import {
  createProxy,
  type CreateProxyOptions,
  type NodeProxy,
  type RequestEnd,
} from "../../../runtimes/node.ts";
import { unanswered } from "../../../runtimes/node/routed.ts";
import { useApps } from "../../helpers/apps.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { echoMessages, handshake, offer, sayHello } from "../../helpers/handshake.ts";
import { until, within } from "../../helpers/wait.ts";
import { type Header, request } from "../../helpers/wire.ts";
import { cookies, frameworks } from "./_routed.ts";

// An upgrade leaves `unanswered` when it is answered or its client disconnects. This hook runs after all other cleanup.
afterEach(() => until(() => unanswered.size === 0, "the end of all upgrades"));

const apps = useApps();
const { upstream } = apps;

const certificate = await makeCertificate();

describe.each(Object.entries(frameworks))("%s", (name, start) => {
  const isWeb = ["h3", "srvx", "hono"].includes(name);

  async function serve(options: Partial<CreateProxyOptions> = {}): Promise<number> {
    const proxy = createProxy({ target: upstream.url, ...options });
    const server = await start(proxy);
    proxy.attach(server, { routes: true });
    return apps.listen(server);
  }

  test("a WebSocket carries messages, and its 101 has the fields and cookies of middleware", async () => {
    const sockets = echoMessages(upstream);
    const port = await serve();
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
    const client = await apps.connect(port);
    client.send(request("GET", "/chat?x=1", handshake));
    const head = await client.readHead();
    expect(head.status).toBe(101);
    expect(head.all("connection")).toEqual(["Upgrade"]);
    expect(head.all("upgrade")).toEqual(["websocket"]);
    expect(head.all("sec-websocket-accept")).toEqual(["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]);
    expect(head.all("set-cookie")).toEqual(cookies);
    expect(head.all("x-by")).toEqual(["app"]);
    if (name === "hono") expect(head.get("x-frame-options")).toBe("SAMEORIGIN");
    for (const field of ["content-length", "transfer-encoding", "fetchway-upgrade"]) {
      expect(head.all(field)).toEqual([]);
    }
    const call = upstream.calls.at(-1);
    expect(call?.target).toBe("/chat?x=1");
    expect(call?.headers.filter(([field]) => /^fetchway/i.test(field))).toEqual([]);
    client.leave("FIN");
    await until(() => sockets[1]?.readyState === WebSocket.CLOSED, "the end at the upstream");
  });

  test("a response of middleware is sent completely, and then the connection ends", async () => {
    const port = await serve();
    for (const [path, status, text, field] of [
      ["/refused", 401, "no entry", "x-why"],
      ["/own", 204, "", "x-own"],
    ] as const) {
      const client = await apps.connect(port);
      // A proxy in front that does not wait for the 101 sends the next bytes as part of the tunnel, so they must not become a
      // request.
      client.send(request("GET", path, handshake), request("GET", "/smuggled"));
      const answer = await client.read();
      expect(answer).toMatchObject({ status, text, cut: false });
      expect(answer.all(field)).toHaveLength(1);
      expect(answer.get("connection")).toBe("close");
      expect(await client.rest()).toHaveLength(0);
    }
    expect(upstream.calls).toEqual([]);
  });

  test("an exception of the app becomes the framework's 500", async () => {
    const answer = await apps.ask(await serve(), request("GET", "/broken", handshake));
    expect(answer).toMatchObject({ status: 500, cut: false });
    expect(upstream.calls).toEqual([]);
  });

  test("a response of the upstream other than 101 reaches the client completely", async () => {
    upstream.script = (call) => call.reply(403, [["X-Up", "1"]], "forbidden");
    const client = await apps.connect(await serve());
    client.send(request("GET", "/", handshake));
    const answer = await client.read();
    expect(answer).toMatchObject({ status: 403, text: "forbidden" });
    expect(answer.get("x-up")).toBe("1");
    // h3 drops the fields of `event.res` from a response with an error.
    if (name !== "h3") expect(answer.get("x-by")).toBe("app");
    expect(await client.rest()).toHaveLength(0);
  });

  test("if the app does not answer, the client gets 504 after `timeout`", async () => {
    const client = await apps.connect(await serve({ timeout: 200 }));
    client.send(request("GET", "/never", handshake));
    expect(await client.read()).toMatchObject({
      status: 504,
      text: "Gateway Timeout: http_response_timeout\n",
    });
    expect(await client.rest()).toHaveLength(0);
  });

  test.runIf(isWeb).each(["/cloned", "/copied"])(
    "a copy of the request also opens the tunnel: %s",
    async (path) => {
      echoMessages(upstream);
      const port = await serve();
      expect(await sayHello(`ws://127.0.0.1:${port}${path}`)).toBe("hello");
      expect(apps.only().target).toBe(path === "/copied" ? "/elsewhere" : path);
      expect(apps.only().all("x-forwarded-for")).toEqual(["127.0.0.1"]);
      expect(apps.only().all("fetchway-upgrade")).toEqual([]);
    },
  );

  test.runIf(name === "hono" || name === "h3")(
    "a proxy that the app mounts also opens the tunnel",
    async () => {
      echoMessages(upstream);
      const port = await serve();
      expect(await sayHello(`ws://127.0.0.1:${port}/mounted/chat`)).toBe("hello");
      expect(apps.only().target).toBe("/chat");
      expect(apps.only().all("fetchway-upgrade")).toEqual([]);
    },
  );
});

/** Serves an app on a new `node:http` server, which passes upgrades to the app. */
async function serveNode(
  options: Partial<CreateProxyOptions>,
  toApp: (proxy: NodeProxy) => RequestListener = ({ nodeHandler }) => nodeHandler,
): Promise<{ proxy: NodeProxy; server: Server; port: number; detach: () => void }> {
  const proxy = createProxy({ target: upstream.url, upgrades: ["tcp", "websocket"], ...options });
  const server = createServer(toApp(proxy));
  const detach = proxy.attach(server, { routes: true });
  return { proxy, server, port: await apps.listen(server), detach };
}

/** Serves an app on srvx, which passes upgrades to the app. */
async function serveFetch(
  options: Partial<CreateProxyOptions>,
  answer: (request: Request, proxy: NodeProxy) => Promise<Response>,
): Promise<{ proxy: NodeProxy; port: number }> {
  const proxy = createProxy({ target: upstream.url, upgrades: ["tcp", "websocket"], ...options });
  const port = await apps.serve("srvx", {
    fetch: (given) => answer(given, proxy),
    plugins: [(server) => proxy.plugin(server, { routes: true })],
  });
  return { proxy, port };
}

/** Makes the upstream switch to the protocol `tcp`, and send all bytes back. Returns its open sockets. */
function switchToTcp(): Set<Socket> {
  const sockets = new Set<Socket>();
  upstream.script = (call) => {
    const { socket, rest } = call.link.takeOver();
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    call.reply("101 Switching Protocols", offer("tcp"), null);
    socket.write(rest);
    socket.on("data", (data: Buffer) => socket.write(data)).resume();
  };
  return sockets;
}

const tcp = request("GET", "/", offer("tcp"));

describe("connections of clients", () => {
  test.each([
    ["node:https", () => createSecureServer(certificate)],
    ["node:http2 with allowHTTP1", () => createHttp2Server({ ...certificate, allowHTTP1: true })],
  ])("a WebSocket works on a server of %s", async (_, create) => {
    echoMessages(upstream);
    const server = create();
    const proxy = createProxy({ target: upstream.url });
    server.on("request", (req: IncomingMessage, res: ServerResponse) => {
      res.setHeader("X-By", "app");
      proxy.nodeHandler(req, res);
    });
    proxy.attach(server, { routes: true });
    const port = await apps.listen(server);
    const socket = new WebSocket(`wss://localhost:${port}/`, { ca: certificate.cert });
    const [{ headers }] = (await once(socket, "upgrade")) as [IncomingMessage];
    expect(headers["x-by"]).toBe("app");
    socket.terminate();
    expect(await sayHello(`wss://localhost:${port}/`, { ca: certificate.cert })).toBe("hello");
  });

  test("a pipelined handshake reaches the app after the earlier responses are finished", async () => {
    const sockets = switchToTcp();
    const order: string[] = [];
    const { port } = await serveNode({}, ({ nodeHandler }) => (req, res) => {
      order.push(`${req.url} arrives`);
      if (req.url !== "/slow") return nodeHandler(req, res);
      res.on("close", () => order.push("/slow is over"));
      setTimeout(() => res.end("slow"), 50);
    });
    const client = await apps.connect(port);
    client.send(request("GET", "/slow"), tcp, "early");
    expect(await client.read()).toMatchObject({ status: 200, text: "slow" });
    expect((await client.readHead()).status).toBe(101);
    client.finish();
    expect((await client.rest()).toString()).toBe("early");
    expect(order).toEqual(["/slow arrives", "/slow is over", "/ arrives"]);
    await until(() => sockets.size === 0, "the end at the upstream");
  });

  test.each([true, false])(
    "the server's idle timeout does not apply while a pipelined handshake has no response (routes: %s)",
    async (routes) => {
      const { nodeHandler, attach } = createProxy({ target: upstream.url });
      const server = createServer((req, res) => {
        if (req.url === "/first") res.end();
        else nodeHandler(req, res);
      });
      let socket: Socket | undefined;
      server.on("connection", (accepted) => (socket = accepted));
      server.keepAliveTimeout = 5000;
      attach(server, { routes });
      const client = await apps.connect(await apps.listen(server));
      upstream.script = () => {};
      client.send(request("GET", "/first"), request("GET", "/", handshake));
      await upstream.call();
      expect(socket?.timeout).toBe(0);
      client.leave("FIN");
    },
  );

  test("bytes that the client sends before the 101 reach the upstream only after the 101", async () => {
    switchToTcp();
    const { port } = await serveNode({});
    const client = await apps.connect(port);
    client.send(tcp, "early ");
    client.send("bytes");
    expect((await client.readHead()).status).toBe(101);
    client.finish();
    expect((await client.rest()).toString()).toBe("early bytes");
    upstream.script = (call) => call.reply(403, [], "no");
    const refused = await apps.connect(port);
    refused.send(tcp, "GET /smuggled HTTP/1.1\r\n\r\n");
    expect(await refused.read()).toMatchObject({ status: 403, text: "no" });
    expect(await refused.rest()).toHaveLength(0);
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/", "/"]);
  });

  test.each(["FIN", "RST"] as const)(
    "when the client disconnects with %s, the app's response or the running upstream request is closed",
    async (how) => {
      const events: string[] = [];
      const { port } = await serveNode({}, ({ nodeHandler }) => (req, res) => {
        events.push("request");
        res.on("close", () => events.push(`close, ${res.writableEnded}`));
        if (req.url !== "/never") nodeHandler(req, res);
      });
      const client = await apps.connect(port);
      client.send(request("GET", "/never", handshake));
      await until(() => events.length === 1, "the request");
      if (how === "FIN") client.finish();
      else client.leave(how);
      await until(() => events.length === 2, "the end");
      expect(events).toEqual(["request", "close, false"]);
      await client.closed;

      upstream.script = () => {};
      const other = await apps.connect(port);
      other.send(request("GET", "/", handshake));
      const call = await upstream.call();
      if (how === "FIN") other.finish();
      else other.leave(how);
      await within(call.link.closed, "the end of the upstream's connection");
    },
  );

  test("when the client disconnects, the web request's signal aborts, and a tunnel that the app holds is closed", async () => {
    const sockets = switchToTcp();
    const aborted = vi.fn();
    const held = vi.fn();
    const { port } = await serveFetch({}, async (given, proxy) => {
      given.signal.addEventListener("abort", aborted);
      await proxy.fetch(given);
      held();
      return new Promise(() => {});
    });
    const client = await apps.connect(port);
    client.send(tcp);
    await until(() => held.mock.calls.length === 1, "the tunnel");
    expect(sockets.size).toBe(1);
    client.finish();
    await until(() => aborted.mock.calls.length === 1 && sockets.size === 0, "the ends");
  });

  test("a handshake with a body gets 400, and does not reach the app", async () => {
    const app = vi.fn();
    const { port } = await serveNode({}, () => app);
    const answer = await apps.ask(port, request("GET", "/", handshake, "body"));
    expect(answer.status).toBe(400);
    expect(app).not.toHaveBeenCalled();
  });

  test("`Expect: 100-continue` gets 100 before the 101", async () => {
    switchToTcp();
    const { port } = await serveNode({});
    const client = await apps.connect(port);
    client.send(request("GET", "/", [...offer("tcp"), ["Expect", "100-continue"]]));
    const head = await client.readHead();
    expect([...head.interim, head].map(({ status }) => status)).toEqual([100, 101]);
    client.finish();
  });

  test("after the proxy is detached, a handshake is an ordinary request to the app, and opens no tunnel", async () => {
    const { detach, port } = await serveNode({ onError: () => new Response("no") });
    detach();
    expect((await apps.ask(port, request("GET", "/", handshake))).status).toBe(200);
  });

  test("the connection switches to the protocol that the attached proxy has chosen from the client's offers", async () => {
    switchToTcp();
    const other = createProxy({ target: upstream.url, upgrades: ["websocket", "tcp"] });
    const { port } = await serveNode({ upgrades: ["tcp"] }, () => other.nodeHandler);
    const client = await apps.connect(port);
    client.send(request("GET", "/", offer("websocket, tcp")));
    expect((await client.readHead()).all("upgrade")).toEqual(["tcp"]);
    expect(apps.only().all("upgrade")).toEqual(["tcp"]);
    client.finish();
  });

  test("the connection ends after a response that the app sends without a call of `writeHead`", async () => {
    const { port } = await serveNode({}, () => (_, res) => {
      const writeHead = ServerResponse.prototype.writeHead.bind(res);
      Object.assign(res, { _implicitHeader: () => writeHead(403) });
      res.end("no");
    });
    const client = await apps.connect(port);
    client.send(tcp);
    expect(await client.read()).toMatchObject({ status: 403, text: "no" });
    expect(await client.rest()).toHaveLength(0);
  });

  test("upgrades that `match` excludes are left to another call of `attach`", async () => {
    echoMessages(upstream);
    const app = vi.fn();
    const server = createServer(app);
    const own = createProxy({ target: upstream.url });
    own.attach(server, { routes: true, match: ({ url }) => url === "/app" });
    own.attach(server, { match: ({ url }) => url === "/direct" });
    const port = await apps.listen(server);
    expect(await sayHello(`ws://127.0.0.1:${port}/direct`)).toBe("hello");
    expect(app).not.toHaveBeenCalled();
  });
});

describe("tunnels", () => {
  test("`stats()` and `onRequestEnd` count a tunnel, hooks see its 101, and `close` waits for its end", async () => {
    const sockets = switchToTcp();
    const ends: RequestEnd[] = [];
    const seen: unknown[] = [];
    const { proxy, port } = await serveNode({
      onRequest: ({ headers }) => void seen.push([...headers.keys()]),
      onResponse: ({ status, headers }) => {
        seen.push(status);
        headers.set("x-hook", "1");
      },
      onRequestEnd: (end) => void ends.push(end),
    });
    const client = await apps.connect(port);
    client.send(tcp, "12345");
    const head = await client.readHead();
    expect(head.get("x-hook")).toBe("1");
    expect(seen.at(-1)).toBe(101);
    expect(seen.flat()).not.toContain("fetchway-upgrade");
    expect(proxy.stats()).toMatchObject({ tunnels: 1 });
    let isClosed = false;
    const closing = proxy.close(60_000).then(() => (isClosed = true));
    client.send("678");
    await until(() => client.socket.bytesRead > head.bytes.length + 8, "the bytes");
    expect(isClosed).toBe(false);
    client.finish();
    expect((await client.rest()).toString()).toBe("12345678");
    await closing;
    await until(() => ends.length === 1, "the end");
    expect(ends[0]).toMatchObject({ status: 101, bytesIn: 8, bytesOut: 8 });
    expect(sockets.size).toBe(0);
  });

  test("a tunnel ends with `destroy`, and after `tunnelTimeout` of the proxy that the app has called", async () => {
    const sockets = switchToTcp();
    const { proxy, port } = await serveNode({});
    const client = await apps.connect(port);
    client.send(tcp);
    expect((await client.readHead()).status).toBe(101);
    proxy.destroy();
    await client.rest();

    const other = createProxy({ target: upstream.url, upgrades: ["tcp"], tunnelTimeout: 100 });
    const { port: otherPort } = await serveNode({}, () => other.nodeHandler);
    const silent = await apps.connect(otherPort);
    silent.send(tcp);
    expect((await silent.readHead()).status).toBe(101);
    await silent.rest();
    await until(() => sockets.size === 0, "the end at the upstream");
  });

  test("only one of two concurrent calls of a proxy opens a tunnel, and the other call gets 500", async () => {
    const sockets = switchToTcp();
    const statuses: number[][] = [];
    const { port } = await serveFetch({ log: false }, async (given, proxy) => {
      const both = await Promise.all([proxy.fetch(given), proxy.fetch(given.clone())]);
      statuses.push(both.map(({ status }) => status));
      const isOpen = given.url.endsWith("/open");
      return both.find(({ status }) => (status === 204) === isOpen) as Response;
    });
    const client = await apps.connect(port);
    client.send(request("GET", "/open", offer("tcp")));
    expect((await client.readHead()).status).toBe(101);
    await until(() => sockets.size === 1, "one tunnel");
    client.finish();
    // If the app returns the response of the refused call, no tunnel is opened.
    const answer = await apps.ask(port, request("GET", "/closed", offer("tcp")));
    expect(answer).toMatchObject({
      status: 500,
      text: "Internal Server Error: proxy_internal_error\n",
    });
    await until(() => sockets.size === 0, "the end of all tunnels");
    expect(statuses.map((both) => new Set(both))).toEqual([
      new Set([204, 500]),
      new Set([204, 500]),
    ]);
  });

  test("a second call of a proxy may open the tunnel after the upstream of the first call has refused", async () => {
    const switching = (switchToTcp(), upstream.script);
    const { port } = await serveFetch({}, async (given, proxy) => {
      upstream.script = (call) => call.reply(503, [], "not here");
      expect((await proxy.fetch(given)).status).toBe(503);
      upstream.script = switching;
      return proxy.fetch(given.clone());
    });
    const client = await apps.connect(port);
    client.send(tcp);
    expect((await client.readHead()).status).toBe(101);
    client.finish();
  });

  test.each([
    ["204 of its own", () => new Response(null, { status: 204, headers: { "x-own": "1" } })],
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
    const sockets = switchToTcp();
    const { port } = await serveFetch({}, async (given, proxy) =>
      toAnswer(await proxy.fetch(given)),
    );
    const client = await apps.connect(port);
    client.send(tcp);
    const answer = await client.read();
    expect([204, 403]).toContain(answer.status);
    expect(await client.rest()).toHaveLength(0);
    await until(() => sockets.size === 0, "the end at the upstream");
  });

  test("the tunnel is closed if the app throws, or does not return the proxy's response within `timeout`", async () => {
    const sockets = switchToTcp();
    const { port } = await serveFetch({ timeout: 300 }, async (given, proxy) => {
      await proxy.fetch(given);
      if (given.url.endsWith("/throw")) throw new Error("the app's exception");
      return new Promise(() => {});
    });
    const report = vi.spyOn(console, "error").mockImplementation(() => {});
    const broken = await apps.ask(port, request("GET", "/throw", offer("tcp")));
    report.mockRestore();
    expect(broken.status).toBe(500);
    const late = await apps.ask(port, request("GET", "/", offer("tcp")));
    expect(late.status).toBe(504);
    await until(() => sockets.size === 0, "the end at the upstream");
  });

  test("the tunnel is closed if middleware makes a field of the 101 invalid", async () => {
    const sockets = switchToTcp();
    const { port } = await serveNode({}, ({ nodeHandler }) => (req, res) => {
      const writeHead = res.writeHead.bind(res);
      Object.assign(res, {
        writeHead(status: number, _: string, fields: string[]) {
          Object.assign(res, { writeHead });
          try {
            writeHead(status, [...fields, "x-bad", "a\r\nb"]);
          } catch {
            res.writeHead(502);
          }
          return res;
        },
      });
      nodeHandler(req, res);
    });
    expect(await apps.ask(port, tcp)).toMatchObject({ status: 502, cut: false });
    await until(() => sockets.size === 0, "the end at the upstream");
  });
});

describe("time limit for the app", () => {
  test("the limit does not end a running call of a proxy, because the proxy applies its own limits", async () => {
    switchToTcp();
    const { script } = upstream;
    upstream.script = async (call) => {
      // This is longer than twice the `timeout` of the attached proxy.
      await delay(500);
      return script?.(call);
    };
    const other = createProxy({ target: upstream.url, upgrades: ["tcp"] });
    const { port } = await serveNode({ timeout: 200 }, () => other.nodeHandler);
    const client = await apps.connect(port);
    client.send(tcp);
    expect((await client.readHead()).status).toBe(101);
    client.finish();
  });

  test("a response that the app sends too late is discarded", async () => {
    const events: string[] = [];
    const { port } = await serveNode({ timeout: 100 }, () => (_, res) => {
      res.on("close", () => {
        events.push(`close, ${res.writableEnded}`);
        res.on("error", (error) => events.push(String(error)));
        res.writeHead(200, { "x-late": "1" });
        res.write("late");
        res.end(() => events.push("end"));
      });
    });
    const answer = await apps.ask(port, request("GET", "/", handshake));
    expect(answer.status).toBe(504);
    expect(answer.get("connection")).toBe("close");
    await until(() => events.length > 0, "the end");
    expect(events[0]).toBe("close, false");
    expect(events.filter((event) => event.includes("Error"))).toEqual([]);
  });
});

describe("the `Fetchway-Upgrade` token", () => {
  /**
   * Serves an app that never answers the upgrade for /held. It passes all other requests to a proxy: the original for /own,
   * and copies of the others. Returns the port, the token of each request, and a field with the token of the upgrade for /held.
   */
  async function hold(): Promise<{ port: number; tokens: (string | null)[]; stolen: Header }> {
    const tokens: (string | null)[] = [];
    const proxy = createProxy({ target: upstream.url, log: false });
    const port = await apps.serve("srvx", {
      fetch(given) {
        tokens.push(given.headers.get("fetchway-upgrade"));
        if (given.url.endsWith("/held")) return new Promise(() => {});
        return proxy.fetch(given.url.endsWith("/own") ? given : given.clone());
      },
      plugins: [
        (server) =>
          proxy.plugin(server, {
            routes: true,
            match: ({ url }) => url?.endsWith("/other") !== true,
          }),
      ],
    });
    const held = await apps.connect(port);
    held.send(request("GET", "/held", handshake));
    await until(() => tokens.length === 1, "the first request");
    return { port, tokens, stolen: ["Fetchway-Upgrade", tokens[0] as string] };
  }

  test.each(["/own", "/copied"])(
    "in an upgrade (%s), the token of another upgrade is ignored",
    async (path) => {
      echoMessages(upstream);
      const { port, tokens, stolen } = await hold();
      const client = await apps.connect(port);
      client.send(request("GET", path, [stolen, ...handshake, stolen]));
      expect((await client.readHead()).status).toBe(101);
      expect(new Set(tokens).size).toBe(2);
      expect(tokens.join()).not.toContain(", ");
      expect(apps.only().all("fetchway-upgrade")).toEqual([]);
      // `unanswered` still has the other upgrade, under two keys: its message and its token.
      expect(unanswered.size).toBe(2);
    },
  );

  test("a server to which no proxy is attached ignores the token of another server's upgrade", async () => {
    const { stolen } = await hold();
    const { fetch } = createProxy({ target: upstream.url, log: false });
    const other = await apps.serve("srvx", fetch);
    const answer = await apps.ask(other, request("GET", "/", [...handshake, stolen]));
    expect(answer.status).toBe(501);
    expect(unanswered.size).toBe(2);
  });

  test("the token is not needed if the app passes the original request to the proxy", async () => {
    echoMessages(upstream);
    const { port } = await serveFetch({}, (given, proxy) => {
      given.headers.delete("fetchway-upgrade");
      return proxy.fetch(given);
    });
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
  });

  test("in a request that the proxy does not upgrade, the token of another upgrade is ignored and removed", async () => {
    echoMessages(upstream);
    const { port, tokens, stolen } = await hold();
    for (const [version, path, fields] of [
      ["1.1", "/plain", []],
      ["1.0", "/old", handshake],
      ["1.0", "/own", handshake],
      ["1.1", "/other", handshake],
    ] as const) {
      const text = request("GET", path, [...fields, stolen]);
      const client = await apps.connect(port);
      client.send(text.toString().replace("HTTP/1.1", `HTTP/${version}`));
      expect((await client.readHead()).status, path).not.toBe(101);
      expect(unanswered.size, path).toBe(2);
    }
    expect(new Set(tokens.slice(1))).toEqual(new Set([null]));
    for (const call of upstream.calls) expect(call.all("fetchway-upgrade")).toEqual([]);
  });
});

describe("options of `attach`", () => {
  test.each([{ routes: "yes" }, { routes: 1 }, { routes: null }, { route: true }])(
    "`attach` refuses %o",
    (options) => {
      const { attach } = createProxy({ target: upstream.url });
      expect(() => attach(createServer(), options as never)).toThrow(
        /^fetchway: attach\(server, \{ match, routes \}\): use an object whose only options are/,
      );
    },
  );
});
