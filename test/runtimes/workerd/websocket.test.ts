/** WebSockets of Workers: to apps in the same isolate, to service bindings, and with hooks. */
import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { rfc } from "../../conformance/rfc.ts";
import { handshake } from "../../helpers/handshake.ts";
import { until, within } from "../../helpers/wait.ts";
import { accept } from "../../helpers/websocket.ts";
import { type Header, request } from "../../helpers/wire.ts";
import { useWorker } from "./_workerd.ts";

const worker = `
import { createProxy, proxyFetch } from "./runtimes/workerd.ts";

/** An app in the same isolate that echoes in upper case. */
const app = {
  fetch(request) {
    if (request.headers.get("upgrade") !== "websocket") return new Response("no upgrade", { status: 426 });
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.addEventListener("message", ({ data }) => server.send(data.toUpperCase()));
    server.addEventListener("close", ({ code, reason }) => server.close(code, reason));
    const headers = { "x-path": new URL(request.url).pathname, "sec-websocket-protocol": "b" };
    return new Response(null, { status: 101, webSocket: client, headers });
  },
};

const ways = {
  "/app": (request) => proxyFetch(request, app),
  "/service": (request, { UPSTREAM, SERVICE }) => proxyFetch(request, { url: UPSTREAM, fetch: (r) => SERVICE.fetch(r) }),
  "/stub": (request, { SELF }) => proxyFetch(request, SELF, { pathRewrite: { "/stub": "/app" } }),
  "/replaced": (request, { UPSTREAM }) => proxyFetch(request, UPSTREAM, { onResponse: () => new Response("no", { status: 403 }) }),
  "/fields": (request, { UPSTREAM }) => proxyFetch(request, UPSTREAM, {
    onResponse: (response) => response.headers.set("x-hook", String(response.status)),
  }),
  "/fetch": (request, { UPSTREAM }) => proxyFetch(request, UPSTREAM, { fetch: (url, init) => fetch(url, init) }),
  /** Opens a WebSocket with workerd's own client, and responds with what the client has seen, as JSON. */
  async "/client"(request) {
    const { webSocket, status } = await fetch(request.headers.get("x-url"), { headers: { upgrade: "websocket" } });
    webSocket.accept();
    const seen = [status];
    const closed = new Promise((resolve) => webSocket.addEventListener("close", ({ code, reason }) => resolve([code, reason])));
    webSocket.addEventListener("message", ({ data }) => {
      seen.push(data);
      webSocket.close(4001, "bye");
    });
    webSocket.send("hello");
    return Response.json([...seen, await closed, ...seen.slice(1)]);
  },
};

export default {
  fetch(request, env) {
    return ways[new URL(request.url).pathname](request, env);
  },
};`;

const { upstream, send } = useWorker(worker);
const sockets: WebSocket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.terminate();
});

async function portOf(): Promise<number> {
  const client = await send(new Uint8Array());
  const { remotePort = 0 } = client.socket;
  client.leave("FIN");
  return remotePort;
}

async function open(path: string): Promise<{ socket: WebSocket; headers: Record<string, string> }> {
  const socket = new WebSocket(`ws://127.0.0.1:${await portOf()}${path}`, ["a", "b"]);
  sockets.push(socket);
  socket.on("error", () => {});
  const opened = once(socket, "open").catch(() => {});
  const [answer] = (await within(once(socket, "upgrade"), "the 101")) as [
    { headers: Record<string, string> },
  ];
  await within(opened, "the opening");
  return { socket, headers: answer.headers };
}

async function ask(socket: WebSocket, message: string): Promise<string> {
  const answered = once(socket, "message");
  socket.send(message);
  return String(((await within(answered, "the answer")) as [Buffer])[0]);
}

function echo(): void {
  upstream.script = async (call) => {
    const socket = await accept(call, "b");
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  };
}

describe("WebSockets", () => {
  test("a WebSocket reaches an app in the same isolate", async () => {
    const { socket, headers } = await open("/app");
    expect([socket.protocol, headers["x-path"]]).toEqual(["b", "/app"]);
    expect(await ask(socket, "hello")).toBe("HELLO");
    socket.close(4001, "bye");
    expect((await within(once(socket, "close"), "the end"))[0]).toBe(4001);
  });

  test("a WebSocket reaches a service binding through an object with `url` and `fetch`", async () => {
    echo();
    const { socket } = await open("/service");
    expect(await ask(socket, "hello")).toBe("hello");
    socket.close();
  });

  test("a WebSocket reaches a service binding", async () => {
    const { socket, headers } = await open("/stub");
    expect([socket.protocol, headers["x-path"]]).toEqual(["b", "/app"]);
    expect(await ask(socket, "hello")).toBe("HELLO");
    socket.close();
  });

  test("the handshake's response has the header fields that onResponse sets", async () => {
    echo();
    const { socket, headers } = await open("/fields");
    expect(headers["x-hook"]).toBe("101");
    expect(await ask(socket, "hello")).toBe("hello");
  });

  test("the upstream's WebSocket is closed if onResponse replaces the response", async () => {
    let code: number | undefined;
    upstream.script = async (call) => void (await accept(call)).on("close", (c) => (code = c));
    const client = await send(request("GET", "/replaced", handshake));
    expect(await client.read()).toMatchObject({ status: 403, text: "no" });
    await until(() => code !== undefined, "the end at the upstream");
    expect(code).toBe(1001);
    client.leave("FIN");
  });

  test("the client gets 502 if the upstream chooses a subprotocol that was not offered", async () => {
    rfc("6455-4.1-subprotocol");
    upstream.script = async (call) => void (await accept(call, "c"));
    const offers: Header[] = [["Sec-WebSocket-Protocol", "a, b"]];
    const client = await send(request("GET", "/fields", [...handshake, ...offers]));
    expect((await client.readHead()).status).toBe(502);
    client.leave("FIN");
  });

  test("with the option `fetch`, a handshake gets 501", async () => {
    const client = await send(request("GET", "/fetch", handshake));
    expect((await client.read()).status).toBe(501);
    expect(upstream.calls).toEqual([]);
    client.leave("FIN");
  });

  test("workerd's own client gets its messages and its close code", async () => {
    const port = await portOf();
    const url = `http://127.0.0.1:${port}/app`;
    const client = await send(request("GET", "/client", [["X-Url", url]]));
    expect(JSON.parse((await client.read()).text)).toEqual([101, [4001, "bye"], "HELLO"]);
    client.leave("FIN");
  });
});
