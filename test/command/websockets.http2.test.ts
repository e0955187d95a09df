/** WebSockets over HTTP/2 (RFC 8441) through the command: routes, log, metrics, limits, and the stop. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { bridgeTo, extended } from "../helpers/bridge.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { sayHello } from "../helpers/handshake.ts";
import { listen } from "../helpers/serve.ts";
import { patience, pause, until, within } from "../helpers/wait.ts";
import { type Command, command, listening } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const { cert, key } = await makeCertificate();
const tls = ["cert", "key"].map((name) => `--${name} ${join(folder, `${name}.pem`)}`).join(" ");
writeFileSync(join(folder, "cert.pem"), cert);
writeFileSync(join(folder, "key.pem"), key);

const echo = new WebSocketServer({ port: 0, host: "127.0.0.1" });
echo.on("connection", (socket, { url }) => {
  if (url === "/flood") for (let n = 0; n < 300; n++) socket.send(Buffer.alloc(65_536));
  socket.on("message", (data) => socket.send(data, { binary: false }));
  socket.on("error", () => {});
});
let target = "";
beforeAll(() => {
  target = `http://127.0.0.1:${(echo.address() as { port: number }).port}`;
});
afterAll(() => {
  echo.close();
  rmSync(folder, { recursive: true });
});

/** The time limit of `expect.poll`, whose default is one second. */
const limit = { timeout: patience };

const closing: (() => unknown)[] = [];
afterEach(() => {
  for (const close of closing.splice(0).toReversed()) close();
});

async function start(line: string): Promise<{ proxy: Command; origin: string }> {
  const proxy = command(`${line} ${tls} --port 0`);
  const [, origin = ""] = await proxy.says(/listens on (https:[^\s"\\]+)/);
  return { proxy, origin };
}

async function openSession(origin: string): Promise<ClientHttp2Session> {
  const session = connect(origin, { ca: cert });
  session.on("error", () => {});
  closing.push(() => session.destroy());
  await within(once(session, "remoteSettings"), "the settings");
  return session;
}

/**
 * Starts a WebSocket server that passes its clients on to the command over HTTP/2, because `ws` itself speaks only HTTP/1.1.
 * Returns its URL.
 */
async function openBridge(origin: string): Promise<string> {
  const session = await openSession(origin);
  const bridge: Server = bridgeTo(() => session);
  closing.push(() => bridge.close());
  return `ws://127.0.0.1:${await listen(bridge)}`;
}

/** Asks for a WebSocket. */
async function ask(
  session: ClientHttp2Session,
  fields: IncomingHttpHeaders = {},
): Promise<[ClientHttp2Stream, IncomingHttpHeaders]> {
  const stream = session.request({ ...extended, ...fields }, { endStream: false });
  stream.on("error", () => {});
  const [head] = (await within(once(stream, "response"), "the response")) as [IncomingHttpHeaders];
  return [stream, head];
}

/** Resolves when a stream has closed, which may have happened already. */
function closeOf(stream: ClientHttp2Stream): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    if (stream.destroyed) resolve();
    else stream.on("close", resolve);
  });
  return within(closed, "the close");
}

test("WebSockets over HTTP/2 are announced, routed, and logged and counted as tunnels", async () => {
  const { proxy, origin } = await start(`--route /api=${target} --log json --admin 0`);
  const session = await openSession(origin);
  expect(session.remoteSettings.enableConnectProtocol).toBe(true);
  const [, none] = await ask(session, { ":path": "/else" });
  expect(none[":status"]).toBe(404);
  const [, ambiguous] = await ask(session, { ":path": "/%61pi" });
  expect(ambiguous[":status"]).toBe(400);
  const [, other] = await ask(session, { ":protocol": "tcp" });
  expect(other[":status"]).toBe(501);
  expect(await sayHello(`${await openBridge(origin)}/api/chat`)).toBe("hello");
  await until(() => proxy.stdout.includes('"status":101'), "the line of the tunnel");
  const lines = proxy.stdout.split("\n").filter((line) => line.includes('"status":'));
  expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
    { method: "GET", path: "/else", status: 404 },
    { method: "GET", path: "/%61pi", status: 400 },
    { method: "GET", path: "/api/chat", route: "/api", status: 101, protocol: "websocket" },
  ]);
  const [tunnel] = await ask(session, { ":path": "/api" });
  const [, admin = ""] = await proxy.says(/status page: (http:\/\/[\w.:]+)/);
  const metrics = async (): Promise<string> => (await fetch(`${admin}/metrics`)).text();
  await expect.poll(metrics, limit).toMatch(/^fetchway_tunnels_total\{protocol="websocket"\} 1$/m);
  expect(await metrics()).toMatch(/http_connection_state="tunnel"\} 1$/m);
  tunnel.close(constants.NGHTTP2_CANCEL);
});

