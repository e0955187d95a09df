/** Sticky clients keep their upstream across restarts, workers, routes and changes of the config file. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { connect } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { toSettings } from "../../command/config/settings.ts";
import { fillCookies } from "../../command/config/stickycookies.ts";
import { readRoute } from "../../command/flags/routeflag.ts";
import { command, listening } from "./_command.ts";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { startUpstreams } from "../helpers/upstreams.ts";
import { until } from "../helpers/wait.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-sticky-"));
afterAll(() => rmSync(folder, { recursive: true }));
const secretFile = join(folder, "secret");
writeFileSync(secretFile, `${"s".repeat(32)}\n`);
const SECRET_LINE = /sticky cookies are valid until the command restarts/;

/** Returns the index of the upstream that has answered, and the cookie that the response sets. */
async function ask(url: string, cookie?: string): Promise<{ index: string; cookie: string }> {
  const headers = { connection: "close", ...(cookie !== undefined && { cookie }) };
  const response = await fetch(url, { headers });
  const [set = ""] = response.headers.getSetCookie();
  return { index: await response.text(), cookie: set.split(";", 1)[0] as string };
}

/** Expects that the cookie of each client still leads to its upstream, and that no response sets another cookie. */
async function expectKept(
  origin: string,
  clients: { index: string; cookie: string }[],
): Promise<void> {
  for (const { index, cookie } of clients) {
    expect(await ask(origin, cookie)).toEqual({ index, cookie: "" });
  }
}

describe("clients keep their upstream", () => {
  test("in every worker, and after the workers are replaced", async () => {
    await using upstreams = await startUpstreams(4);
    const line = `${upstreams.urls.join(" ")} --policy sticky`;
    const { proxy, origin } = await listening(`${line} --workers 2`);
    await proxy.says(/2 workers/);
    await proxy.says(SECRET_LINE);
    const clients = await Promise.all(Array.from({ length: 12 }, () => ask(origin)));
    for (const { cookie } of clients) expect(cookie).toMatch(/^fetchway=[\w-]{22}$/);
    await expectKept(origin, clients);
    proxy.child.kill("SIGHUP");
    await until(() => proxy.stdout.includes("2 workers have been replaced"), "new workers");
    await expectKept(origin, clients);
  });

  test("after a restart, if the secret is in a file", async () => {
    await using upstreams = await startUpstreams(4);
    const line = `${upstreams.urls.join(" ")} --policy sticky`;
    const first = await listening(`${line} --sticky-secret ${secretFile}`);
    const kept = await Promise.all(Array.from({ length: 8 }, () => ask(first.origin)));
    await expectKept(first.origin, kept);
    await first.proxy.kill();
    expect(first.proxy.stdout).not.toMatch(SECRET_LINE);
    const second = await listening(`${line} --sticky-secret ${secretFile}`);
    await expectKept(second.origin, kept);
  });

  test("when the config file gets other upstreams, and while two routes set cookies", async () => {
    await using upstreams = await startUpstreams(4);
    const [one, two, three, four] = upstreams.urls as [string, string, string, string];
    const path = join(folder, "config.json");
    const write = (api: string[]): void =>
      writeFileSync(
        path,
        JSON.stringify({
          balance: { policy: "sticky" },
          routes: [
            { match: "/", target: [one, two] },
            { match: "/api", target: api },
          ],
        }),
      );
    write([two, three]);
    const { proxy, origin } = await listening(`--config ${path}`);
    await proxy.says(SECRET_LINE);
    const root = await ask(`${origin}/`);
    const tries = await Promise.all(
      Array.from({ length: 40 }, () => ask(`${origin}/api`, root.cookie)),
    );
    const api = tries.find(({ index }) => index === "2") as (typeof tries)[number];
    expect(api.cookie).toMatch(/^fetchway-[\w-]{8}=[\w-]{22}$/);
    const both = `${root.cookie}; ${api.cookie}`;
    write([three, four]);
    await until(() => proxy.stdout.includes("has been reloaded"), "the new routes");
    for (let n = 0; n < 5; n++) {
      expect(await ask(`${origin}/`, both)).toEqual({ index: root.index, cookie: "" });
      expect(await ask(`${origin}/api`, both)).toEqual({ index: "2", cookie: "" });
    }
  });
});

const COMMAND = join(import.meta.dirname, "../../command/main.ts");

