/** With `--log json`, every line that the command prints is JSON, from its start to its end. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { request } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeCertificate } from "../helpers/certificate.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, programs, upstream } from "./_command.ts";

let folder = "";
let proxy: Command | undefined;
/** The responses to `/held`. The upstream leaves them open. */
let held: ServerResponse[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  held = [];
  upstream.handler = (req, res) => (req.url === "/held" ? held.push(res) : res.end("hello"));
});
afterEach(async () => {
  await proxy?.kill();
  proxy = undefined;
  rmSync(folder, { recursive: true });
});

interface Line {
  time: string;
  level: string;
  message?: string;
  path?: string;
  status?: number;
  upstream?: string;
  [key: string]: unknown;
}

/** Parses every line of both streams. */
function linesOf({ stdout, stderr }: Command): Line[] {
  expect(stderr).toBe("");
  const lines = stdout.split("\n").slice(0, -1);
  return lines.map((line) => {
    const parsed = JSON.parse(line) as Line;
    expect(parsed.time).toMatch(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/);
    expect(["info", "warn", "error"]).toContain(parsed.level);
    expect(parsed.message ?? parsed.status ?? parsed["state"], line).toBeDefined();
    return parsed;
  });
}

/** Waits for a line, and returns it. */
async function lineWith(command: Command, match: Partial<Line> | RegExp): Promise<Line> {
  const find = (): Line | undefined =>
    linesOf(command).find((line) =>
      match instanceof RegExp
        ? match.test(line.message ?? "")
        : Object.entries(match).every(([name, value]) => line[name] === value),
    );
  const what = match instanceof RegExp ? String(match) : JSON.stringify(match);
  await until(() => find() !== undefined || command.isClosed, what);
  const found = find();
  if (found === undefined) throw new Error(`no ${what} in: ${command.stdout}`);
  return found;
}

async function start(line: string, runtime: keyof typeof programs = "node"): Promise<string> {
  proxy = new Command(`${line} --port 0`, [], programs[runtime]);
  const { message = "" } = await lineWith(proxy, /^fetchway listens on http/);
  return /http\S+/.exec(message)?.[0] ?? "";
}

/** Writes a config file with a hook that prints, and a hook that throws. */
function writeConfig(routes: string, server = ""): string {
  const path = join(folder, "fetchway.config.mjs");
  const text = `
    process.emitWarning("old \\u001b[2J", "DeprecationWarning");
    export default {
      server: { ${server} },
      routes: [
        { match: "/prints", target: "${upstream.url}", onRequest() { console.log("one\\ntwo", { a: 1 }); } },
        { match: "/throws", target: "${upstream.url}", onRequestEnd() { throw new Error("my hook"); } },
        { match: "/dead", target: ["http://127.0.0.1:1", "http://localhost:1"] },
        ${routes}
      ],
    };`;
  writeFileSync(path, text);
  return path;
}

const cases = [
  ["node", ""],
  ["node", "--workers 2"],
  ["bun", ""],
  ["deno", ""],
] as const;