test("WebSockets over HTTP/2 count as GET in the condition of a route, as over HTTP/1.1", async () => {
  const condition = "--when-method GET --when-header x-beta:1 --when-query v=2";
  const { origin } = await start(`--route "/=${target} ${condition}" --log off`);
  const session = await openSession(origin);
  const [taken, head] = await ask(session, { ":path": "/?v=2", "x-beta": "1" });
  const [, other] = await ask(session, { ":path": "/?v=2" });
  expect([head[":status"], other[":status"]]).toEqual([200, 404]);
  taken.close(constants.NGHTTP2_CANCEL);
});

test("WebSockets over HTTP/2 also work on a port without TLS, with prior knowledge", async () => {
  const { proxy, origin } = await listening(`${target} --log off`);
  const session = await openSession(origin);
  const bridge = bridgeTo(() => session);
  closing.push(() => bridge.close());
  const socket = new WebSocket(`ws://127.0.0.1:${await listen(bridge)}`);
  await within(once(socket, "open"), "the opening");
  proxy.child.kill("SIGTERM");
  await proxy.says(/stopping: 1 tunnel still running/);
  socket.close();
  expect(await within(proxy.exit, "the exit")).toBe(0);
});

test("WebSockets share an HTTP/2 session with requests, and keep it from being closed as idle", async () => {
  const { origin } = await start(`${target} --log off --keep-alive-timeout 1500`);
  const session = await openSession(origin);
  const [tunnel] = await ask(session);
  const page = session.request({ ":path": "/" });
  expect(await text(page)).toBe("Upgrade Required");
  await pause(2500);
  const echoed = once(tunnel, "data");
  tunnel.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]));
  expect((await within(echoed, "the echo"))[0]).toEqual(Buffer.from([0x81, 2, 0x68, 0x69]));
  const closed = once(session, "close");
  tunnel.close(constants.NGHTTP2_CANCEL);
  await within(closed, "the end of the idle session");
});

