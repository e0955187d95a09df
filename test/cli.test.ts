/** The real command as a process of its own, in front of a real upstream. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent, createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { defaults, poolDefaults } from "../src/options.ts";
import { optionNames } from "../src/plan.ts";
import { until, within } from "./_wait.ts";

const root = new URL("../", import.meta.url);
const script = fileURLToPath(new URL("runtimes/cli.ts", root));
// What servers read from the environment is not to matter.
const env = { ...process.env, NODE_OPTIONS: "", PORT: "1", HOST: "no.such.host", CI: "1" };

class Command {
  stdout = "";
  stderr = "";
  readonly child: ChildProcess;
  readonly exit: Promise<number | null>;

  /** @param line arguments as one types them in a shell */
  constructor(line: string) {
    const args = ["-c", `exec "$0" "$1" ${line}`, process.execPath, script];
    this.child = spawn("sh", args, { env });
    this.child.stdout?.setEncoding("utf8").on("data", (data: string) => (this.stdout += data));
    this.child.stderr?.setEncoding("utf8").on("data", (data: string) => (this.stderr += data));
    this.exit = once(this.child, "close").then(([code]) => code as number | null);
  }

  get exited(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  async says(what: RegExp): Promise<RegExpExecArray> {
    await until(() => what.test(this.stdout) || this.exited, String(what));
    const found = what.exec(this.stdout);
    if (found === null) throw new Error(`no ${what} in: ${this.stdout}${this.stderr}`);
    return found;
  }

  /** What it says on stderr when it is to refuse. */
  async refusal(): Promise<string> {
    expect(await within(this.exit, "the exit")).toBe(2);
    expect(this.stdout).toBe("");
    return this.stderr;
  }
}

const commands: Command[] = [];
function command(line: string): Command {
  const started = new Command(line);
  commands.push(started);
  return started;
}

/** Starts a proxy on a free port; the address is read from what it prints. */
async function listening(line: string): Promise<{ proxy: Command; origin: string }> {
  const proxy = command(`${line} --port 0`);
  const [, origin = ""] = await proxy.says(/^fetchway listens on (http:\S+) .*\n/);
  return { proxy, origin };
}

let handler: (req: IncomingMessage, res: ServerResponse) => unknown;
const upstream = createServer((req, res) => void handler(req, res));
let target: string;

beforeAll(async () => {
  await once(upstream.listen(0, "127.0.0.1"), "listening");
  target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
});
afterAll(() => upstream.close().closeAllConnections());

beforeEach(() => {
  handler = (req, res) => res.end(JSON.stringify({ url: req.url, headers: req.headers }));
});
afterEach(async () => {
  for (const { child } of commands) child.kill("SIGKILL");
  await Promise.all(commands.splice(0).map(({ exit }) => exit));
});

/** What the upstream saw. */
async function ask(
  url: string,
  init?: RequestInit,
): Promise<{ url: string; headers: Record<string, string> }> {
  const response = await fetch(url, init);
  return (await response.json()) as { url: string; headers: Record<string, string> };
}

async function getRaw(url: string, agent?: Agent): Promise<[IncomingMessage, Buffer]> {
  const [message] = (await once(get(url, { agent }), "response")) as [IncomingMessage];
  return [message, Buffer.concat((await message.toArray()) as Buffer[])];
}

