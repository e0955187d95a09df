/** The command reads its config file again without losing a request, on each runtime. */
import { once } from "node:events";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { Agent, createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { type Program, startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

const RELOADS = 20;

/** Responses to downloads that the test continues and ends. */
const downloads = new Map<string, ServerResponse>();
const upstream = createServer((req, res) => {
  const url = req.url ?? "";
  if (url.includes("download")) {
    downloads.set(url, res);
    return res.writeHead(200).write("begun,");
  }
  return res.end(`${url} ${req.headers["x-revision"]?.toString()}`);
});
const sockets = new WebSocketServer({ server: upstream });
sockets.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});
let target = "";
let folder = "";
beforeAll(async () => {
  target = `http://127.0.0.1:${await listen(upstream)}`;
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
});
afterAll(() => {
  upstream.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

async function ask(url: string, agent?: Agent): Promise<string> {
  const [response] = (await once(get(url, { agent }), "response")) as [IncomingMessage];
  return `${response.statusCode} ${await text(response)}`;
}

/** Sends one request after the other. Returns a function that stops this, and resolves to the count of each response. */
function keepAsking(url: string, agent?: Agent): () => Promise<Map<string, number>> {
  let isStopped = false;
  const seen = new Map<string, number>();
  const running = (async () => {
    while (!isStopped) {
      const answer = await ask(url, agent).catch((error: unknown) => `failed: ${String(error)}`);
      seen.set(answer, (seen.get(answer) ?? 0) + 1);
    }
    return seen;
  })();
  return () => {
    isStopped = true;
    return running;
  };
}

async function download(url: string): Promise<() => Promise<string>> {
  const [response] = (await once(get(url), "response")) as [IncomingMessage];
  const whole = text(response);
  const path = new URL(url).pathname;
  return () => {
    downloads.get(path)?.end("ended");
    return within(whole, path);
  };
}

describe.each([
  ["node", ["command/main.ts"]],
  ["bun", ["command/main.ts"]],
  ["deno", ["run", "-A", "command/main.ts"]],
])("on %s", (tool, args) => {
  const path = (): string => join(folder, `${tool}.config.mjs`);

  /** Writes a config whose route `/changed` has this revision. */
  function write(revision: number, more = ""): void {
    const source = `export default {
  routes: [
    { match: "/same", target: "${target}" },
    { match: "/changed", target: "${target}", headers: { "x-revision": "${revision}" } },
    ${more}
  ],
};
`;
    // Some editors write the file itself, others replace it by a new one.
    if (revision % 2 === 0) return writeFileSync(path(), source);
    writeFileSync(`${path()}.new`, source);
    renameSync(`${path()}.new`, path());
  }

  async function start(): Promise<[Program, string]> {
    write(0, `{ match: "/removed", target: "${target}" },`);
    const program = startProgram(tool, [...args, `--config=${path()}`, "--port=0"]);
    const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
    return [program, origin];
  }

  const countReloads = (program: Program): number =>
    program.output().match(/has been reloaded/g)?.length ?? 0;

  test.each([
    ["config.json", ""],
    ["config.mjs", "export default "],
  ])(
    "%s is read again when the symbolic link to its folder points to a new release",
    async (name, begin) => {
      const at = join(folder, `${tool}-${name}`);
      for (const version of [1, 2]) {
        mkdirSync(join(at, String(version)), { recursive: true });
        const headers = { "x-revision": String(version) };
        const file = join(at, String(version), name);
        writeFileSync(file, begin + JSON.stringify({ target, headers }));
      }
      symlinkSync("1", join(at, "current"));
      const config = `--config=${join(at, "current", name)}`;
      await using program = startProgram(tool, [...args, config, "--port=0"]);
      const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
      symlinkSync("2", join(at, "new"));
      renameSync(join(at, "new"), join(at, "current"));
      await program.printed(/config\.\w+ has been reloaded: 1 route, 1 of them new or changed/);
      expect(await ask(`${origin}/`)).toBe("200 / 2");
    },
  );

  test(`${RELOADS} changes of the config file lose no request, no download and no WebSocket`, async () => {
    const [program, origin] = await start();
    await using _ = program;
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const stops = [
      keepAsking(`${origin}/changed`, agent),
      keepAsking(`${origin}/changed`),
      keepAsking(`${origin}/same`),
    ];
    const ends = await Promise.all(
      ["same", "changed", "removed"].map((route) => download(`${origin}/${route}/download`)),
    );
    const socket = new WebSocket(`${origin.replace("http:", "ws:")}/changed`);
    await within(once(socket, "open"), "the opening");

    for (let revision = 1; revision <= RELOADS; revision++) {
      write(revision);
      await until(() => countReloads(program) >= revision, `reload ${revision}`);
    }
    expect(program.output()).toMatch(/has been reloaded: 2 routes, 1 of them new or changed\n/);
    expect(await ask(`${origin}/changed`)).toBe(`200 /changed ${RELOADS}`);
    expect(await ask(`${origin}/removed`)).toMatch(/^404 Not Found: no route/);

    const [kept, fresh, same] = await Promise.all(stops.map((stop) => stop()));
    for (const seen of [kept, fresh]) {
      const wrong = [...(seen?.keys() ?? [])].filter((each) => !/^200 \/changed \d+$/.test(each));
      expect(wrong).toEqual([]);
      expect(seen?.size).toBeGreaterThan(2);
    }
    expect([...(same?.keys() ?? [])]).toEqual(["200 /same undefined"]);
    expect(await Promise.all(ends.map((end) => end()))).toEqual(Array(3).fill("begun,ended"));
    const echoed = once(socket, "message");
    socket.send("still here");
    expect(String(((await within(echoed, "the echo")) as [Buffer])[0])).toBe("still here");
    socket.terminate();
    agent.destroy();

    // This file is invalid, so the command keeps its routes.
    writeFileSync(path(), 'export default {\n  routes: [\n    { match: "/x" target },\n  ],\n};\n');
    await program.printed(/fetchway: \w+\.config\.mjs:3: .+\n.* is not applied: the routes stay/);
    writeFileSync(path(), `export default {\n  target: "${target}",\n  timeout: "5",\n};\n`);
    await program.printed(
      /\.mjs:3: timeout: use whole milliseconds or a text such as "10s", 0 for no limit\n/,
    );
    // Code of the file may throw when the command reads the options.
    writeFileSync(
      path(),
      'export default {\n  get target() { throw new Error("no such port"); },\n};\n',
    );
    await program.printed(/fetchway: Error: no such port\n.* is not applied: the routes stay/);
    expect(await ask(`${origin}/changed`)).toBe(`200 /changed ${RELOADS}`);

    // On SIGHUP, the command reads the file even if it has not changed. A change of `stopTimeout` needs a restart.
    writeFileSync(
      path(),
      `export default {\n  target: "${target}",\n  server: { stopTimeout: 1 },\n};\n`,
    );
    await program.printed(/: server\.stopTimeout has changed: restart the command for that\n/);
    program.signal("SIGHUP");
    await program.printed(/has been reloaded: 1 route, unchanged\n/);
    expect(await ask(`${origin}/else`)).toBe("200 /else undefined");

    // The message must not advise a restart with a certificate that cannot be read.
    writeFileSync(
      path(),
      `export default {\n  target: "${target}",\n  server: { cert: "none.pem", key: "none.key" },\n};\n`,
    );
    await program.printed(
      /: server\.cert has changed, but a restart would fail: server\.cert "\S+none\.pem" cannot be read: there is no such file\n/,
    );
    expect(program.code()).toBeUndefined();
  });
});
