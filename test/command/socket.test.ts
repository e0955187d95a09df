/** `--host unix:/path`: the command listens on a Unix domain socket. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { Agent, createServer, type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { claimSocket } from "../../command/serve/socketfile.ts";
import { startProgram } from "../helpers/program.ts";
import { findPort } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, command, programs, upstream } from "./_command.ts";

const COMMAND = join(import.meta.dirname, "../../command/main.ts");
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));

let count = 0;
function newPath(): string {
  return join(folder, `${++count}.sock`);
}

beforeEach(() => {
  upstream.handler = async (req, res) => {
    const fields = Object.entries(req.headers).filter(([name]) => /forward/.test(name));
    res.end(JSON.stringify({ ...Object.fromEntries(fields), body: await text(req) }));
  };
});

/** Sends a request to a socket, and resolves to the status and the body. */
async function ask(
  socketPath: string,
  headers: Record<string, string> = {},
  agent?: Agent,
): Promise<string> {
  const host = { host: "app.test:81" };
  const sent = request({
    socketPath,
    method: "POST",
    headers: { ...host, ...headers },
    agent: agent ?? false,
  });
  sent.end("hello");
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return `${response.statusCode} ${await text(response)}`;
}

const SEEN =
  '200 {"x-forwarded-for":"127.0.0.1","x-forwarded-proto":"http","x-forwarded-host":"app.test:81","x-forwarded-port":"81","body":"hello"}';

async function starts(line: string): Promise<Command> {
  const started = command(line);
  await started.says(/listens on unix:/);
  return started;
}

async function stop(started: Command): Promise<number | null> {
  started.child.kill("SIGTERM");
  return within(started.exit, "the exit");
}

/** Returns the permissions of a file. */
function modeOf(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  test("requests on a Unix socket are served until the command is stopped, which removes the socket file", async () => {
    const path = newPath();
    const line = `${upstream.url} --log common --host unix:${path} --socket-mode 660`;
    const proxy = new Command(line, [], programs[runtime]);
    try {
      await proxy.says(/\n$/);
      expect(proxy.stdout).toBe(
        `fetchway listens on unix:${path} and forwards to ${upstream.url}\n` +
          `  curl -i --unix-socket ${path} http://localhost/\n`,
      );
      expect(modeOf(path)).toBe("660");
      expect(await ask(path, { "x-forwarded-for": "6.6.6.6" })).toBe(SEEN);
      expect(await stop(proxy)).toBe(0);
      expect(proxy.stdout).toMatch(/\n- - - \[.+\] "POST \/ HTTP\/1\.1" 200 /);
      // Under load, Deno itself prints a warning about `request.signal`.
      expect(proxy.stderr).not.toContain("fetchway");
      expect(existsSync(path)).toBe(false);
    } finally {
      await proxy.kill();
    }
  });

  test("WebSockets of clients on a Unix socket are forwarded", async () => {
    const echo = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    echo.on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
    await once(echo, "listening");
    const path = newPath();
    const { port } = echo.address() as { port: number };
    const proxy = new Command(`${port} --log off --host unix:${path}`, [], programs[runtime]);
    try {
      await proxy.says(/\n$/);
      const socket = new WebSocket(`ws+unix:${path}:/`);
      await within(once(socket, "open"), "the handshake");
      socket.send("hello");
      const [data] = (await within(once(socket, "message"), "the echo")) as [Buffer];
      expect(data.toString()).toBe("hello");
      socket.terminate();
    } finally {
      await proxy.kill();
      echo.close();
    }
  });

  test("the socket file of a killed process is replaced", async () => {
    const path = newPath();
    const line = `${upstream.url} --log off --host unix:${path}`;
    const killed = new Command(line, [], programs[runtime]);
    await killed.says(/\n$/);
    await killed.kill();
    expect(existsSync(path)).toBe(true);
    const next = new Command(line, [], programs[runtime]);
    try {
      await next.says(/\n$/);
      expect(await ask(path)).toBe(SEEN);
      const second = new Command(line, [], programs[runtime]);
      expect(await second.refusal()).toBe(
        `fetchway: host "unix:${path}": another process listens there\n`,
      );
      expect(await ask(path)).toBe(SEEN);
    } finally {
      await next.kill();
    }
  });
});