describe("with a target", () => {
  test("forwards to it, and says so in two lines", async () => {
    handler = async (req, res) => {
      res.writeHead(201, "Made", { "x-method": req.method, "x-url": req.url });
      res.end(`got ${await text(req)}`);
    };
    const { proxy, origin } = await listening(`'${target}/base?key=s3cret' --demo`);
    const banner = `fetchway listens on ${origin} and forwards to ${target}/base?…\n  curl -i ${origin}/\n`;
    expect(proxy.stdout).toBe(banner);
    const response = await fetch(`${origin}/a%2Fb?c=d`, { method: "PATCH", body: "hello" });
    expect([response.status, response.statusText]).toEqual([201, "Made"]);
    expect(response.headers.get("x-method")).toBe("PATCH");
    expect(response.headers.get("x-url")).toBe("/base/a%2Fb?key=s3cret&c=d");
    expect(await response.text()).toBe("got hello");
    expect(proxy.stdout + proxy.stderr).toBe(banner);
  });

  test("flags of headers and paths reach the proxy", async () => {
    const { origin } = await listening(
      `${target} --header 'X-Set: a: b' --header=cookie: --filter-headers 'x-one, x-two' \
       --filter-headers=x-three --forward-headers=proxy-authorization --xfwd=forwarded \
       --host-header shop.example --trust-proxy --via edge --strip-prefix /api \
       --path-rewrite '^/old/=/new/' --path-rewrite x+=y=z`,
    );
    const names = ["cookie", "x-one", "x-two", "x-three", "x-four", "proxy-authorization"];
    const sent = Object.fromEntries(names.map((name) => [name, "sent"]));
    const { url, headers } = await ask(`${origin}/api/old/xx`, {
      headers: { ...sent, forwarded: "for=1.2.3.4" },
    });
    expect(url).toBe("/new/y=z");
    expect(headers).toMatchObject({ "x-set": "a: b", host: "shop.example", via: "1.1 edge" });
    expect(headers["forwarded"]).toMatch(/^for=1\.2\.3\.4, for=127\.0\.0\.1;/);
    expect(names.filter((name) => name in headers)).toEqual(["x-four", "proxy-authorization"]);
  });

  test.each(["--no-change-origin --no-xfwd", "--change-origin false --xfwd false"])(
    "%s",
    async (flags) => {
      const { origin } = await listening(`${flags} ${target}`);
      const { headers } = await ask(origin);
      expect(headers["host"]).toBe(new URL(origin).host);
      expect(Object.keys(headers).join()).not.toContain("forwarded");
    },
  );

  test("flags of limits and connections reach the proxy", async () => {
    let [now, most] = [0, 0];
    handler = (req, res) => {
      most = Math.max(most, ++now);
      if (req.url !== "/never") setTimeout(() => res.end(String(now--)), 20);
    };
    const { origin } = await listening(
      `${target} --body-limit=1k --timeout=1000 --connect-timeout=1000 --idle-timeout=1000 \
       --max-sockets=1 --max-free-sockets=0 --free-socket-timeout=1000`,
    );
    const post = (size: number): Promise<Response> =>
      fetch(origin, { method: "POST", body: "x".repeat(size) });
    const responses = await Promise.all([post(1024), post(1024), post(1025)]);
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 413]);
    expect(most).toBe(1);
    expect((await fetch(`${origin}/never`)).status).toBe(504);
  });
});

describe("--demo", () => {
  const hasCurl = spawnSync("curl", ["--version"]).status === 0;

  /** Runs a printed line as it stands. */
  async function runCurl(line: string): Promise<string> {
    if (hasCurl) {
      const child = spawn("sh", ["-c", line]);
      const closed = once(child, "close") as Promise<[number]>;
      const output = await text(child.stdout);
      expect([line, ...(await closed)]).toEqual([line, 0, null]);
      return output;
    }
    const url = line.split(" ").at(-1)?.replaceAll('"', "") ?? "";
    const init = line.includes(" -d ") ? { method: "POST", body: "hello" } : {};
    return (await fetch(url, init)).text();
  }

  test("every curl line that it prints works, in the banner and on its first page", async () => {
    const { proxy, origin } = await listening("--demo");
    const banner = proxy.stdout.match(/^ {2}curl .*$/gm) ?? [];
    const page = (await (await fetch(origin)).text()).match(/^ {2}curl .*$/gm) ?? [];
    expect([banner.length, page.length]).toEqual([5, 8]);
    const outputs: Record<string, string> = {};
    await Promise.all(
      Array.from(new Set([...banner, ...page]), async (line) => {
        const [, path = line] = line.replaceAll('"', "").split(origin);
        outputs[path] = await runCurl(line);
      }),
    );
    expect(outputs["/"]).toContain("This page came through fetchway");
    expect(outputs["/echo"]).toBe("hello");
    expect(outputs["/events"]?.match(/^data: /gm)).toHaveLength(5);
    expect(outputs["/gzip"]).toContain("Compressed by the upstream");
    expect(outputs["/slow?ms=2000"]).toBe("waited 2000 ms\n");
    expect(outputs["/status/418"]).toContain("teapot");
    expect(JSON.parse(outputs["/headers"] ?? "")).toMatchObject({
      method: "GET",
      url: "/headers",
      headers: { "x-forwarded-for": "127.0.0.1", "x-forwarded-host": new URL(origin).host },
    });
  });

  test("sends what proxies get wrong: raw gzip, redirects, cookies, any status", async () => {
    const { origin } = await listening("--demo");
    const [{ headers }, gzipped] = await getRaw(`${origin}/gzip`);
    expect(headers["content-encoding"]).toBe("gzip");
    expect(gunzipSync(gzipped).toString()).toContain("not touched on the way");
    const redirect = await fetch(`${origin}/redirect`, { redirect: "manual" });
    expect([redirect.status, redirect.headers.get("location")]).toEqual([302, "/headers"]);
    expect((await fetch(`${origin}/cookies`)).headers.getSetCookie()).toHaveLength(3);
    const paths = ["/status/204", "/status/599", "/status/999", "/echo", "/no"];
    const responses = await Promise.all(paths.map((path) => fetch(origin + path)));
    expect(responses.map(({ status }) => status)).toEqual([204, 599, 400, 400, 404]);
  });
});

