/** The output of the running command on each runtime: its log, its failures and its status page. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, get, type IncomingMessage } from "node:http";
import { createServer as createTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

/** Ends the response to `/slow`; undefined until the request has arrived. */
let finishSlow: (() => void) | undefined;
/** Breaks off the response to `/cut`; undefined until the request has arrived. */
let breakOff: (() => void) | undefined;
const upstream = createServer((req, res) => {
  if (req.url === "/cut") {
    res.writeHead(200, { "content-length": 1000 }).write("half");
    breakOff = () => void res.destroy();
  } else if (req.url === "/endless") res.writeHead(200).write("begun");
  else if (req.url === "/slow") finishSlow = () => res.end("at last");
  else req.resume().on("end", () => res.end("hello"));
});
new WebSocketServer({ server: upstream }).on("connection", (socket) =>
  socket.on("message", (data) => socket.send(data)),
);
const closed = createServer();
let target = "";
let dead = "";
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const config = join(folder, "fetchway.config.mjs");
beforeAll(async () => {
  const lines = [
    "export default {",
    '  routes: [{ match: "/hook", target: "http://127.0.0.1:9",',
    "    onRequest() {",
    '      throw new TypeError("no such\\nuser");',
    "    } },",
    '  { match: "/own", target: "http://127.0.0.1:9",',
    '    onError: () => new Response("mine", { status: 503 }),',
    "    onRequestEnd: ({ status }) => console.log(`own listener: ${status}`) }],",
    "};",
  ];
  writeFileSync(config, lines.join("\n"));
  target = `http://127.0.0.1:${await listen(upstream)}`;
  dead = `127.0.0.1:${await listen(closed)}`;
  await new Promise((resolve) => closed.close(resolve));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
  upstream.close().closeAllConnections();
});

interface Line {
  level?: string;
  method: string;
  path: string;
  status: number;
  [key: string]: unknown;
}

/** Starts the command on a free port; returns it with its origin. */
async function start(
  [tool = "", ...args]: readonly string[],
  ...flags: string[]
): Promise<{ program: ReturnType<typeof startProgram>; origin: string }> {
  const program = startProgram(tool, [...args, target, "--port=0", ...flags]);
  const [, origin = ""] = await program.printed(/listens on (http:\S+) .*\n/);
  return { program, origin };
}

const NODE = ["node", "command/main.ts"];

