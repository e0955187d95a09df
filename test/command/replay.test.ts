/** `fetchway replay`: sends the requests of a HAR file again, and compares the responses. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import {
  createServer,
  type IncomingMessage,
  request as startRequest,
  type ServerResponse,
} from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { brotliCompressSync, gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { ReplayOutcome } from "../../command/replay/replayreport.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";
import { Command, listening, programs, upstream } from "./_command.ts";
import { readEntries } from "./_har.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
let file = "";
let files = 0;
beforeEach(() => {
  file = join(folder, `${++files}.har`);
});

/** A request as the target has received it. */
interface Received {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}
let received: Received[] = [];
let respond: (request: Received, res: ServerResponse) => unknown = () => {};
async function receive(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { method, url, headers } = req;
  const request = { method, url, headers, body: await buffer(req) };
  received.push(request);
  respond(request, res);
}
const target = createServer((req, res) => void receive(req, res));
let port = 0;
beforeAll(async () => {
  port = await listen(target);
});
afterAll(() => {
  target.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  received = [];
});

/** Sends requests through the command with `--record`, to an upstream that answers with `handler`. */
async function record(
  handler: typeof upstream.handler,
  requests: readonly (readonly [path: string, init?: RequestInit])[],
  flags = "",
): Promise<void> {
  upstream.handler = handler;
  const { proxy, origin } = await listening(`${upstream.url} --record ${file} ${flags}`);
  for (const [path, init] of requests) await (await fetch(origin + path, init)).arrayBuffer();
  proxy.child.kill("SIGTERM");
  await within(proxy.exit, "the exit");
}