// Only Linux has abstract socket names, by which a process claims the file.
test.skipIf(process.platform !== "linux")(
  "of two commands that find a stale socket file at the same time, the second does not remove the new file of the first",
  async () => {
    const [path, made] = [newPath(), newPath()];
    const left = createServer().listen(made);
    await once(left, "listening");
    // When it closes, the server removes the file by its old name, so the renamed file stays behind.
    renameSync(made, path);
    left.close();
    await once(left, "close");
    expect(existsSync(path)).toBe(true);

    const claims = [claimSocket(path), claimSocket(path)];
    const giveUp = await Promise.race(claims);
    const server = createServer((_, res) => void res.end("first")).listen(path);
    await once(server, "listening");
    giveUp();
    await expect(Promise.all(claims)).rejects.toThrow("another process listens there");
    expect(await ask(path)).toBe("200 first");
    server.close().closeAllConnections();
  },
);

test("a socket path on which the command cannot listen is reported at the start", async () => {
  const file = newPath();
  writeFileSync(file, "precious");
  const missing = join(folder, "no/such.sock");
  const long = join(folder, "x".repeat(110));
  const refusal = (flags: string): Promise<string> => command(`${upstream.url} ${flags}`).refusal();
  expect(await refusal(`--host unix:${file}`)).toBe(
    `fetchway: host "unix:${file}": there is a file that is no socket; use another path\n`,
  );
  expect(readFileSync(file, "utf8")).toBe("precious");
  expect(await refusal(`--host unix:${missing}`)).toBe(
    `fetchway: host "unix:${missing}": its folder does not exist\n`,
  );
  expect(await refusal(`--host unix:${long}`)).toMatch(
    /^fetchway: host "unix:.+x": use a shorter path: it has \d+ bytes, and the address of a socket takes 10[37]\n$/,
  );
  expect(await refusal(`--host unix:${long} --workers 2`)).toMatch(/use a shorter path/);
  expect(await refusal(`--host unix:x --port 80 --socket-mode 8`)).toBe(
    'fetchway: --host "unix:x": use an address such as "0.0.0.0", or a socket such as "unix:/run/fetchway.sock"\n' +
      'fetchway: --socket-mode "8": use three octal digits such as "660"\n',
  );
  expect(await refusal(`--host unix:/x --port 80`)).toBe(
    'fetchway: --port "80" does nothing beside --host unix:…; leave it out\n',
  );
  expect(await refusal(`--listen unix:/x`)).toBe(
    "fetchway: there is no --listen: use --host unix:/x\n",
  );
  // A target that is too long is refused like an address to listen on.
  expect(await command(`unix:${long}`).refusal()).toMatch(/use a shorter path/);
});

test("clients of a Unix socket are trusted if the loopback addresses are trusted", async () => {
  const [none, other, loopback] = [newPath(), newPath(), newPath()];
  const line = `${upstream.url} --log off --host`;
  await Promise.all([
    starts(`${line} unix:${none}`),
    starts(`${line} unix:${other} --trust-proxy 10.0.0.0/8`),
    starts(`${line} unix:${loopback} --trust-proxy loopback`),
  ]);
  const sent = { "x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https" };
  expect(await ask(none, sent)).toBe(SEEN);
  expect(await ask(other, sent)).toBe(SEEN);
  expect(JSON.parse((await ask(loopback, sent)).slice(4))).toMatchObject({
    "x-forwarded-for": "203.0.113.7, 127.0.0.1",
    "x-forwarded-proto": "https",
  });
});

test("clients of a Unix socket, which have no address, are exempt from the limit for each address", async () => {
  const path = newPath();
  await starts(`${upstream.url} --log off --max-per-address 1 --host unix:${path}`);
  let release: () => void;
  const all = new Promise<void>((resolve) => (release = resolve));
  let waiting = 0;
  upstream.handler = async (_, res) => {
    if (++waiting === 4) release();
    await all;
    res.end("served");
  };
  const answers = Array.from({ length: 4 }, () => ask(path));
  expect(await Promise.all(answers)).toEqual(Array(4).fill("200 served"));
});

test("a client of a Unix socket detects that a response is truncated", async () => {
  const path = newPath();
  await starts(`${upstream.url} --log off --host unix:${path}`);
  upstream.handler = (_, res) => {
    res.write("part");
    setImmediate(() => res.destroy());
  };
  await expect(ask(path)).rejects.toThrow(/aborted|ECONNRESET/);
});