describe.each([
  ["node", NODE],
  ["bun", ["bun", "command/main.ts"]],
  ["deno", ["deno", "run", "-A", "command/main.ts"]],
])("on %s", (_name, command) => {
  test("the log and the status page show responses, failures, tunnels, cut streams and clients that disconnected", async () => {
    const { program, origin } = await start(
      command,
      "--admin=0",
      "--log=json",
      "--stop-timeout=20000",
      `--route=/dead=http://${dead}`,
      `--config=${config}`,
    );
    await using _ = program;
    const [, admin = ""] = await program.printed(/status page: (http:\S+)\//);

    expect(await (await fetch(`${origin}/a?b`, { method: "POST", body: "1234" })).text()).toBe(
      "hello",
    );
    expect((await fetch(`${origin}/dead/%1b[2J?token=x`)).status).toBe(502);
    const half = (await fetch(`${origin}/cut`)).body?.getReader();
    await half?.read();
    breakOff?.();
    await expect(half?.read()).rejects.toThrow();
    const leaving = get(`${origin}/endless`);
    const [response] = (await once(leaving, "response")) as [IncomingMessage];
    await once(response, "data");
    const thrown = await fetch(`${origin}/hook`);
    expect([thrown.status, await thrown.text()]).toEqual([
      500,
      "Internal Server Error: proxy_internal_error\n",
    ]);
    // The hooks of a config file run as well.
    expect(await (await fetch(`${origin}/own`)).text()).toBe("mine");
    await program.printed(/"message":"own listener: 503"/);
    leaving.on("error", () => {}).destroy();
    const socket = new WebSocket(`${origin.replace("http", "ws")}/chat`);
    await once(socket, "open");
    socket.send("hi");
    await once(socket, "message");
    socket.close();
    await once(socket, "close");

    const lines = (): Line[] =>
      Array.from(
        program.output().matchAll(/^\{.*"path".*\}$/gm),
        ([json]) => JSON.parse(json) as Line,
      );
    await until(() => lines().length >= 7, "seven lines");
    const line = (path: string): Line | undefined =>
      lines().find((each) => each.path.startsWith(path));
    expect(line("/a?b")).toMatchObject({
      client: "127.0.0.1",
      method: "POST",
      host: new URL(origin).host,
      status: 200,
      upstream: target,
      bytesIn: 4,
      bytesOut: 5,
      attempts: 1,
    });
    const refused = { status: 502, code: "connection_refused", cause: dead, fix: "is it running?" };
    expect(line("/dead")).toMatchObject({
      ...refused,
      level: "error",
      upstream: `http://${dead}`,
    });
    const cut = { status: 200, code: "http_response_incomplete" };
    expect(line("/cut")).toMatchObject({ ...cut, level: "error", bytesOut: 4 });
    expect(line("/endless")).toMatchObject({ level: "info", clientLeft: true, bytesOut: 5 });
    expect(line("/hook")).toMatchObject({ status: 500, code: "proxy_internal_error" });
    expect(line("/hook")?.["cause"]).toMatch(
      /^TypeError: no such\\nuser, thrown at (?:Object\.)?onRequest \(.*fetchway\.config\.mjs:4:\d+\)$/,
    );
    // The log prints the exception, and the server does not print it again.
    expect(program.output().split("no such")).toHaveLength(2);
    expect(line("/chat")).toMatchObject({ status: 101, protocol: "websocket" });
    expect(program.output()).not.toContain("\u001b");

    const { total, errors, failures, requests } = (await (
      await fetch(`${admin}/stats`)
    ).json()) as {
      total: object;
      errors: object;
      failures: object[];
      requests: Line[];
    };
    expect(total).toMatchObject({ requests: 7, failed: 4, tunnels: 1 });
    expect(errors).toEqual({
      connection_refused: 2,
      http_response_incomplete: 1,
      proxy_internal_error: 1,
      client_left: 1,
    });
    expect(failures).toHaveLength(4);
    expect(requests.map(({ path }) => path).toSorted()).toEqual([
      "/a",
      "/chat",
      "/cut",
      "/dead/%1b[2J",
      "/endless",
      "/hook",
      "/own",
    ]);
    expect(await (await fetch(`${admin}/metrics`)).text()).toContain(
      'fetchway_errors_total{error_type="connection_refused"} 2\n',
    );
    const page = await fetch(admin);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(await page.text()).toContain("<title>Fetchway</title>");

    // A request for another host name gets no page.
    const misdirected = get({
      port: new URL(admin).port,
      host: "127.0.0.1",
      path: "/stats",
      headers: { host: "evil.example" },
    });
    const [refusal] = (await once(misdirected, "response")) as [IncomingMessage];
    expect(refusal.statusCode).toBe(421);
    refusal.destroy();

    // The page gets the state immediately. When the command begins to stop, `/readyz` says that it is not ready.
    const events = (await fetch(`${admin}/events`)).body
      ?.pipeThrough(new TextDecoderStream())
      .getReader();
    expect((await events?.read())?.value).toContain('"ready":true');
    expect((await fetch(`${admin}/readyz`)).status).toBe(200);
    const slow = fetch(`${origin}/slow`);
    await until(() => finishSlow !== undefined, "the slow request");
    program.signal("SIGTERM");
    await until(() => program.output().includes("stopping"), "stopping");
    expect((await fetch(`${admin}/readyz`)).status).toBe(503);
    expect((await fetch(`${admin}/healthz`)).status).toBe(200);
    finishSlow?.();
    finishSlow = undefined;
    expect(await (await slow).text()).toBe("at last");
    await within(program.ended(), "the end");
    // The line of the last request is not lost.
    expect(line("/slow")).toMatchObject({ status: 200, bytesOut: 7 });
    expect(program.code()).toBe(0);
    await events?.cancel().catch(() => {});
  });
});

test("if stdout is not a terminal, the log has Apache's form, without colours", async () => {
  const { program, origin } = await start(NODE, "--log=auto");
  await using _ = program;
  await fetch(`${origin}/a"b`, { headers: { "user-agent": "x" } });
  await program.printed(
    /^127\.0\.0\.1 - - \[\d\d\/\w{3}\/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET \/a%22b HTTP\/1\.1" 200 5\n/m,
  );
  expect(program.output()).not.toContain("\u001b");
});

test("--log off prints which of several upstreams has failed, and the client does not get the upstream's name", async () => {
  const garbage = createTcp((socket) =>
    socket.on("error", () => {}).once("data", () => socket.end("garbage\r\n\r\n")),
  );
  const port = await listen(garbage);
  const args = [
    ...NODE.slice(1),
    `127.0.0.1:${port}`,
    `localhost:${port}`,
    "--log=off",
    "--port=0",
  ];
  await using program = startProgram("node", args);
  const [, origin = ""] = await program.printed(/listens on (http:\S+) .*\n/);
  const response = await fetch(`${origin}/a`, { method: "POST", body: "1" });
  expect([response.status, await response.text()]).toEqual([
    502,
    "Bad Gateway: http_protocol_error\n",
  ]);
  await program.printed(
    new RegExp(
      `POST /a → 502 http_protocol_error: (?:127\\.0\\.0\\.1|localhost):${port} broke the rules`,
    ),
  );
  garbage.close();
});

test("--log off prints only failures, each with the target of its route, and FORCE_COLOR colours them", async () => {
  const [tool = "", ...args] = NODE;
  const flags = ["--port=0", "--log=off", `--route=/api=http://${dead}`];
  const program = startProgram(tool, [...args, target, ...flags], {
    FORCE_COLOR: "1",
    NO_COLOR: "",
  });
  await using _ = program;
  const [, origin = ""] = await program.printed(/listens on (http:\S+) .*\n/);
  const banner = program.output().length;
  expect((await fetch(`${origin}/ok`)).status).toBe(200);
  expect((await fetch(`${origin}/api/x?y`, { method: "PUT", body: "z" })).status).toBe(502);
  const line = new RegExp(
    String.raw`\u001b\[1mPUT\u001b\[22m /api/x\?y → \u001b\[31m502\u001b\[39m connection_refused: ${dead} \(is it running\?\)\n$`,
  );
  await program.printed(line);
  expect(program.output().slice(banner)).not.toContain("/ok");
});

test("with --log off, a flood of equal failures is summed up", async () => {
  const { program, origin } = await start(NODE, "--log=off", `--route=/api=http://${dead}`);
  await using _ = program;
  for (let i = 0; i < 20; i++) expect((await fetch(`${origin}/api/${i}`)).status).toBe(502);
  program.signal("SIGTERM");
  await within(program.ended(), "the end");
  const failed = program.output().match(/^.* 502 connection_refused: .*$/gm) ?? [];
  // The number of lines depends on how many seconds the 20 requests take on this machine.
  expect(failed.length).toBeLessThan(10);
  const counts = failed.map((each) => Number(/… (\d+) times? more in /.exec(each)?.[1] ?? 1));
  expect(counts.reduce((sum, each) => sum + each)).toBe(20);
});

test("no line of the log is lost when a second signal ends the process immediately", async () => {
  const { program, origin } = await start(NODE, "--log=json", "--stop-timeout=60000");
  await using _ = program;
  const hanging = get(`${origin}/endless`).on("error", () => {});
  await once(hanging, "response");
  await Promise.all(
    Array.from({ length: 200 }, async (_each, i) => (await fetch(`${origin}/${i}`)).text()),
  );
  program.signal("SIGTERM");
  await until(() => program.output().includes("stopping"), "stopping");
  // A second signal within 250 ms counts as the first one, so send it until the process ends.
  await until(() => {
    if (program.code() === undefined) program.signal("SIGINT");
    return program.code() !== undefined;
  }, "the end");
  expect(program.code()).toBe(130);
  await within(program.ended(), "the last output");
  expect(program.output().match(/^\{.*"status":200.*\}$/gm)).toHaveLength(200);
});

test("a paused reader of the log does not delay requests, and gets the number of dropped lines", async () => {
  const [tool = "", ...args] = NODE;
  const child = spawn(`node_modules/.bin/${tool}`, [...args, target, "--port=0", "--log=json"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  try {
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    child.stderr.resume();
    await until(() => /listens on \S+ /.test(output), "the start");
    const [, origin = ""] = /listens on (http:\S+)/.exec(output) ?? [];
    child.stdout.pause();
    const path = `/${"x".repeat(7000)}`;
    // Send more lines than a pipe (64 kB) and the log (1 MB) buffer.
    for (let i = 0; i < 300; i++) expect((await fetch(origin + path)).status).toBe(200);
    child.stdout.resume();
    await until(() => /lines were dropped/.test(output), "the notice");
    const [, dropped] = /"message":"(\d+) lines were dropped/.exec(output) ?? [];
    await until(
      () => (output.match(/"status":200/g) ?? []).length + Number(dropped) === 300,
      "the other lines",
    );
  } finally {
    child.kill("SIGKILL");
  }
});