interface Run {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function replay(flags = "", program: readonly string[] = programs.node): Promise<Run> {
  const run = new Command(`replay ${file} --against ${port} ${flags}`, [], program);
  const code = await within(run.exit, "the exit", 30_000);
  return { code, stdout: run.stdout, stderr: run.stderr };
}

async function replayAsJson(flags = ""): Promise<ReplayOutcome & { readonly code: number | null }> {
  const { code, stdout, stderr } = await replay(`--json ${flags}`);
  expect(stderr).toBe("");
  return { ...(JSON.parse(stdout) as ReplayOutcome), code };
}

/** Writes a HAR file of these entries. */
function writeHar(...entries: object[]): void {
  const log = { version: "1.2", creator: { name: "test", version: "1" }, entries };
  writeFileSync(file, JSON.stringify({ log }));
}

interface Browsed {
  readonly url?: string;
  readonly method?: string;
  readonly headers?: object[];
  readonly postData?: object;
  readonly status?: number;
  readonly content?: object;
  readonly startedDateTime?: string;
}

/** Makes an entry like those that Chromium writes for HTTP/2. */
function browsed({
  url = "https://shop.test/a",
  method = "GET",
  headers = [],
  postData,
  status = 200,
  content = { size: 5, mimeType: "text/plain", text: "hello" },
  startedDateTime = "2026-01-01T00:00:00.000Z",
}: Browsed): object {
  const pseudo = [":authority", ":method", ":path", ":scheme"].map((name) => ({
    name,
    value: "x",
  }));
  return {
    _priority: "High",
    startedDateTime,
    time: 12.5,
    request: {
      method,
      url,
      httpVersion: "http/2.0",
      headers: [...pseudo, { name: "accept-encoding", value: "gzip, br" }, ...headers],
      queryString: [],
      cookies: [],
      headersSize: -1,
      bodySize: 0,
      ...(postData && { postData }),
    },
    response: {
      status,
      statusText: "",
      httpVersion: "http/2.0",
      headers: [{ name: "x-version", value: "1" }],
      cookies: [],
      content,
      redirectURL: "",
      headersSize: -1,
      bodySize: -1,
    },
    cache: {},
    timings: { send: 0, wait: 10, receive: 2.5 },
  };
}

const hello: typeof respond = (_request, res) => void res.setHeader("x-version", "1").end("hello");

describe.each(Object.entries(programs))("on %s", (_runtime, program) => {
  test("the report shows the responses that differ, and the exit code is 0 only if none does", async () => {
    await record(
      (_req, res) => void res.setHeader("x-version", "1").end("hello"),
      [["/a?b=%2F"], ["/b"]],
    );
    respond = hello;
    const equal = await replay("", program);
    expect(equal.stderr).toBe("");
    expect(equal.stdout).toContain(": 2 equal, 0 different, 0 failed, 0 not sent\n");
    expect(equal.stdout).toMatch(/\n {2}latency: median .* → .*, 95 % within .* → .*\n/);
    expect(equal.stdout).toMatch(/\n {2}not compared: age, .*date, .*via, /);
    expect(equal.code).toBe(0);
    expect(received.map(({ url }) => url)).toEqual(["/a?b=%2F", "/b"]);
    expect(received[0]?.headers).toMatchObject({
      host: `localhost:${port}`,
      "x-forwarded-for": "127.0.0.1",
    });

    respond = ({ url }, res) => {
      if (url === "/b") res.writeHead(500, { "x-version": "2", "x-new": "a\u0085b" }).end("sorry");
      else res.setHeader("x-version", "1").end("hello");
    };
    const different = await replay("", program);
    expect(different.code).toBe(1);
    expect(different.stdout.split("\n").slice(0, 6)).toEqual([
      "GET /b",
      "  status: 200 → 500",
      "  x-version: 1 → 2",
      expect.stringMatching(/^ {2}x-new: \(none\) → a[ -~]+b$/),
      expect.stringMatching(/^ {2}body: sha256 2cf24dba5fb0, 5 bytes → sha256 \w{12}, 5 bytes$/),
      "",
    ]);
    expect(different.stdout).toContain(": 1 equal, 1 different, 0 failed, 0 not sent\n");
  });
});

test("--json reports each request with its differences", async () => {
  writeHar(browsed({}), browsed({ url: "https://shop.test/b" }));
  respond = ({ url }, res) =>
    void res.writeHead(200, { "x-version": "1" }).end(url === "/a" ? "hello" : "bye");
  const { code, counts, results, ignored, file: named } = await replayAsJson();
  expect(code).toBe(1);
  expect(named).toBe(file);
  expect(counts).toEqual({ equal: 1, different: 1, failed: 0, "not sent": 0 });
  expect(ignored).toContain("x-request-id");
  expect(results[0]).toEqual({
    method: "GET",
    path: "/a",
    result: "equal",
    recordedMs: 12.5,
    replayedMs: results[0]?.replayedMs,
  });
  const digest = (text: string): string =>
    createHash("sha256").update(text).digest("hex").slice(0, 12);
  expect(results[1]?.differences).toEqual([
    {
      part: "body",
      recorded: `sha256 ${digest("hello")}, 5 bytes`,
      replayed: `sha256 ${digest("bye")}, 3 bytes`,
    },
  ]);
});

test("requests whose method may change state are sent only if --methods names the method", async () => {
  const body = Buffer.from([0, 255, 1, 254]);
  const init = { method: "POST", body, headers: { "content-type": "application/x-test" } };
  await record(
    (req, res) => void req.resume().on("end", () => res.end("done")),
    [["/a", init], ["/b"]],
  );
  respond = (_request, res) => void res.end("done");
  const { code, results } = await replayAsJson();
  expect(code).toBe(0);
  expect(received.map(({ method }) => method)).toEqual(["GET"]);
  expect(results[0]).toMatchObject({
    result: "not sent",
    reason: "its method may change the state of the target; --methods POST allows it",
  });
  received = [];
  expect((await replayAsJson("--methods get,post")).code).toBe(0);
  expect(received[0]).toMatchObject({ method: "POST", url: "/a", body });
  expect(received[0]?.headers).toMatchObject({
    "content-type": "application/x-test",
    "content-length": "4",
  });
});

test("a request body is sent without the content coding that the recording has removed", async () => {
  const echo = (res: ServerResponse, coding: string | undefined, body: Buffer): void => {
    try {
      res.end(coding === "gzip" ? gunzipSync(body) : body);
    } catch {
      res.writeHead(400).end();
    }
  };
  const headers = { "content-encoding": "gzip", "content-type": "application/json" };
  const body = gzipSync('{"a":1}');
  await record(
    async (req, res) => echo(res, req.headers["content-encoding"], await buffer(req)),
    [
      ["/a", { method: "POST", headers, body }],
      ["/no-gzip", { method: "POST", headers, body: "no gzip" }],
    ],
  );
  respond = (request, res) => echo(res, request.headers["content-encoding"], request.body);
  const { results } = await replayAsJson("--methods POST");
  expect(results.map(({ result }) => result)).toEqual(["equal", "equal"]);
  expect(received.map((each) => each.headers["content-encoding"])).toEqual([undefined, "gzip"]);
});

test("without --header and --query, redacted fields are left out, and requests with redacted parameters are not sent", async () => {
  const headers = { authorization: "Bearer hush", cookie: "sid=hush" };
  await record((_req, res) => void res.end("hello"), [["/a", { headers }], ["/b?key=hush&x=1"]]);
  respond = (_request, res) => void res.end("hello");
  const first = await replay();
  expect(first.code).toBe(0);
  expect(first.stdout).toContain(
    "  redacted fields not sent (--header sets them): authorization (1), cookie (1)\n",
  );
  expect(first.stdout).toContain(
    "  not sent: 1 GET: its query is redacted; --query sets the values\n",
  );
  expect(received).toHaveLength(1);
  expect(received[0]?.headers).not.toHaveProperty("authorization");
  received = [];
  const flags =
    '--header "Authorization: Bearer new" -H "host: shop.test" -H "user-agent:" --query key=new';
  expect((await replayAsJson(flags)).leftOut).toEqual({ cookie: 1 });
  expect(received.map(({ url }) => url)).toEqual(["/a", "/b?key=new&x=1"]);
  expect(received[0]?.headers).toMatchObject({ authorization: "Bearer new", host: "shop.test" });
  expect(received[0]?.headers).not.toHaveProperty("user-agent");
});

test("bodies are compared without their content codings, and long ones by their digest", async () => {
  const page = "<p>Grüße</p>".repeat(20);
  await record(
    ({ url }, res) => {
      if (url === "/large") return void res.end("x".repeat(100_000));
      res.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(page));
    },
    [["/packed"], ["/large"], ["/changed"]],
  );
  respond = ({ url }, res) => {
    if (url === "/large") return void res.end("x".repeat(100_000));
    const body = brotliCompressSync(url === "/packed" ? page : `${page}.`);
    res.writeHead(200, { "content-encoding": "br" }).end(body);
  };
  const { results } = await replayAsJson("--ignore content-encoding");
  expect(results.map(({ result }) => result)).toEqual(["equal", "equal", "different"]);
  respond = (_request, res) => void res.end("x".repeat(99_999));
  const [, large] = (await replayAsJson()).results;
  expect(large?.differences).toMatchObject([{ part: "body" }]);
});