describe("the limits for WebSockets over HTTP/2", () => {
  test("`--max-connections` counts each WebSocket, and a WebSocket beyond the limit gets 503", async () => {
    const { proxy, origin } = await start(`${target} --route /other=${target} --max-connections 3`);
    const session = await openSession(origin);
    const [first] = await ask(session);
    const [, second] = await ask(session);
    expect(second[":status"]).toBe(200);
    const [, third] = await ask(session);
    expect([third[":status"], third["retry-after"]]).toEqual([503, "1"]);
    await until(() => proxy.stderr.includes("all 3 are in use"), "the warning");
    await until(() => proxy.stderr.includes(" → 503 "), "the line of the refusal");
    expect(proxy.stderr.match(/CONNECT \/ → 503 /g)).toHaveLength(1);
    expect(proxy.stderr).not.toContain("ERR_");
    const closed = closeOf(first);
    first.close(constants.NGHTTP2_CANCEL);
    await closed;
    await expect.poll(async () => (await ask(session))[1][":status"], limit).toBe(200);
  });

  test("`--max-per-address` counts each WebSocket", async () => {
    const { proxy, origin } = await start(`${target} --max-per-address 2`);
    const session = await openSession(origin);
    const statuses = [await ask(session), await ask(session)].map(([, head]) => head[":status"]);
    expect(statuses).toEqual([200, 503]);
    await until(() => proxy.stderr.includes("127.0.0.1 has 2 in use; raise"), "the warning");
    const cause = "all connections of this address are in use (raise --max-per-address";
    await until(() => proxy.stderr.includes(cause), "the line of the refusal");
  });

  test("`--max-per-address` no longer applies to an open connection of a proxy that a changed config file trusts", async () => {
    const path = join(folder, "trusting.json");
    const write = (trustProxy: string[]): void =>
      writeFileSync(path, JSON.stringify({ target, trustProxy, server: { maxPerAddress: 1 } }));
    write([]);
    const { proxy, origin } = await start(`--config ${path} --log off`);
    const session = await openSession(origin);
    const [, before] = await ask(session);
    write(["127.0.0.1"]);
    await proxy.says(/has been reloaded/);
    const [, after] = await ask(session);
    expect([before[":status"], after[":status"]]).toEqual([503, 200]);
  });

  test("a request with `Expect: 100-continue` does not count as a WebSocket", async () => {
    const paths: unknown[] = [];
    const upstream = createServer((req, res) => {
      paths.push(req.url);
      req.resume().on("end", () => res.end("done"));
    });
    closing.push(() => upstream.close().closeAllConnections());
    const { proxy, origin } = await start(
      `http://127.0.0.1:${await listen(upstream)} --max-per-address 1 --log off`,
    );
    const session = await openSession(origin);
    const fields = { ":method": "POST", ":path": "/upload", expect: "100-continue" };
    const upload = session.request(fields, { endStream: false });
    await within(once(upload, "continue"), "100 (Continue)");
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping: 1 request still running/);
    upload.end("body");
    const response = within(once(upload, "response"), "the response");
    const [head] = (await response) as [IncomingHttpHeaders];
    expect(head[":status"]).toBe(200);
    expect(await text(upload)).toBe("done");
    expect(paths).toEqual(["/upload"]);
  });

  test("`--max-headers-count` applies to the request for a WebSocket", async () => {
    const { origin } = await start(`${target} --max-headers-count 5 --log off`);
    const session = await openSession(origin);
    const fields = Object.fromEntries(Array.from({ length: 5 }, (_, n) => [`x-${n}`, "1"]));
    const stream = session.request({ ...extended, ...fields }, { endStream: false });
    stream.on("error", () => {});
    await closeOf(stream);
    expect(stream.rstCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  test("`--send-timeout` ends only a WebSocket whose client does not read", async () => {
    const { origin } = await start(`${target} --send-timeout 500 --log off`);
    const session = await openSession(origin);
    const [deaf] = await ask(session, { ":path": "/flood" });
    deaf.pause();
    const [other] = await ask(session);
    await closeOf(deaf);
    expect(deaf.rstCode).toBe(constants.NGHTTP2_CANCEL);
    expect(other.closed).toBe(false);
  });

  test("`--tunnel-timeout` ends both sides of a silent WebSocket", async () => {
    const { origin } = await start(`${target} --tunnel-timeout 200 --log off`);
    const [stream] = await ask(await openSession(origin));
    await closeOf(stream.resume());
  });
});

describe("the stop of the command", () => {
  test("the command waits for running WebSockets when it stops", async () => {
    const { proxy, origin } = await start(`${target} --log off`);
    const socket = new WebSocket(await openBridge(origin));
    await within(once(socket, "open"), "the opening");
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping: 1 tunnel still running/);
    const answered = once(socket, "message");
    socket.send("hello");
    expect(String((await within(answered, "the answer"))[0])).toBe("hello");
    socket.close();
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });

  test("at the deadline, the command cuts WebSockets off", async () => {
    const { proxy, origin } = await start(`${target} --log off --stop-timeout 300`);
    const session = await openSession(origin);
    const away = once(session, "goaway");
    const [stream] = await ask(session);
    proxy.child.kill("SIGTERM");
    await within(away, "GOAWAY");
    await closeOf(stream.resume());
    expect(stream.rstCode).toBe(constants.NGHTTP2_CONNECT_ERROR);
    expect(await within(proxy.exit, "the exit")).toBe(1);
    expect(proxy.stderr).toContain("1 tunnel cut off");
  });
});
