/** `--redirect-http`: the listener that sends clients without TLS to HTTPS. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { get } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createRedirect } from "../../command/serve/redirecthttp.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, command, programs, upstream } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const own = await makeCertificate();
const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
writeFileSync(cert, own.cert);
writeFileSync(key, own.key);
afterAll(() => rmSync(folder, { recursive: true }));

const TLS = `--cert ${cert} --key ${key} --port 0`;

/** Reads the ports of both listeners from the output of the command. */
async function portsOf(started: Command): Promise<{ secure: number; plain: number }> {
  const [, plain] = await started.says(/^ {2}http:\/\/127\.0\.0\.1:(\d+) redirects to https:$/m);
  return { secure: Number(new URL(await started.origin()).port), plain: Number(plain) };
}

/** Sends raw bytes, and resolves to the status, the location and the whole response. */
async function exchange(port: number, sent: string): Promise<[number, string | undefined, string]> {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  socket.write(sent, "latin1");
  const answer = await within(text(socket), "the response");
  const [, status] = /(?:^|\r\n\r\n)HTTP\/1\.[01] (?!100)(\d+)/.exec(answer) ?? [];
  return [Number(status), /^location: (.*)\r$/im.exec(answer)?.[1], answer];
}

const head = (line: string, ...fields: string[]): string =>
  `${[line, ...fields, "Connection: close"].join("\r\n")}\r\n\r\n`;

describe.each(["node", "bun", "deno"] as const)("the command on %s", (runtime) => {
  let started: Command;
  let ports = { secure: 0, plain: 0 };
  beforeAll(async () => {
    started = new Command(
      `http://127.0.0.1:1 --log common ${TLS} --redirect-http 0`,
      [],
      programs[runtime],
    );
    ports = await portsOf(started);
  });
  afterAll(() => started.kill());

  test.each([
    ["a GET", head("GET /a?b=%2f HTTP/1.1", "Host: shop.example"), "shop.example", "/a?b=%2f"],
    ["a HEAD", head("HEAD / HTTP/1.1", "Host: shop.example"), "shop.example", "/"],
    [
      "a POST with a body",
      `${head("POST /a HTTP/1.1", "Host: shop.example", "Content-Length: 5")}hello`,
      "shop.example",
      "/a",
    ],
    [
      "a path that looks like a host",
      head("GET //evil.example/%0d%0aX:y HTTP/1.1", "Host: a"),
      "a",
      "//evil.example/%0d%0aX:y",
    ],
    ["a Host with a port", head("GET / HTTP/1.1", "Host: shop.example:8080"), "shop.example", "/"],
    ["an IPv6 address", head("GET / HTTP/1.1", "Host: [::1]:80"), "[::1]", "/"],
    [
      "an ACME challenge, which is not exempt",
      head("GET /.well-known/acme-challenge/x HTTP/1.1", "Host: a"),
      "a",
      "/.well-known/acme-challenge/x",
    ],
    [
      "a client that claims to have used TLS",
      head("GET / HTTP/1.1", "Host: a", "X-Forwarded-Proto: https", "X-Forwarded-Host: b"),
      "a",
      "/",
    ],
  ])("redirects %s to HTTPS", async (_, sent, host, path) => {
    const [status, location] = await exchange(ports.plain, sent);
    expect([status, location]).toEqual([308, `https://${host}:${ports.secure}${path}`]);
  });

  test.each([
    ["with userinfo", head("GET / HTTP/1.1", "Host: shop.example@evil.example")],
    ["with a path", head("GET / HTTP/1.1", "Host: evil.example/x")],
    ["with a backslash", head("GET / HTTP/1.1", "Host: evil.example\\x")],
    ["with a space", head("GET / HTTP/1.1", "Host: a b")],
    ["of two hosts", head("GET / HTTP/1.1", "Host: a,b")],
    ["in two lines", head("GET / HTTP/1.1", "Host: a", "Host: b")],
    ["that is empty", head("GET / HTTP/1.1", "Host: ")],
    ["that is missing", head("GET / HTTP/1.1")],
    ["that HTTP/1.0 does not send", head("GET / HTTP/1.0")],
    ["with a port that does not exist", head("GET / HTTP/1.1", "Host: a:99999")],
  ])("refuses a Host %s with 400, and sends no Location", async (_, sent) => {
    const [status, location] = await exchange(ports.plain, sent);
    expect([status, location]).toEqual([400, undefined]);
  });

  // Bun does not show the authority of a request target.
  test.skipIf(runtime === "bun")("ignores Host if the request target has a host", async () => {
    const sent = head("GET http://shop.example/x HTTP/1.1", "Host: other.example");
    const [status, location] = await exchange(ports.plain, sent);
    expect([status, location]).toEqual([308, `https://shop.example:${ports.secure}/x`]);
  });

  test("logs the redirect as a request without a failure", async () => {
    await exchange(ports.plain, head("GET /logged HTTP/1.1", "Host: a"));
    await until(() => /"GET \/logged HTTP\/1.1" 308 -/.test(started.stdout), "the line of the log");
    expect(started.stderr).not.toContain("/logged");
  });
});