test("the server's own origin and the values of secrets may differ", async () => {
  const redirect: typeof upstream.handler = ({ headers: { host } }, res) =>
    res.writeHead(302, { location: `http://${host}/b`, "set-cookie": `sid=${host}; Path=/` }).end();
  upstream.handler = redirect;
  const { proxy, origin } = await listening(`${upstream.url} --record ${file}`);
  await fetch(`${origin}/a`, { redirect: "manual" });
  proxy.child.kill("SIGTERM");
  await within(proxy.exit, "the exit");
  respond = ({ headers }, res) => redirect({ headers } as never, res);
  expect((await replayAsJson()).code).toBe(0);
  respond = (_request, res) =>
    res.writeHead(302, { location: "/c", "set-cookie": "sid=1; Path=/; Secure" }).end();
  const [result] = (await replayAsJson()).results;
  expect(result?.differences).toEqual([
    { part: "field", name: "location", recorded: "/b", replayed: "/c" },
    {
      part: "field",
      name: "set-cookie",
      recorded: "sid=REDACTED; Path=/",
      replayed: "sid=REDACTED; Path=/; Secure",
    },
  ]);
});

test("a recorded OPTIONS * belongs to the origin of the other requests, and is not sent", async () => {
  upstream.handler = (_req, res) => res.end();
  const { proxy, origin } = await listening(`${upstream.url} --record ${file}`);
  const asking = startRequest(origin, { method: "OPTIONS", path: "*" }).end();
  const [answer] = (await once(asking, "response")) as [IncomingMessage];
  await buffer(answer);
  await (await fetch(`${origin}/a`)).arrayBuffer();
  proxy.child.kill("SIGTERM");
  await within(proxy.exit, "the exit");
  const urls = readEntries(file).map((entry) => entry.request.url);
  expect(urls).toEqual([upstream.url, `${upstream.url}/a`]);
  respond = (_request, res) => void res.end();
  const { results } = await replayAsJson();
  expect(results.map(({ result, reason }) => reason ?? result)).toEqual([
    "it is about the server as a whole (OPTIONS *)",
    "equal",
  ]);
});

