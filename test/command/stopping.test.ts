/** SIGTERM while many requests run: none is lost before the deadline, and those that are cut at the deadline are counted. */
import { once } from "node:events";
import { Agent, createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command, programs } from "./_command.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

/** The responses that the upstream has not ended. */
const held: ServerResponse[] = [];
const server = createServer((req, res) => {
  const path = req.url ?? "";
  if (path === "/now") return void res.end("now");
  held.push(res);
  res.on("close", () => held.splice(held.indexOf(res), 1));
  if (path === "/body") res.write("begun, ");
  if (path === "/events") {
    res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  }
});
const sockets = new WebSocketServer({ server });
sockets.on("connection", (socket) => {
  socket.on("message", (data) => socket.send(data, { binary: false }));
});

let target = "";
beforeAll(async () => {
  target = `http://127.0.0.1:${await listen(server)}`;
});
afterAll(() => server.close().closeAllConnections());

let proxy: Command;
afterEach(() => proxy.kill());

async function start(
  flags: string,
  runtime: keyof typeof programs = "node",
): Promise<{ origin: string; port: number }> {
  proxy = new Command(`${target} --port 0 ${flags}`, [], programs[runtime]);
  const origin = await proxy.origin();
  return { origin, port: Number(new URL(origin).port) };
}

/** Requests a path (on a new connection if there is no `agent`), and resolves to the status and the whole body. */
async function ask(port: number, path: string, agent?: Agent): Promise<string> {
  const request = get({ port, path, agent: agent ?? false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  request.on("error", () => {});
  return `${response.statusCode} ${await text(response)}`;
}

async function open(port: number): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
  await within(once(socket, "open"), "the opening");
  socket.on("error", () => {});
  return socket;
}

/** Sends a request on a new connection, and returns the field `Connection` of the response. */
async function lastAnswer(port: number): Promise<string | undefined> {
  const agent = new Agent({ keepAlive: true });
  const [response] = (await once(get({ port, path: "/now", agent }), "response")) as [
    IncomingMessage,
  ];
  await text(response);
  agent.destroy();
  return response.headers.connection;
}

async function isRefused(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    socket.on("error", () => {}).destroy();
    return false;
  } catch (error) {
    return (error as { code?: string }).code === "ECONNREFUSED";
  }
}

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  test("after SIGTERM, 200 requests, WebSockets and event streams end normally", async () => {
    const { port } = await start("--stop-timeout 60000", runtime);
    const paths = Array.from({ length: 200 }, (_, n) => ["/head", "/body", "/events"][n % 3]);
    const answers = Promise.all(paths.map((path) => ask(port, path as string)));
    const opened = await Promise.all(Array.from({ length: 20 }, () => open(port)));
    await until(() => held.length === 200, "the requests at the upstream");
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping: 200 requests and 20 tunnels still running/);
    // Deno's server cannot stop accepting connections without closing its WebSockets.
    if (runtime === "deno") expect(await lastAnswer(port)).toBe("close");
    else while (!(await isRefused(port)));

    for (const res of held.slice()) res.end("whole");
    const expected = { "/head": "whole", "/body": "begun, whole", "/events": "data: 1\n\nwhole" };
    expect(await within(answers, "the answers")).toEqual(
      paths.map((path) => `200 ${expected[path as keyof typeof expected]}`),
    );
    const codes = opened.map(async (socket) => {
      const answered = once(socket, "message");
      socket.send("hello");
      const [data] = (await within(answered, "the answer")) as [Buffer];
      const closed = once(socket, "close");
      socket.close(1000);
      const [code] = (await within(closed, "the end")) as [number];
      return [data.toString(), code];
    });
    expect(await Promise.all(codes)).toEqual(opened.map(() => ["hello", 1000]));
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stderr.replace(/^Deno\.serve: .+\n/, "")).toBe("");
  });

  test("requests and tunnels that still run at the deadline are cut and counted", async () => {
    const { port } = await start("--stop-timeout 300", runtime);
    const socket = await open(port);
    const closed = once(socket, "close");
    const sent = get({ port, path: "/body", agent: false }).on("error", () => {});
    const [begun] = (await once(sent, "response")) as [IncomingMessage];
    const answers = Promise.allSettled([ask(port, "/head"), text(begun)]);
    await until(() => held.length === 2, "the requests at the upstream");
    proxy.child.kill("SIGTERM");
    expect(await within(proxy.exit, "the exit")).toBe(1);
    expect(proxy.stderr).toMatch(
      /^fetchway: stopped after 300 ms: 2 requests and 1 tunnel cut off; a longer --stop-timeout gives them more time$/m,
    );
    const [head, body] = await answers;
    expect(head).toMatchObject({ value: expect.stringMatching(/^503 /) as string });
    expect(body?.status).toBe("rejected");
    // On Node, a tunnel passes bytes on without reading frames. The command sends no close frame, because the last bytes of the
    // upstream may be half a frame.
    expect((await within(closed, "the end"))[0]).toBe(runtime === "node" ? 1006 : 1001);
  });
});