test.each(["node", "bun", "deno"] as const)(
  "on %s, when the command stops, the redirecting listener closes before running requests end",
  async (runtime) => {
    const { promise: arrived, resolve } = Promise.withResolvers<() => void>();
    upstream.handler = (_, res) => resolve(() => res.end("late"));
    const line = `${upstream.url} --log off ${TLS} --redirect-http 0 --stop-timeout 20000`;
    const started = new Command(line, [], programs[runtime]);
    try {
      const { plain, secure } = await portsOf(started);
      const [status] = await exchange(plain, head("GET / HTTP/1.1", "Host: a"));
      expect(status).toBe(308);
      const running = get(`https://127.0.0.1:${secure}/`, { ca: own.cert, agent: false });
      const answered = once(running, "response");
      const answer = await within(arrived, "the request");
      // An idle connection must not keep the process running.
      const idle = connect(plain, "127.0.0.1").on("error", () => {});
      await once(idle, "connect");
      started.child.kill("SIGTERM");
      const isClosed = async (): Promise<boolean> => {
        const socket = connect(plain, "127.0.0.1");
        const refused = await once(socket, "connect").then(
          () => false,
          () => true,
        );
        socket.destroy();
        return refused;
      };
      await expect.poll(isClosed, { timeout: 10_000 }).toBe(true);
      expect(started.exited).toBe(false);
      answer();
      const [response] = (await within(answered, "the response")) as [IncomingMessage];
      expect(await text(response)).toBe("late");
      expect(await within(started.exit, "the exit")).toBe(0);
      idle.destroy();
      // Deno warns about its own `request.signal`, which long requests use.
      expect(started.stderr.replace(/^Deno\.serve: .*\n/, "")).toBe("");
    } finally {
      await started.kill();
    }
  },
);

test("a redirect to port 443 has a Location without a port", async () => {
  const answer = createRedirect("", () => {});
  const request = new Request("http://shop.example:80/a?b", {
    headers: { host: "shop.example:80" },
  });
  const { status, headers } = await answer(request);
  expect([status, headers.get("location")]).toEqual([308, "https://shop.example/a?b"]);
});