test.each([
  ["node", [COMMAND]],
  ["bun", [COMMAND]],
  ["deno", ["run", "-A", COMMAND]],
] as const)("on %s, a client keeps the upstream of its WebSocket", async (tool, args) => {
  const cookies: (string | undefined)[] = [];
  const servers = [0, 1, 2].map((index) =>
    createServer((req, res) => {
      cookies.push(req.headers.cookie);
      res.end(String(index));
    }).on("upgrade", (req, socket) => {
      cookies.push(req.headers.cookie);
      const key = `${req.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
      const accept = createHash("sha1").update(key).digest("base64");
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\nX-Index: ${index}\r\n\r\n`,
      );
      socket.on("error", () => {}).resume();
    }),
  );
  const ports = await Promise.all(servers.map((server) => listen(server)));
  const flags = ["--port=0", "--log=off", "--policy", "sticky"];
  await using program = startProgram(tool, [...args, ...ports.map(String), ...flags]);
  const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
  const handshake = async (cookie: string): Promise<Record<string, string>> => {
    const socket = connect(Number(new URL(origin).port), "127.0.0.1");
    socket.write(
      `GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nCookie: ${cookie}\r\n\r\n`,
    );
    let text = "";
    socket.on("data", (data: Buffer) => (text += data.toString("latin1")));
    await until(() => text.includes("\r\n\r\n"), "the response");
    socket.destroy();
    expect(text).toMatch(/^HTTP\/1\.1 101 /);
    const fields = text.matchAll(/^([\w-]+): (.*)\r$/gm);
    return Object.fromEntries(
      Array.from(fields, ([, name = "", value = ""]) => [name.toLowerCase(), value]),
    );
  };
  try {
    expect((await ask(`${origin}/`, "a=1")).cookie).toMatch(/^fetchway=[\w-]{22}$/);
    const first = await handshake("a=1");
    const own = first["set-cookie"]?.split(";", 1)[0] ?? "";
    expect(own).toMatch(/^fetchway=[\w-]{22}$/);
    const index = first["x-index"] ?? "";
    for (let n = 0; n < 4; n++) {
      expect(await ask(`${origin}/`, `${own}; a=1`)).toEqual({ index, cookie: "" });
      const again = await handshake(`a=1; ${own}`);
      expect([again["x-index"], again["set-cookie"]]).toEqual([index, undefined]);
    }
    expect(new Set(cookies)).toEqual(new Set(["a=1"]));
  } finally {
    for (const server of servers) server.close().closeAllConnections();
  }
});

test("a cookie gets a generated name only if the config sets no name, and the generated secret only if the config sets none", () => {
  const cookie = { name: "route", secret: "x".repeat(32) };
  const settings = toSettings(
    {
      server: {},
      proxy: {},
      routes: [],
      target: undefined,
      balance: { cookie: { secret: "flag" } },
    },
    {
      routes: [
        { match: "/", target: ["http://a", "http://b"] },
        { match: "/a", target: ["http://a"], balance: { policy: "sticky", cookie } },
      ],
    },
  );
  const [plain, own] = fillCookies(settings, "made").routes;
  expect(plain?.options.balance).toEqual({ cookie: { secret: "flag" } });
  // Flags take precedence over the file, member by member.
  expect(own?.options.balance?.cookie).toEqual({ name: "route", secret: "flag" });
});

test("a file of --sticky-secret that cannot be read, or has a short secret, is refused, and the secret is not shown", async () => {
  const short = join(folder, "short");
  writeFileSync(short, "hunter2");
  const refused = [
    [join(folder, "none"), "cannot be read: ENOENT"],
    [short, "the file needs at least 32 random characters"],
  ] as const;
  for (const [path, fix] of refused) {
    const flags = `--policy sticky --sticky-secret ${path}`;
    const problems = [
      await command(`4000 4001 ${flags}`).refusal(),
      ...(readRoute(`/api=4000,4001 ${flags}`) as string[]),
    ];
    expect(problems).toHaveLength(2);
    for (const problem of problems) {
      expect(problem).toContain(`--sticky-secret "${path}"`);
      expect(problem).toContain(fix);
      expect(problem).not.toContain("hunter2");
    }
  }
  expect(readRoute(`/api=4000,4001 --sticky-secret ${secretFile}`)).toMatchObject({
    options: { balance: { cookie: { secret: "s".repeat(32) } } },
  });
});
