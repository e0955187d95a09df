/** The log and the metrics include responses of the command's server itself: without TLS, with TLS, and over HTTP/2. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect as dial, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command, programs, upstream } from "./_command.ts";
import { until, within } from "../helpers/wait.ts";
import { endsBrokenSessions } from "../hosts/_node.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const own = await makeCertificate();
const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
const LIMITS =
  "--headers-timeout 2000 --body-timeout 2000 --max-header-size 2000 --max-headers-count 20";

interface Running {
  command: Command;
  port: number;
  admin: string;
}
let plain: Running;
let secure: Running;

async function start(more: string): Promise<Running> {
  const line = `${upstream.url} --port 0 --admin 0 --log json ${LIMITS} ${more}`;
  const command = new Command(line, [], programs.node);
  const [, admin = ""] = await command.says(/status page: ([^"\s]+)/);
  const [, port] = await command.says(/https?:\/\/127\.0\.0\.1:(\d+)/);
  return { command, port: Number(port), admin };
}

beforeAll(async () => {
  writeFileSync(cert, own.cert);
  writeFileSync(key, own.key);
  upstream.handler = (req, res) => req.resume().on("end", () => res.end("hello"));
  [plain, secure] = await Promise.all([start(""), start(`--cert ${cert} --key ${key}`)]);
});
afterAll(async () => {
  await Promise.all([plain.command.kill(), secure.command.kill()]);
  rmSync(folder, { recursive: true });
});

interface Line {
  method: string;
  path: string;
  status: number;
  code?: string;
  cause?: string;
  client?: string;
}

/** Returns the lines of the log with this path. */
function linesOf({ command }: Running, path: string): Line[] {
  return command.stdout
    .split("\n")
    .filter((line) => line.startsWith("{") && line.endsWith("}"))
    .map((line) => JSON.parse(line) as Line)
    .filter((line) => line.path === path);
}

/** Sends bytes, and returns the status line of the answer. */
async function send(socket: Socket, text: string): Promise<string> {
  let received = "";
  socket.on("data", (data: Buffer) => (received += data.toString("latin1")));
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.write(text);
  await within(closed, "the end");
  return received.slice(0, 12);
}

const chunked = "Host: a\r\nTransfer-Encoding: chunked\r\n";
const fields = Array.from({ length: 21 }, (_, i) => `x${i}: 1\r\n`).join("");

const cases: [text: string, method: string, path: string, status: number, cause: RegExp][] = [
  ["GARBAGE\r\n\r\n", "-", "-", 400, /^the request is not valid HTTP\/1\.1: Invalid method/],
  [
    `POST /both HTTP/1.1\r\n${chunked}Content-Length: 3\r\n\r\n0\r\n\r\n`,
    ...(["POST", "/both", 400, /not valid HTTP\/1\.1: /] as const),
  ],
  ["GET /nohost HTTP/1.1\r\n\r\n", "GET", "/nohost", 400, /^the request has no Host$/],
  [
    `GET /long HTTP/1.1\r\nHost: a\r\nX: ${"a".repeat(3000)}\r\n\r\n`,
    ...(["GET", "/long", 431, /Header overflow/] as const),
  ],
  [
    `GET /many HTTP/1.1\r\nHost: a\r\n${fields}\r\n`,
    ...(["GET", "/many", 431, /^the header section is too large$|Header overflow/] as const),
  ],
  [
    "GET /trickle HTTP/1.1\r\nHost: a\r\nX",
    ...(["-", "-", 408, /^no complete header section within 2000 ms$/] as const),
  ],
  [
    `POST /chunk HTTP/1.1\r\n${chunked}\r\nZZ\r\n`,
    ...(["POST", "/chunk", 400, /Invalid character in chunk size/] as const),
  ],
  [
    "POST /stops HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    ...(["POST", "/stops", 408, /^the body stopped for 2000 ms$/] as const),
  ],
];

test.concurrent.each(["plain", "secure"] as const)(
  "%s: each of the server's own answers has a line in the log, and is counted by its status",
  async (name) => {
    const running = name === "plain" ? plain : secure;
    const { port, admin } = running;
    for (const [text, method, path, status, cause] of cases) {
      const before = linesOf(running, path).length;
      const socket =
        name === "plain"
          ? dial(port, "127.0.0.1")
          : connectTls({ port, host: "127.0.0.1", ca: own.cert, ALPNProtocols: ["http/1.1"] });
      expect(await send(socket, text), text).toBe(`HTTP/1.1 ${status}`);
      await until(() => linesOf(running, path).length > before, `the line of ${text}`);
      expect(linesOf(running, path).at(-1), text).toMatchObject({
        method,
        path,
        status,
        client: "127.0.0.1",
        code: "http_request_error",
      });
      expect(linesOf(running, path).at(-1)?.cause, text).toMatch(cause);
    }
    const metrics = await (await fetch(`${admin}metrics`)).text();
    for (const status of [400, 408, 431]) {
      const counts = metrics.matchAll(
        new RegExp(`^http_server_request_duration_seconds_count\\{.*"${status}".*\\} (\\d+)`, "gm"),
      );
      const counted = Array.from(counts, ([, count]) => Number(count));
      const expected = cases.filter((each) => each[3] === status).length;
      expect(counted.reduce((sum, count) => sum + count, 0)).toBe(expected);
    }
    expect(metrics).not.toMatch(/client_left/);
  },
);

test.each([
  ["https", "HTTP/2"],
  ["http", "HTTP/2 with prior knowledge"],
])(
  "%s: over %s, the log has lines for refused requests, and for request bodies that stop",
  async (scheme) => {
    const running = scheme === "https" ? secure : plain;
    const session = connectHttp2(`${scheme}://127.0.0.1:${running.port}`, { ca: own.cert });
    session.on("error", () => {});
    const large = session.request({ ":path": "/large2", x: "a".repeat(2500) });
    large.on("error", () => {}).resume();
    const stops = session.request({ ":method": "POST", ":path": "/stops2" });
    stops.on("error", () => {}).write("abc");
    await until(() => linesOf(running, "/large2").length > 0, "the line of /large2");
    await until(() => linesOf(running, "/stops2").length > 0, "the line of /stops2");
    expect(linesOf(running, "/large2")).toMatchObject([{ method: "GET", status: 431 }]);
    expect(linesOf(running, "/stops2")).toMatchObject([
      { method: "POST", status: 408, cause: "the body stopped for 2000 ms" },
    ]);
    session.destroy();
  },
);

test.runIf(endsBrokenSessions).each(["plain", "secure"] as const)(
  "%s: over HTTP/2, the log has one line for a connection that violates the protocol",
  async (name) => {
    const running = name === "plain" ? plain : secure;
    const broken = /^the connection is not valid HTTP\/2: /;
    const before = linesOf(running, "-").filter(({ cause = "" }) => broken.test(cause)).length;
    expect(before).toBe(0);
    const where = { port: running.port, host: "127.0.0.1" };
    const raw =
      name === "plain"
        ? dial(where)
        : connectTls({ ...where, ca: own.cert, ALPNProtocols: ["h2"] });
    // A DATA frame on stream 0, which is the connection (RFC 9113 §6.1).
    const frames = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 120]);
    raw.on("error", () => {}).resume();
    raw.write(Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frames]));
    const find = (): Line | undefined =>
      linesOf(running, "-").find(({ cause = "" }) => broken.test(cause));
    await until(() => find() !== undefined, "the line of the connection");
    expect(find()).toMatchObject({ method: "-", status: 400, client: "127.0.0.1" });
  },
);