test("bodies that are only partly recorded are neither sent nor compared", async () => {
  const upload = { method: "PUT", body: "x".repeat(100_000) };
  upstream.handler = (req, res) => {
    if (req.url === "/upload") return void req.resume().on("end", () => res.end());
    res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  };
  const { proxy, origin } = await listening(`${upstream.url} --record ${file} --stop-timeout 0`);
  await (await fetch(`${origin}/upload`, upload)).arrayBuffer();
  const events = await fetch(`${origin}/events`);
  await events.body?.getReader().read();
  proxy.child.kill("SIGTERM");
  await within(proxy.exit, "the exit");
  // The target never ends the event stream.
  respond = (_request, res) =>
    res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 2\n\n");
  const { code, results } = await replayAsJson("--methods GET,PUT");
  expect(results.map(({ result, reason }) => reason ?? result)).toEqual([
    "the recording has only the beginning of its body",
    "equal",
  ]);
  expect(results[1]?.isBodyUnknown).toBe(true);
  expect(code).toBe(0);
});

test("a truncated file is read up to its last complete request", async () => {
  await record((_req, res) => void res.end("hello"), [["/a"], ["/b"], ["/c"]]);
  truncateSync(file, statSync(file).size - 50);
  respond = (_request, res) => void res.end("hello");
  const { code, stdout, stderr } = await replay();
  expect(stderr).toBe(`fetchway: "${file}" breaks off: it has 2 complete requests\n`);
  expect(stdout).toContain(": 2 equal, ");
  expect(code).toBe(0);
});

test("of a browser's file, the requests to the origin of --from are sent, in the order in which they began", async () => {
  writeHar(
    browsed({ url: "https://shop.test/c#top", startedDateTime: "2026-01-01T00:00:02.000Z" }),
    browsed({ url: "https://shop.test/b", startedDateTime: "2026-01-01T00:00:01.000Z" }),
    browsed({ url: "https://fonts.test/x" }),
    browsed({ url: "https://shop.test/no-text", content: { size: 7, mimeType: "image/png" } }),
    browsed({ url: "https://shop.test/latin", content: { size: 1, mimeType: "", text: "é" } }),
    browsed({ url: "https://shop.test/blocked", status: 0 }),
  );
  const refused = await replay();
  expect(refused.code).toBe(2);
  expect(refused.stderr).toBe(
    `fetchway: "${file}" has requests to several origins; choose with --from: https://fonts.test (1), https://shop.test (5)\n`,
  );
  respond = ({ url }, res) => {
    res.setHeader("x-version", "1");
    if (url !== "/latin") return void res.end("hello");
    res.setHeader("content-type", "text/plain; charset=iso-8859-1").end(Buffer.from([0xe9]));
  };
  const { results } = await replayAsJson("--from https://shop.test/ --ignore content-type");
  expect(results.map(({ path, result }) => `${path} ${result}`)).toEqual([
    "/no-text equal",
    "/latin equal",
    "/blocked not sent",
    "/b equal",
    "/c equal",
  ]);
  expect(received.map(({ url }) => url)).toEqual(["/no-text", "/latin", "/b", "/c"]);
  expect(received[0]?.headers["accept-encoding"]).toBe("gzip, br");
});