/** Commands, and what each says on stderr. */
const refusals = `
$
no target: write fetchway http://127.0.0.1:4000, or try fetchway --demo
$ http://a --timout 5
there is no --timout: use --timeout
$ http://a --maxSockets=5
there is no --maxSockets: use --max-sockets
$ http://a --bogus 5
there is no --bogus: see fetchway --help
$ --bogus a http://b -x
there is no --bogus: see fetchway --help
there is no -x: see fetchway --help
$ http://a --port
--port: a value is missing, write --port <number>
$ http://a --via --demo
--via: a value is missing, write --via <name>
$ http://a --host=
--host: a value is missing, write --host <address>
$ http://a --port abc
--port "abc": use a whole number from 0 to 65535; 0 takes a free port
$ http://a -p=65536
-p "65536": use a whole number from 0 to 65535; 0 takes a free port
$ http://a --stop-timeout 1s
--stop-timeout "1s": use whole milliseconds
$ http://a --timeout -1
--timeout "-1": use whole milliseconds, 0 for no limit
$ http://a --timeout=1e3
--timeout "1e3": use whole milliseconds, 0 for no limit
$ http://a --body-limit 1x
--body-limit "1x": use bytes, or a size such as 512k or 10mb
$ http://a --max-sockets 0
--max-sockets "0": use a whole number, 1 or more
$ http://a --xfwd maybe
--xfwd "maybe": use true, false or "forwarded"
$ http://a --no-xfwd=1
--no-xfwd: it takes no value, leave that out
$ http://a --trust-proxy=1
--trust-proxy: use true or false
$ http://a --header 'authorization s3cret'
--header: write it as "name: value", or as "name:" to delete it
$ http://a --header 'a b: s3cret'
--header: "a b" is no field name
$ http://a --header host:b
--header: set Host by the --host-header option
$ http://a --forward-headers x-ok,connection
--forward-headers: "connection" belongs to one connection (RFC 9110 §7.6.1); leave it out
$ http://a --path-rewrite x
--path-rewrite: write it as "from=to", such as "^/old/=/new/"
$ http://a --path-rewrite '(=x'
--path-rewrite: Invalid regular expression: /(/: Unterminated group
$ http://a --strip-prefix api
--strip-prefix "api": use a path such as "/api"
$ localhost:4000
bad target "localhost:4000": use http://localhost:4000
$ 4000
bad target "4000": use http://127.0.0.1:4000
$ ftp://a
bad target "ftp://a": its scheme must be http: or https:
$ http://me:s3cret@a
a target must not hold credentials; set --header "authorization: …" instead
$ http://a http://me:s3cret@b
"http://b": one target is enough, leave the others out
$ localhost:1 --port=x --via='a b' --timout 5
--port "x": use a whole number from 0 to 65535; 0 takes a free port
there is no --timout: use --timeout
--via "a b": use a pseudonym of token characters, or false
bad target "localhost:1": use http://localhost:1
$ --demo --port 0 --host 192.0.2.1
host "192.0.2.1" is no address of this machine: use --host 127.0.0.1 or 0.0.0.0
$ --demo --port 0 --host no.such.invalid
host "no.such.invalid" is no address of this machine: use --host 127.0.0.1 or 0.0.0.0
`;

describe("refuses, naming the argument and the fix", () => {
  const cases = refusals
    .split("\n$")
    .slice(1)
    .map((each) => each.trimEnd().split("\n") as [string, ...string[]]);
  test.each(cases)("fetchway%s", async (line, ...answers) => {
    const expected = answers.map((answer) => `fetchway: ${answer}\n`).join("");
    expect(await command(line).refusal()).toBe(expected);
  });

  test("a port in use", async () => {
    const { port } = new URL(target);
    expect(await command(`${target} --port ${port}`).refusal()).toBe(
      `fetchway: port ${port} is in use: use --port with another, or 0 for a free one\n`,
    );
  });
});