test("the config file can name a socket, and the command reports that a later change of the socket has no effect", async () => {
  const path = newPath();
  const file = join(folder, "config.json");
  const config = (host: string): string =>
    JSON.stringify({ target: upstream.url, server: { host, socketMode: "600", log: "off" } });
  writeFileSync(file, config(`unix:${path}`));
  const proxy = await starts(`--config ${file}`);
  expect([modeOf(path), await ask(path)]).toEqual(["600", SEEN]);
  // The new file replaces the old one atomically, as editors do it.
  writeFileSync(`${file}.new`, config(`unix:${newPath()}`));
  renameSync(`${file}.new`, file);
  await until(
    () => /server\.host has changed: restart the command/.test(proxy.stderr),
    "the message",
  );
  expect(await ask(path)).toBe(SEEN);
});

test("all workers share the Unix socket, also those that replace others, and a stop removes its file", async () => {
  const path = newPath();
  const line = `${upstream.url} --log off --workers 2 --host unix:${path} --socket-mode 666`;
  await (await starts(line)).kill();
  expect(existsSync(path)).toBe(true);
  const proxy = await starts(line);
  expect([modeOf(path), await ask(path)]).toEqual(["666", SEEN]);
  expect(await command(line).refusal()).toContain("another process listens there");
  const agent = new Agent({ keepAlive: true });
  expect(await ask(path, {}, agent)).toBe(SEEN);
  proxy.child.kill("SIGHUP");
  let isReplaced = false;
  void proxy.says(/2 workers have been replaced/).then(() => (isReplaced = true));
  const answers = new Set<string>();
  while (!isReplaced && !proxy.exited) answers.add(await ask(path, {}, agent));
  expect([...answers]).toEqual([SEEN]);
  agent.destroy();
  expect(await stop(proxy)).toBe(0);
  expect([proxy.stderr, existsSync(path)]).toEqual(["", false]);
});

test("the command listens on a named pipe of Windows", async () => {
  // On other systems, this is the name of a file in the working directory.
  const pipe = "\\\\.\\pipe\\app";
  const args = [COMMAND, upstream.url, "--log", "off", "--host", `unix:${pipe}`];
  await using program = startProgram("node", args, {}, folder);
  await program.printed(/forwards to/);
  expect(program.output()).toContain(`fetchway listens on unix:${pipe} and`);
  expect(await ask(join(folder, pipe))).toBe(SEEN);
});

const hasNginx = spawnSync("nginx", ["-v"]).error === undefined;

test.skipIf(!hasNginx)("nginx that connects to the Unix socket is a trusted proxy", async () => {
  const path = newPath();
  await starts(`${upstream.url} --log off --trust-proxy loopback --host unix:${path}`);
  const port = await findPort();
  const file = join(folder, "nginx.conf");
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${folder}/nginx.pid; events {}
    http {
      access_log off;
      client_body_temp_path ${folder}; proxy_temp_path ${folder}; fastcgi_temp_path ${folder};
      uwsgi_temp_path ${folder}; scgi_temp_path ${folder};
      upstream fetchway { server unix:${path}; keepalive 4; }
      server {
        listen 127.0.0.1:${port};
        location / {
          proxy_pass http://fetchway;
          proxy_http_version 1.1;
          proxy_set_header Connection "";
          proxy_set_header Host $http_host;
          proxy_set_header X-Forwarded-For $remote_addr;
          proxy_set_header X-Forwarded-Proto $scheme;
        }
      }
    }`,
  );
  const nginx = spawn("nginx", ["-e", "stderr", "-p", folder, "-c", file], { stdio: "inherit" });
  try {
    const origin = `http://127.0.0.1:${port}`;
    await until(() => existsSync(join(folder, "nginx.pid")), "nginx");
    for (let i = 0; i < 2; i++) {
      const headers = { "x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https" };
      const response = await fetch(origin, { method: "POST", body: "hello", headers });
      expect(await response.json()).toEqual({
        "x-forwarded-for": "127.0.0.1, 127.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": `127.0.0.1:${port}`,
        "x-forwarded-port": String(port),
        body: "hello",
      });
    }
  } finally {
    nginx.kill();
    await once(nginx, "close");
  }
});

test("`socketMode` of a config file is refused if neither the file nor --host names a socket", async () => {
  const config = join(folder, "mode.json");
  const write = (host?: string): void =>
    writeFileSync(
      config,
      JSON.stringify({ target: upstream.url, server: { host, socketMode: "600", log: "off" } }),
    );
  write();
  expect(await command(`--config ${config}`).refusal()).toBe(
    'fetchway: server.socketMode does nothing without server: { host: "unix:/path" }\n',
  );
  await starts(`--config ${config} --host unix:${newPath()}`);
  write(`unix:${newPath()}`);
  await command(`--config ${config} --port 0 --host 127.0.0.1`).origin();
});