test("entries with a field, a URL or a method that could split the request are not sent", async () => {
  writeHar(
    browsed({ headers: [{ name: "x", value: "1\r\nx-forged: 1" }] }),
    browsed({ headers: [{ name: "x y", value: "1" }] }),
    browsed({ url: "https://shop.test/a b" }),
    browsed({ method: "GET /x" }),
    browsed({ url: "https://shop.test/fine" }),
  );
  respond = hello;
  const { results } = await replayAsJson('--methods "GET,GET /x"');
  expect(results.map(({ reason }) => reason)).toEqual([
    "a field is malformed",
    "a field is malformed",
    "its URL or its method is malformed",
    "its URL or its method is malformed",
    undefined,
  ]);
  expect(received).toHaveLength(1);
});

test("a request fails if the target closes the connection without a response", async () => {
  writeHar(browsed({}));
  respond = (_request, res) => void res.destroy();
  const { code, results } = await replayAsJson();
  expect(results).toMatchObject([{ result: "failed" }]);
  expect(results[0]?.reason).toMatch(/^connection_terminated: /);
  expect(code).toBe(1);
});

test.each([
  ["POST", ""],
  ["GET", " with a body"],
])(
  "a %s%s that the target does not respond to on a reused connection is not sent again",
  async (method) => {
    writeHar(browsed({}), browsed({ method, url: "https://shop.test/b", postData: { text: "x" } }));
    const sockets = new Set<unknown>();
    respond = (request, res) => {
      sockets.add(res.socket);
      if (request.url === "/b") res.destroy();
      else hello(request, res);
    };
    const { results } = await replayAsJson("--methods GET,POST");
    expect(results.map(({ result }) => result)).toEqual(["equal", "failed"]);
    expect(received.map(({ url }) => url)).toEqual(["/a", "/b"]);
    expect(received[1]?.body.toString()).toBe("x");
    expect(sockets.size).toBe(1);
  },
);

test("a request fails after --timeout if the target does not respond", async () => {
  writeHar(browsed({}));
  respond = () => {};
  const { code, results } = await replayAsJson("--timeout 300ms");
  const reason = "no complete response within 300 ms (--timeout)";
  expect(results).toMatchObject([{ result: "failed", reason }]);
  expect(code).toBe(1);
});

test("--concurrency sends several requests at the same time, and --pace keeps the recorded intervals", async () => {
  writeHar(
    browsed({}),
    browsed({ url: "https://shop.test/b", startedDateTime: "2026-01-01T00:00:02.000Z" }),
  );
  let waiting: ServerResponse[] = [];
  // Responds only if both requests run at the same time.
  respond = (_request, res) => {
    waiting.push(res.setHeader("x-version", "1"));
    if (waiting.length === 2) for (const each of waiting) each.end("hello");
  };
  expect((await replayAsJson("--concurrency 2")).code).toBe(0);
  waiting = [];
  const times: number[] = [];
  respond = (request, res) => {
    times.push(performance.now());
    hello(request, res);
  };
  expect((await replayAsJson("--pace")).code).toBe(0);
  const [first = 0, second = 0] = times;
  // The requests may arrive less than the recorded 2 s apart: the first one is delayed, because it opens the connection.
  expect(second - first).toBeGreaterThan(100);
});

