/** WebSockets through the command. */
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { connect } from "../helpers/client.ts";
import { listening } from "./_command.ts";
import { handshake, sayHello } from "../helpers/handshake.ts";
import { until, within } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

const echo = new WebSocketServer({ port: 0, host: "127.0.0.1" });
let target = "";
beforeAll(async () => {
  if (echo.address() === null) await once(echo, "listening");
  target = `http://127.0.0.1:${(echo.address() as { port: number }).port}`;
});
afterAll(() => echo.close());
echo.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});

/** Starts an upstream that accepts a WebSocket and never reads from it. */
async function listenHung(): Promise<AsyncDisposable & { port: number }> {
  const server = createServer();
  const sockets: Duplex[] = [];
  server.on("upgrade", (_, socket) => {
    sockets.push(socket.on("error", () => {}));
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as { port: number }).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

test("the command forwards WebSockets, and ends them when it stops", async () => {
  const { proxy, origin } = await listening(`${target} --stop-timeout 2000`);
  const url = origin.replace("http:", "ws:");
  expect(await sayHello(url)).toBe("hello");
  const socket = new WebSocket(url);
  await within(once(socket, "open"), "the opening");
  const closed = once(socket, "close");
  socket.on("error", () => {});
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(1);
  expect(((await within(closed, "the end")) as [number])[0]).toBe(1006);
  expect(proxy.stderr).toMatch(/: 1 tunnel cut off; /);
});

test("--upgrades and --tunnel-timeout set which upgrades are forwarded, and how long a tunnel may be silent", async () => {
  const { origin } = await listening(`${target} --upgrades websocket --tunnel-timeout 200`);
  const socket = new WebSocket(origin.replace("http:", "ws:"));
  socket.on("error", () => {});
  await within(once(socket, "open"), "the opening");
  await within(once(socket, "close"), "the end of the silent WebSocket");
});

test("if the upstream of a tunnel does not read, the log says how the tunnel ended", async () => {
  await using hung = await listenHung();
  const { proxy, origin } = await listening(
    `http://127.0.0.1:${hung.port} --tunnel-close-timeout 100 --log pretty`,
  );
  const client = await connect(Number(new URL(origin).port));
  client.send(request("GET", "/", handshake));
  expect((await client.readHead()).status).toBe(101);
  client.send("hello");
  client.leave("FIN");
  await until(() => proxy.stderr.endsWith("\n"), "the failure");
  expect(proxy.stderr).toMatch(/ GET \/ → 101 websocket cut after .*, 5 B in, 0 B out: /);
  expect(proxy.stderr).toContain(
    `connection_read_timeout: 127.0.0.1:${hung.port} fell silent: the tunnel did not end within 100 ms ` +
      "(does it still read? see --tunnel-close-timeout)",
  );
});

test("an upgrade without a route gets 404, and one whose path can belong to two routes gets 400", async () => {
  const { origin } = await listening(`--route /api=${target}`);
  const answer = async (path: string): Promise<[number | undefined, string]> => {
    const socket = new WebSocket(origin.replace("http:", "ws:") + path);
    socket.on("error", () => {});
    const [, response] = (await within(once(socket, "unexpected-response"), "the response")) as [
      unknown,
      IncomingMessage,
    ];
    return [response.statusCode, await text(response)];
  };
  expect(await sayHello(`${origin.replace("http:", "ws:")}/api`)).toBe("hello");
  expect(await answer("/else")).toEqual([404, "Not Found: no route for this host and path\n"]);
  expect(await answer("/%61pi")).toEqual([400, "Bad Request: the path is ambiguous\n"]);
});

test("the condition of a route also applies to upgrades", async () => {
  const { origin } = await listening(
    `http://127.0.0.1:1 --route "/=${target} --when-header 'origin: http://a*' --when-query v=2"`,
  );
  const open = async (path: string, field: string): Promise<number | undefined> => {
    const headers = { origin: field };
    const socket = new WebSocket(origin.replace("http:", "ws:") + path, { headers });
    socket.on("error", () => {});
    const answer = new Promise<IncomingMessage>((resolve) => {
      socket.once("upgrade", resolve);
      socket.once("unexpected-response", (_, response) => resolve(response));
    });
    const { statusCode } = await within(answer, "the response");
    socket.terminate();
    return statusCode;
  };
  expect(await open("/x?v=2", "http://a.example")).toBe(101);
  expect(await open("/x?v=1", "http://a.example")).toBe(502);
  expect(await open("/x?v=2", "http://b.example")).toBe(502);
});