describe("the redirecting listener", () => {
  test("header sections that are too large, too late or malformed are refused, and are in the log", async () => {
    const limits = "--max-header-size 2000 --max-headers-count 10 --headers-timeout 2000";
    const started = command(`http://127.0.0.1:1 --log common ${TLS} --redirect-http 0 ${limits}`);
    const { plain } = await portsOf(started);
    const large = head("GET /large HTTP/1.1", "Host: a", `X: ${"x".repeat(3000)}`);
    const many = head("GET /many HTTP/1.1", "Host: a", ...Array.from({ length: 10 }, () => "X: y"));
    for (const [sent, expected, logged] of [
      [large, 431, /"GET \/large HTTP\/1.1" 431 /],
      [many, 431, /"GET \/many HTTP\/1.1" 431 /],
      ["GET /late HTTP/1.1\r\nHost: a\r\n", 408, / 408 /],
      ["nonsense\r\n\r\n", 400, / 400 /],
    ] as const) {
      const [status] = await exchange(plain, sent);
      expect(status).toBe(expected);
      await started.says(logged);
    }
  });

  test("the connections of both listeners are limited together", async () => {
    const { promise: arrived, resolve } = Promise.withResolvers<void>();
    upstream.handler = () => resolve();
    const started = command(
      `${upstream.url} --log off ${TLS} --redirect-http 0 --max-connections 1`,
    );
    const { plain, secure } = await portsOf(started);
    const running = get(`https://127.0.0.1:${secure}/`, { ca: own.cert }).on("error", () => {});
    await arrived;
    const [status] = await exchange(plain, head("GET / HTTP/1.1", "Host: a"));
    expect(status).toBe(503);
    running.destroy();
  });

  test("a client that waits for 100 (Continue) gets 308 without sending its body", async () => {
    const { plain } = await portsOf(
      command(`http://127.0.0.1:1 --log off ${TLS} --redirect-http 0`),
    );
    const sent = head(
      "POST / HTTP/1.1",
      "Host: a",
      "Content-Length: 9",
      "Expect: 100-continue",
    ).replace("Connection: close\r\n", "");
    const [status, , answer] = await exchange(plain, sent);
    expect(status).toBe(308);
    expect(answer).not.toContain("100 Continue");
  });
});

test("each of several workers redirects, also after they have been replaced", async () => {
  const started = command(
    `http://127.0.0.1:1 --log off ${TLS} --redirect-http 0 --workers 2 --admin 0`,
  );
  const { plain, secure } = await portsOf(started);
  const ask = async (): Promise<void> => {
    for (let i = 0; i < 4; i++) {
      const [status, location] = await exchange(plain, head("GET /a HTTP/1.1", "Host: a"));
      expect([status, location]).toEqual([308, `https://a:${secure}/a`]);
    }
  };
  await ask();
  started.child.kill("SIGHUP");
  await started.says(/2 workers have been replaced/);
  await ask();
  started.child.kill("SIGTERM");
  expect(await within(started.exit, "the exit")).toBe(0);
});

describe("mistakes with --redirect-http are refused", () => {
  test.each([
    ["no certificate", "--redirect-http 0 --port 0", "--redirect-http needs --cert and --key"],
    [
      "a socket",
      `--redirect-http 0 --host unix:${folder}/a.sock`,
      "--redirect-http: the host is a socket, which has no https:; leave it out",
    ],
    [
      "the same port twice",
      `--redirect-http 8443 --cert ${cert} --key ${key} --port 8443`,
      "--redirect-http 8443: this is also the port for https:",
    ],
  ])("the mistake: %s", async (_, line, message) => {
    const refusal = await command(`http://127.0.0.1:1 ${line}`).refusal();
    expect(refusal).toContain(`fetchway: ${message}`);
    expect(refusal.trimEnd().split("\n")).toHaveLength(1);
  });

  test.each(["", "--workers 2"])("the mistake: a port that is in use %s", async (workers) => {
    const other = createServer();
    const port = await listen(other);
    try {
      const refused = command(`http://127.0.0.1:1 ${TLS} --redirect-http ${port} ${workers}`);
      expect(await refused.refusal()).toBe(
        `fetchway: port ${port} is in use: use --redirect-http with another, or 0 for a free one\n`,
      );
    } finally {
      other.close();
    }
  });
});

test("a config file has `redirectHttp` as a key of `server`", async () => {
  const config = join(folder, "fetchway.json");
  const server = { port: 0, cert, key, redirectHttp: 0 };
  writeFileSync(config, JSON.stringify({ server, target: "http://127.0.0.1:1" }));
  const started = command(`--config ${config} --log off`);
  const { plain, secure } = await portsOf(started);
  const [status, location] = await exchange(plain, head("GET /a HTTP/1.1", "Host: a"));
  expect([status, location]).toEqual([308, `https://a:${secure}/a`]);
});