test("the target may have a base path, or be a Unix domain socket", async () => {
  writeHar(browsed({}));
  respond = hello;
  const own = new Command(`replay ${file} --against http://127.0.0.1:${port}/base`);
  expect(await within(own.exit, "the exit")).toBe(0);
  expect(received[0]?.url).toBe("/base/a");
  if (process.platform === "win32") return;
  const path = join(folder, "target.sock");
  const server = createServer((_req, res) => void res.setHeader("x-version", "1").end("hello"));
  server.listen(path);
  const run = new Command(`replay ${file} --against unix:${path}`);
  expect(await within(run.exit, "the exit")).toBe(0);
  server.close().closeAllConnections();
  expect(run.stdout).toContain(`→ unix:${path}: 1 equal`);
});

test.each([
  ["", "replay: name a file, such as traffic.har"],
  ["a.har", "replay: say where to send it, by --against 4001"],
  ["a.har b.har --against 4001", 'replay: "b.har" is one file too many'],
  ["a.har --against x", '--against "x": use a URL, or a port'],
  ["a.har --against http://a.test/?key=x", '--against "http://a.test/?key=x": leave the query out'],
  ["a.har --against 4001 --concurrency 0", "--concurrency: use a whole number from 1 to 999"],
  ["a.har --against 4001 --timeout x", "--timeout: use milliseconds from 1, or 10s"],
  ["a.har --against 4001 -H x", '--header: write it as "name: value", or as "name:" to delete it'],
  [
    "a.har --against 4001 -H TE:trailers",
    "--header: leave te out, because replay writes it where it is needed",
  ],
  ["a.har --against 4001 --query x", '--query: write it as "name=value", as in a URL'],
  ["a.har --against 4001 --slow", "replay: Unknown option '--slow'; see fetchway replay --help"],
  ["/none.har --against 4001", '"/none.har" cannot be read: ENOENT'],
  ["package.json --against 4001", '"package.json" is not a HAR file'],
])("replay %s: %s", async (line, message) => {
  expect(await new Command(`replay ${line}`).refusal()).toBe(`fetchway: ${message}\n`);
});

test("the exit code is 2 if the file has no requests", async () => {
  writeHar();
  const { code, stdout } = await replay();
  expect(stdout).toContain(": 0 equal, 0 different, 0 failed, 0 not sent\n");
  expect(code).toBe(2);
});

test("the commands in docs/command.md record and replay", async () => {
  const page = readFileSync(new URL("../../docs/command.md", import.meta.url), "utf8");
  const block = /## Record and replay[^]*?```sh\n([^]*?)```/.exec(page)?.[1] ?? "";
  // One pass, because the number of a port may contain that of another one.
  const texts = new Map([
    ["npx fetchway ", ""],
    ["traffic.har", file],
    ["4000", upstream.url],
    ["4001", String(port)],
  ]);
  const [recording = "", replaying = ""] = block
    .replace(/npx fetchway |traffic\.har|400[01]/g, (text) => texts.get(text) ?? "")
    .split("\n");
  upstream.handler = (request, res) => hello(request as never, res);
  const { proxy, origin } = await listening(recording);
  await (await fetch(`${origin}/a`)).text();
  proxy.child.kill("SIGTERM");
  await within(proxy.exit, "the exit");
  respond = hello;
  expect(await within(new Command(replaying).exit, "the exit")).toBe(0);
});

test("replay --help fits on a terminal of 80 columns", async () => {
  const run = new Command("replay --help");
  expect(await within(run.exit, "the exit")).toBe(0);
  expect(run.stdout).toMatch(/^fetchway replay <file\.har> --against <target>/);
  expect(Math.max(...run.stdout.split("\n").map(({ length }) => length))).toBeLessThanOrEqual(80);
});
