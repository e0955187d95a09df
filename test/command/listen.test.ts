/** The answers and the output of the command on each runtime if a client or an upstream violates the protocol. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { Command, programs, upstream } from "./_command.ts";
import { until, within } from "../helpers/wait.ts";

let proxy: Command | undefined;
afterEach(() => proxy?.kill());

/** Sends raw bytes, and resolves to the status of the response. */
async function sendRaw(origin: string, head: string): Promise<number> {
  const socket = createConnection({ port: Number(new URL(origin).port), host: "127.0.0.1" });
  socket.on("error", () => {});
  socket.write(head.replaceAll("\n", "\r\n"));
  const answer = await within(text(socket), "the response");
  return Number(/^HTTP\/1\.[01] (\d+)/.exec(answer)?.[1]);
}

/** Matches a line of a stack trace as any of the runtimes prints it. */
const STACK = /^\s+at /m;

/** Requests from which the runtime builds a URL that no URL parser accepts. */
const unparseable = [
  "GET /a HTTP/1.0\n\n",
  "GET /a HTTP/1.1\nHost: [\nConnection: close\n\n",
  "GET /a HTTP/1.1\nHost: a:99999\nConnection: close\n\n",
  "GET /a HTTP/1.1\nHost: a b\nConnection: close\n\n",
  "GET http://[/a HTTP/1.1\nHost: a\nConnection: close\n\n",
];

describe.each(Object.keys(programs) as (keyof typeof programs)[])("on %s", (runtime) => {
  async function start(flags: string): Promise<string> {
    proxy = new Command(`${flags} --port 0`, [], programs[runtime]);
    return proxy.origin();
  }

  test("a request with an unusable authority gets a status other than 500, and no stack trace is printed", async () => {
    const origin = await start("http://127.0.0.1:1 --log off --admin 0");
    const [, status = ""] = (await proxy?.says(/status page: (\S+)\//)) ?? [];
    for (const head of unparseable) {
      expect([400, 502]).toContain(await sendRaw(origin, head));
      expect([200, 400, 404, 421]).toContain(await sendRaw(status, head));
    }
    await until(() => /connection_refused/.test(proxy?.stderr ?? ""), "the line of the failure");
    expect(proxy?.stderr).not.toMatch(STACK);
  });

  test("with --log off, a config mistake that only requests reveal is printed once, and hidden from the client", async () => {
    const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
    try {
      const config = join(folder, "a.mjs");
      writeFileSync(config, 'export default { target: () => "s3cret" };\n');
      const origin = await start(`--config ${config} --log off`);
      for (let i = 0; i < 3; i++) {
        const response = await fetch(`${origin}/a`);
        expect([response.status, await response.text()]).toEqual([
          500,
          "Internal Server Error: proxy_internal_error\n",
        ]);
      }
      await until(() => /GET \/a → 500/.test(proxy?.stderr ?? ""), "the line of the failure");
      expect(proxy?.stderr).toMatch(
        / proxy_internal_error: TypeError: fetchway: bad target "s3cret": write /,
      );
      expect(proxy?.stderr).not.toMatch(STACK);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("a response that breaks off causes one line of the log, without a stack trace", async () => {
    let breakOff = (): void => {};
    upstream.handler = (_, res) => {
      res.writeHead(200, { "content-length": "10" });
      res.write("part");
      breakOff = () => void res.destroy();
    };
    const origin = await start(`${upstream.url} --log pretty`);
    const body = (await fetch(origin)).body?.getReader();
    await body?.read();
    breakOff();
    await expect(body?.read()).rejects.toThrow();
    await until(() => /cut after/.test(proxy?.stderr ?? ""), "the line of the failure");
    proxy?.child.kill("SIGTERM");
    await until(() => proxy?.exited === true, "the exit");
    expect(proxy?.stderr).toMatch(/ GET \/ → 200 cut after .*: http_response_incomplete: /);
    expect(proxy?.stderr).not.toMatch(STACK);
  });
});

test("a status page on all addresses causes a warning, because it asks for no password", async () => {
  for (const [admin, warned] of [
    ["0.0.0.0:0", true],
    ["[::]:0", true],
    ["127.0.0.1:0", false],
  ] as const) {
    const started = new Command(`http://127.0.0.1:1 --log off --port 0 --admin ${admin}`);
    proxy = started;
    await started.says(/status page: /);
    started.child.kill("SIGTERM");
    await within(started.exit, "the exit");
    const warning = /^fetchway: --admin "\S+" lets every host on the network read the status page/;
    if (warned) expect(started.stderr).toMatch(warning);
    else expect(started.stderr).toBe("");
  }
});