describe("on a signal", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("%s: a slow response is completed", async (signal) => {
    let finish: (() => void) | undefined;
    handler = (_, res) => {
      res.write("begun, ");
      finish = () => res.end("and whole");
    };
    const { proxy, origin } = await listening(target);
    const response = await fetch(origin);
    proxy.child.kill(signal);
    // npm passes Ctrl+C on to a process that has had it from the terminal: still one.
    proxy.child.kill(signal);
    await proxy.says(/stopping: 1 still running/);
    await expect(fetch(origin)).rejects.toThrow();
    finish?.();
    expect(await response.text()).toBe("begun, and whole");
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stderr).toBe("");
  });

  test("a response that has not begun tells its client that the connection ends", async () => {
    let finish: (() => void) | undefined;
    handler = (_, res) => (finish = () => res.end("whole"));
    const { proxy, origin } = await listening(target);
    const agent = new Agent({ keepAlive: true });
    const response = getRaw(origin, agent);
    await until(() => finish !== undefined, "the request at the upstream");
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping/);
    finish?.();
    const [{ headers }, body] = await response;
    expect([headers.connection, body.toString()]).toEqual(["close", "whole"]);
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });

  test("clients that stay connected are not waited for", async () => {
    const { proxy, origin } = await listening(`${target} --stop-timeout=60000`);
    const agent = new Agent({ keepAlive: true });
    await getRaw(origin, agent);
    const silent = connect(Number(new URL(origin).port), "127.0.0.1");
    await once(silent, "connect");
    proxy.child.kill("SIGTERM");
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stdout).not.toContain("stopping");
    agent.destroy();
    silent.destroy();
  });

  test("a stream without an end is cut after --stop-timeout", async () => {
    handler = (_, res) =>
      res.writeHead(200, { "content-type": "text/event-stream" }).write(":\n\n");
    const { proxy, origin } = await listening(`${target} --stop-timeout 300`);
    const response = await fetch(origin);
    proxy.child.kill("SIGTERM");
    await expect(response.text()).rejects.toThrow();
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });

  test("a second one ends it at once", async () => {
    handler = (_, res) => res.write("begun");
    const { proxy, origin } = await listening(`${target} --stop-timeout=60000`);
    const response = await fetch(origin);
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping/);
    await until(() => proxy.exited || !proxy.child.kill("SIGINT"), "the exit");
    expect(await proxy.exit).toBe(130);
    await expect(response.text()).rejects.toThrow();
  });
});

describe("tells of itself", () => {
  test.each(["--version", "-v"])("%s", async (flag) => {
    const found = readFileSync(new URL("package.json", root), "utf8");
    const { version } = JSON.parse(found) as { version: string };
    const proxy = command(flag);
    expect(await proxy.exit).toBe(0);
    expect(proxy.stdout).toBe(`${version}\n`);
  });

  test("--help lists every option that text can say, with its default", async () => {
    const proxy = command("--help --bogus");
    expect(await proxy.exit).toBe(0);
    const shown = new Map<string, string>();
    for (const line of proxy.stdout.split("\n")) {
      expect(line.length).toBeLessThanOrEqual(100);
      const name = /^ {2}(?:-\w, | {4})--(?:\[no-\])?([\w-]+) /.exec(line)?.[1];
      if (name !== undefined) shown.set(name, /\(default (.*)\)$/.exec(line)?.[1] ?? "false");
    }
    const expected = new Map([
      ["port", "3000"],
      ["host", "127.0.0.1"],
      ["stop-timeout", "10000"],
      ...["demo", "help", "version"].map((name) => [name, "false"] as const),
    ]);
    const unsayable = /^(?:on[A-Z].*|clientAddress|signal|fetch|transport)$/;
    const renamed: Record<string, string> = { headers: "header", host: "host-header" };
    const fallbacks: Record<string, unknown> = { ...poolDefaults, ...defaults };
    for (const option of [...Object.keys(poolDefaults), ...optionNames]) {
      if (unsayable.test(option)) continue;
      const name = option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      expected.set(renamed[option] ?? name, String(fallbacks[option] ?? false));
    }
    expect(Object.fromEntries(shown)).toEqual(Object.fromEntries(expected));
  });
});