// On Node and Bun, the command accepts no connection after SIGTERM.
test("on deno, the response of a hook reaches the client after SIGTERM, even if its fields are immutable", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  const file = join(folder, "config.mjs");
  const hook =
    '({ path }) => path === "/login" ? Response.redirect("https://login.example/") : undefined';
  writeFileSync(file, `export default { onRequest: ${hook} };`);
  const { port } = await start(`--config ${file}`, "deno");
  const socket = await open(port);
  proxy.child.kill("SIGTERM");
  await proxy.says(/stopping: 1 tunnel still running/);
  const [response] = (await once(get({ port, path: "/login", agent: false }), "response")) as [
    IncomingMessage,
  ];
  await text(response);
  expect([response.statusCode, response.headers.location]).toEqual([302, "https://login.example/"]);
  socket.close();
  expect(await within(proxy.exit, "the exit")).toBe(0);
  rmSync(folder, { recursive: true });
});

test("after SIGTERM, clients that keep their connections busy lose no request", async () => {
  const { port } = await start("");
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  const results = new Map<string, number>();
  async function loop(): Promise<void> {
    for (;;) {
      const result = await ask(port, "/now", agent).catch(
        (error: unknown) => (error as { code: string }).code,
      );
      results.set(result, (results.get(result) ?? 0) + 1);
      if (result === "ECONNREFUSED") return;
    }
  }
  const loops = Array.from({ length: 20 }, loop);
  await until(() => (results.get("200 now") ?? 0) > 200, "the requests");
  proxy.child.kill("SIGTERM");
  await within(Promise.all(loops), "the end of the clients");
  expect([...results.keys()].toSorted()).toEqual(["200 now", "ECONNREFUSED"]);
  expect(results.get("ECONNREFUSED")).toBe(20);
  expect(await within(proxy.exit, "the exit")).toBe(0);
});

test.each(["https", "http"])(
  "%s: after SIGTERM, HTTP/2 clients get GOAWAY, and their running requests are answered",
  async (scheme) => {
    const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
    const { cert, key } = await makeCertificate();
    writeFileSync(join(folder, "cert.pem"), cert);
    writeFileSync(join(folder, "key.pem"), key);
    const tls = `--cert ${folder}/cert.pem --key ${folder}/key.pem`;
    const { origin } = await start(scheme === "https" ? tls : "");
    rmSync(folder, { recursive: true });
    const session = connectHttp2(origin, { ca: cert });
    const running = text(session.request({ ":path": "/body" }));
    await until(() => held.length === 1, "the request at the upstream");
    const away = once(session, "goaway");
    proxy.child.kill("SIGTERM");
    const [code, lastStream] = (await within(away, "GOAWAY")) as [number, number];
    // The first GOAWAY refuses no request, because one may be in transit.
    expect([code, lastStream]).toEqual([0, 2 ** 31 - 1]);
    held[0]?.end("whole");
    expect(await within(running, "the answer")).toBe("begun, whole");
    expect(await within(proxy.exit, "the exit")).toBe(0);
  },
);