test.each(cases)("on %s %s: every line of a whole run is JSON", async (runtime, workers) => {
  const good = `{ match: "/", target: "${upstream.url}" }`;
  const config = writeConfig(good);
  const flags = `--insecure --stats --admin 0 --stop-timeout 300 ${workers}`;
  const origin = await start(`--log json --config ${config} ${flags}`, runtime);
  const command = proxy as Command;
  await lineWith(command, /status page: /);
  const insecure = await lineWith(command, /^--insecure accepts any certificate/);
  expect(insecure.level).toBe("warn");
  expect(command.stdout).toMatch(/forwards by 4 routes\\n {2}\/prints +http/);
  const warning = await lineWith(command, /^DeprecationWarning: old/);
  expect(warning.level).toBe("warn");
  expect(command.stdout).not.toMatch(/\(node:\d+\)/);

  const headers = { "user-agent": "probe/1 \u009b2J" };
  expect((await fetch(`${origin}/ok?a`, { headers })).status).toBe(200);
  const ok = await lineWith(command, { path: "/ok?a" });
  expect(ok).toMatchObject({ level: "info", status: 200, userAgent: headers["user-agent"] });
  expect(ok).not.toHaveProperty("tls");

  expect((await fetch(`${origin}/prints`)).status).toBe(200);
  expect(await lineWith(command, /^one\ntwo/)).toMatchObject({ level: "info" });
  expect((await fetch(`${origin}/throws`)).status).toBe(200);
  expect(await lineWith(command, /my hook/)).toMatchObject({ level: "error" });
  // Each worker detects failures by itself, so send requests until one of them ejects the upstream.
  let sent = 0;
  const isEjected = (): boolean => linesOf(command).some(({ state }) => state === "ejected");
  while (!isEjected() && sent++ < 100) {
    expect((await fetch(`${origin}/dead`)).status).toBeGreaterThan(500);
  }
  expect(await lineWith(command, { state: "ejected" })).toMatchObject({ level: "error" });
  expect(await lineWith(command, { path: "/dead" })).toMatchObject({
    level: "error",
    code: "connection_refused",
    fix: "is it running?",
  });
  // A failed request has one line.
  const countFailed = (): number => linesOf(command).filter(({ path }) => path === "/dead").length;
  await until(() => countFailed() >= sent, "the lines of the failed requests");
  expect(countFailed()).toBe(sent);

  writeFileSync(config, "export default { target: 'http://127.0.0.1:1', timeout: 'x' };\n");
  expect(await lineWith(command, /timeout: use whole milliseconds/)).toMatchObject({
    level: "error",
  });
  await lineWith(command, /stay as they are/);
  writeConfig(good, "port: 1");
  const replaced = workers === "" ? /has been reloaded: 4 routes/ : /workers have been replaced/;
  expect(await lineWith(command, replaced)).toMatchObject({ level: "info" });
  // On Deno, this signal also starts the inspector of the runtime, which prints on stderr.
  if (runtime !== "deno") {
    command.child.kill("SIGUSR1");
    expect(await lineWith(command, /^connections: \d+ created/)).toMatchObject({ level: "info" });
  }

  const cut = fetch(`${origin}/held`).catch(() => undefined);
  await until(() => held.length > 0, "the request");
  command.child.kill("SIGTERM");
  expect(await within(command.exit, "the exit")).toBe(1);
  await cut;
  await lineWith(command, /^stopping: 1 request still running/);
  expect(await lineWith(command, /^stopped after \d+ ms: 1 request cut off/)).toMatchObject({
    level: "warn",
  });
  linesOf(command);
  // oxlint-disable-next-line no-control-regex
  expect(command.stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
});

test("refused connections have a line in JSON, and so do requests that the server itself refuses", async () => {
  const origin = await start(`${upstream.url} --log json --max-connections 1`);
  const command = proxy as Command;
  const first = fetch(`${origin}/held`);
  await until(() => held.length > 0, "the first request");
  const second = await fetch(`${origin}/second`, { headers: { connection: "close" } });
  expect([second.status, second.headers.get("retry-after")]).toEqual([503, "1"]);
  expect(await lineWith(command, /^connections are refused: all 1 are in use/)).toMatchObject({
    level: "warn",
  });
  expect(await lineWith(command, { path: "/second" })).toMatchObject({
    level: "error",
    status: 503,
    cause: "all connections are in use",
    client: "127.0.0.1",
  });
  held[0]?.end();
  await (await first).text();
  const port = Number(new URL(origin).port);
  for (const [path, expectation] of [
    ["/expects", "else"],
    ["/continues", "100-Continue"],
  ]) {
    const socket = connect(port, "127.0.0.1");
    socket.write(
      `GET ${path} HTTP/1.1\r\nHost: a\r\nExpect: ${expectation}\r\nConnection: close\r\n\r\n`,
    );
    await socket.resume().toArray();
  }
  expect(await lineWith(command, { path: "/expects" })).toMatchObject({
    level: "warn",
    status: 417,
  });
  expect(await lineWith(command, { path: "/continues" })).toMatchObject({ status: 200 });
});

test.each(cases)(
  "on %s %s: an exception that ends the process is a line in JSON",
  async (runtime, workers) => {
    const path = join(folder, "crash.mjs");
    const crash = `onRequest: () => void setTimeout(() => { throw new RangeError("crashed"); })`;
    // Here, the file chooses the form of the log.
    const text = `export default { server: { log: "json" }, target: "${upstream.url}", ${crash} };`;
    writeFileSync(path, text);
    const origin = await start(`--config ${path} ${workers}`, runtime);
    const command = proxy as Command;
    writeFileSync(path, text.replace("target", "timeout: -1, target"));
    expect(await lineWith(command, /^crash\.mjs:1: timeout: use whole/)).toMatchObject({
      level: "error",
    });
    await fetch(`${origin}/held`).catch(() => undefined);
    const line = await lineWith(command, /RangeError: crashed/);
    expect(line.level).toBe("error");
    expect(line.message).toMatch(/crash\.mjs/);
    if (workers !== "") await lineWith(command, /^worker \d+ has ended/);
    else expect(await within(command.exit, "the exit")).toBe(1);
  },
);

describe.each(cases)(
  "on %s %s: the JSON line of a command that does not start",
  (runtime, workers) => {
    test("says that the port is in use", async () => {
      const { port } = new URL(upstream.url);
      proxy = new Command(`4000 --log json --port ${port} ${workers}`, [], programs[runtime]);
      expect(await within(proxy.exit, "the exit")).toBe(2);
      const why = expect.stringContaining(`port ${port} is in use`) as string;
      expect(linesOf(proxy)).toMatchObject([{ level: "error", message: why }]);
    });
    test("says what is wrong with the flags", async () => {
      proxy = new Command(`4000 --log json --prot 1 ${workers}`, [], programs[runtime]);
      expect(await within(proxy.exit, "the exit")).toBe(2);
      expect(linesOf(proxy).map(({ message }) => message)).toEqual([
        "there is no --prot: use --port",
      ]);
    });
  },
);

test("the stderr of a worker that dies becomes JSON lines as well", async () => {
  const path = join(folder, "abort.mjs");
  writeFileSync(
    path,
    `export default { target: "${upstream.url}", onRequest() { process.stderr.write("# Fatal\\n"); process.abort(); } };`,
  );
  const origin = await start(`--log json --workers 2 --config ${path}`);
  await fetch(origin).catch(() => undefined);
  const command = proxy as Command;
  expect(await lineWith(command, /^# Fatal$/)).toMatchObject({ level: "error" });
  await lineWith(command, /^worker \d+ has ended \(SIGABRT\)/);
});

test("the lines of HTTP/1.1 and HTTP/2 requests have the TLS version, even if the client has disconnected", async () => {
  const { cert, key } = await makeCertificate();
  writeFileSync(join(folder, "cert.pem"), cert);
  writeFileSync(join(folder, "key.pem"), key);
  const tls = `--cert ${folder}/cert.pem --key ${folder}/key.pem`;
  const origin = await start(`${upstream.url} --log json ${tls}`);
  const command = proxy as Command;
  const left = request(`${origin}/held`, { ca: cert, agent: false, maxVersion: "TLSv1.2" });
  left.on("error", () => {}).end();
  await until(() => held.length > 0, "the request");
  left.destroy();
  expect(await lineWith(command, { path: "/held" })).toMatchObject({
    tls: "TLSv1.2",
    clientLeft: true,
  });
  const session = connectHttp2(origin, { ca: cert });
  const stream = session.request({ ":path": "/h2", "user-agent": "two" });
  await stream.resume().toArray();
  session.destroy();
  expect(await lineWith(command, { path: "/h2" })).toMatchObject({
    tls: "TLSv1.3",
    userAgent: "two",
  });
});
