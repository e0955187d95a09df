/** `--record`: the requests to upstreams and their responses in a HAR file. */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { get, type IncomingMessage, request, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { defaultsOf } from "../../src/schema/schema.ts";
import { serverDefaults, recordSchema } from "../../command/flags/commandoptions.ts";
import type { HarEntry } from "../../command/record/harentry.ts";
import { redactField, redactQuery } from "../../command/log/redact.ts";
import { Observers } from "../../command/serve/observe.ts";
import { findPort, listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, command, listening, programs, upstream } from "./_command.ts";
import { entryOf, fieldOf, findHarFaults, readEntries } from "./_har.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));
let file = "";
let files = 0;
beforeEach(() => {
  file = join(folder, `${++files}.har`);
});

const PAGE = "<p>Grüße</p>".repeat(50);
const PIXEL = Buffer.from("89504e470d0a1a0a00ff", "hex");
/** The digest of the body that `/upload` has received. */
let uploaded = "";
/** Sends the rest of the event stream. */
let finishEvents: (() => void) | undefined;

async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { pathname } = new URL(req.url ?? "", "http://upstream.test");
  switch (pathname) {
    case "/gzip":
      res.writeHead(200, { "content-type": "text/html", "content-encoding": "gzip" });
      return void res.end(gzipSync(PAGE));
    case "/pixel":
      return void res.writeHead(200, { "content-type": "image/png" }).end(PIXEL);
    case "/large":
      return void res.writeHead(200, { "content-type": "text/plain" }).end("é".repeat(100_000));
    case "/cached":
      return void res.writeHead(304, { etag: '"1"' }).end();
    case "/login":
      res.setHeader("set-cookie", ["sid=hush; Path=/; HttpOnly", "theme=dark"]);
      return void res.writeHead(302, { location: "/home?code=hush&x=1" }).end();
    case "/events":
      res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      finishEvents = () => res.end("data: 2\n\n");
      return;
    case "/endless":
      return void res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    case "/cut":
      res.writeHead(200, { "content-length": 100 }).write("half");
      return void setTimeout(() => res.destroy(), 20);
    case "/upload":
      uploaded = createHash("sha256")
        .update(await buffer(req))
        .digest("hex");
      return void res.end("taken");
    default:
      return void res.end(`${req.method} ${await text(req)}`);
  }
}

beforeEach(() => {
  upstream.handler = answer;
});

/** Sends a request. Returns the response with its body, which is not decoded. */
async function ask(
  url: string,
  method = "GET",
  headers: Record<string, string> = {},
  body?: string | Buffer,
): Promise<[IncomingMessage, Buffer]> {
  // If a response breaks off, `request` may emit `error`.
  const sent = request(url, { method, headers, agent: false }).on("error", () => {});
  sent.end(body);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return [response, await buffer(response)];
}

/** Waits until the file has at least `count` entries, and returns all. An entry is written just after its response. */
async function waitForEntries(count: number, path: string = file): Promise<HarEntry[]> {
  let entries: HarEntry[] = [];
  await until(() => {
    try {
      entries = readEntries(path);
    } catch (error) {
      // The command may be in the middle of a write.
      if (!(error instanceof SyntaxError)) throw error;
    }
    return entries.length >= count;
  }, `${count} entries`);
  return entries;
}

describe.each(Object.entries(programs))("on %s", (_runtime, program) => {
  let started: Command;
  let origin = "";
  let target = "";
  let sockets: WebSocketServer;
  beforeAll(async () => {
    const { createServer: createHttp } = await import("node:http");
    const server = createHttp((req, res) => void answer(req, res));
    sockets = new WebSocketServer({ server });
    sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
    target = `http://127.0.0.1:${await listen(server)}`;
    return () => server.close().closeAllConnections();
  });

  async function record(flags = ""): Promise<void> {
    const line = `${target} --port 0 --log off --record ${file} ${flags}`;
    started = new Command(line, [], program);
    origin = await started.origin();
  }

  async function stop(): Promise<ReturnType<typeof readEntries>> {
    started.child.kill("SIGTERM");
    await within(started.exit, "the exit");
    return readEntries(file);
  }

  test("messages are recorded as they are sent to and received from the upstream, without secrets", async () => {
    await record('--header "x-key: hush" --strip-prefix /app');
    await started.says(/^ {2}recording to .*: bodies included$/m);
    const secrets = { authorization: "Bearer hush", cookie: "sid=hush; a=b" };
    const [, echoed] = await ask(`${origin}/app/a?token=hush&x=1`, "POST", secrets, "hällo");
    expect(echoed.toString()).toBe("POST hällo");
    const [, packed] = await ask(`${origin}/gzip`);
    expect(packed).toEqual(gzipSync(PAGE));
    const [, pixel] = await ask(`${origin}/pixel`, "PUT", { "content-type": "image/png" }, PIXEL);
    expect(pixel).toEqual(PIXEL);
    await ask(`${origin}/large`);
    await ask(`${origin}/large`, "HEAD");
    await ask(`${origin}/cached`, "GET", { "if-none-match": '"1"' });
    const [login] = await ask(`${origin}/login`);
    expect(login.headers["set-cookie"]).toEqual(["sid=hush; Path=/; HttpOnly", "theme=dark"]);
    const entries = await stop();
    if (process.platform !== "win32") expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, "utf8")).not.toContain("hush");

    expect(entries).toHaveLength(7);
    const post = entryOf(entries, "/a");
    expect(post.request).toMatchObject({
      method: "POST",
      url: `${target}/a?token=REDACTED&x=1`,
      httpVersion: "HTTP/1.1",
      bodySize: 6,
      postData: { text: "hällo" },
      queryString: [
        { name: "token", value: "REDACTED" },
        { name: "x", value: "1" },
      ],
      cookies: [
        { name: "sid", value: "REDACTED" },
        { name: "a", value: "REDACTED" },
      ],
    });
    expect(fieldOf(post.request, "host")).toBe(new URL(target).host);
    expect(fieldOf(post.request, "authorization")).toBe("REDACTED");
    expect(fieldOf(post.request, "x-key")).toBe("REDACTED");
    expect(fieldOf(post.request, "x-forwarded-for")).toBe("127.0.0.1");
    expect(post.response).toMatchObject({ status: 200, content: { text: "POST hällo", size: 11 } });

    const { content, bodySize } = entryOf(entries, "/gzip").response;
    const size = Buffer.byteLength(PAGE);
    expect(bodySize).toBe(gzipSync(PAGE).byteLength);
    expect(content).toEqual({
      mimeType: "text/html",
      text: PAGE,
      size,
      compression: size - bodySize,
    });

    const put = entryOf(entries, "/pixel");
    const base64 = PIXEL.toString("base64");
    expect(put.request.postData).toMatchObject({ text: base64, _encoding: "base64" });
    expect(put.response.content).toMatchObject({ text: base64, encoding: "base64", size: 10 });

    const large = entryOf(entries, "/large", "GET").response;
    const whole = Buffer.from("é".repeat(100_000));
    expect(large.bodySize).toBe(200_000);
    expect(large.content).toEqual({
      size: 200_000,
      mimeType: "text/plain",
      text: "é".repeat(32_768),
      _truncated: true,
      _sha256: createHash("sha256").update(whole).digest("hex"),
      comment: "truncated",
    });
    const head = entryOf(entries, "/large", "HEAD").response;
    expect(head).toMatchObject({ status: 200, bodySize: 0, content: { size: 0 } });
    const cached = entryOf(entries, "/cached").response;
    expect(cached).toMatchObject({ status: 304, bodySize: 0, content: { size: 0 } });
    const { response } = entryOf(entries, "/login");
    expect(response.redirectURL).toBe("/home?code=REDACTED&x=1");
    expect(fieldOf(response, "set-cookie")).toBe("sid=REDACTED; Path=/; HttpOnly");
  });

  test("large uploads, event streams, tunnels and bodies that break off pass unchanged", async () => {
    await record();
    const body = randomBytes(10_000_000);
    const digest = createHash("sha256").update(body).digest("hex");
    const [, taken] = await ask(`${origin}/upload`, "POST", {}, body);
    expect(taken.toString()).toBe("taken");
    expect(uploaded).toBe(digest);

    // The first event arrives before the stream has ended.
    const [stream] = (await once(get(`${origin}/events`), "response")) as [IncomingMessage];
    const [first] = (await within(once(stream, "data"), "the first event")) as [Buffer];
    expect(first.toString()).toBe("data: 1\n\n");
    finishEvents?.();
    expect((await buffer(stream)).toString()).toBe("data: 2\n\n");

    const leaving = get(`${origin}/endless`).on("error", () => {});
    const [endless] = (await once(leaving, "response")) as [IncomingMessage];
    await once(endless, "data");
    endless.on("error", () => {});
    leaving.destroy();
    await expect(ask(`${origin}/cut`)).rejects.toThrow();
    const socket = new WebSocket(`${origin.replace("http", "ws")}/chat`);
    await once(socket, "open");
    socket.send("hi");
    await once(socket, "message");
    socket.close();
    await once(socket, "close");

    await waitForEntries(5);
    const entries = await stop();
    const { request: upload } = entryOf(entries, "/upload");
    expect(upload).toMatchObject({
      bodySize: 10_000_000,
      postData: { _truncated: true, _sha256: digest },
    });
    expect(Buffer.from(upload.postData?.text ?? "", "base64")).toEqual(body.subarray(0, 65_536));
    const { content } = entryOf(entries, "/events").response;
    const events = "data: 1\n\ndata: 2\n\n";
    expect(content).toEqual({ mimeType: "text/event-stream", text: events, size: 18 });
    const left = entryOf(entries, "/endless").response;
    expect(left).toMatchObject({
      _error: "the client disconnected",
      content: { text: "data: 1\n\n", _truncated: true, comment: "incomplete" },
    });
    const { response: cut } = entryOf(entries, "/cut");
    expect(cut._error).toMatch(/^http_response_incomplete: /);
    expect(cut.content).toMatchObject({ text: "half", _truncated: true });
    const chat = entryOf(entries, "/chat");
    expect(chat).toMatchObject({ _resourceType: "websocket", response: { status: 101 } });
    expect(fieldOf(chat.request, "upgrade")).toBe("websocket");
  });
});

test("a killed process leaves a valid file", async () => {
  const { proxy, origin } = await listening(`${upstream.url} --record ${file}`);
  expect(readEntries(file)).toEqual([]);
  for (const path of ["/a", "/b", "/c"]) await ask(origin + path);
  await waitForEntries(3);
  await proxy.kill();
  expect(readEntries(file).map(({ request: { url } }) => url.slice(-2))).toEqual([
    "/a",
    "/b",
    "/c",
  ]);
});

test.each([
  ["entries", "2", "2 requests"],
  ["bytes", "2500", "2500 bytes"],
])("--record-max-%s ends the recording with one message", async (limit, value, what) => {
  const flags = `--record ${file} --record-max-${limit} ${value}`;
  const { proxy, origin } = await listening(`${upstream.url} ${flags}`);
  for (let i = 0; i < 5; i++) await ask(`${origin}/${i}`);
  await until(() => proxy.stderr !== "", "the message");
  expect(readEntries(file)).toHaveLength(2);
  expect(statSync(file).size).toBeLessThanOrEqual(2500);
  const message = `fetchway: --record "${file}": it has ${what} (--record-max-${limit}); further requests are not recorded\n`;
  expect(proxy.stderr).toBe(message);
});

test("--record-secrets keeps secrets, and --record-max-body 0 keeps no bodies", async () => {
  const flags = `--record ${file} --record-secrets --record-max-body 0`;
  const { proxy, origin } = await listening(`${upstream.url} ${flags}`);
  await proxy.says(/: bodies, and secrets included$/m);
  await ask(`${origin}/login?key=hush`, "POST", { authorization: "Bearer hush" }, "body");
  const [entry] = await waitForEntries(1);
  expect(entry?.request.url).toMatch(/key=hush$/);
  expect(entry && fieldOf(entry.request, "authorization")).toBe("Bearer hush");
  expect(entry && fieldOf(entry.response, "set-cookie")).toBe("sid=hush; Path=/; HttpOnly");
  const digest = createHash("sha256").update("body").digest("hex");
  expect(entry?.request.postData).toMatchObject({ text: "", _truncated: true, _sha256: digest });
});

test("each attempt is an entry, also one without a response", async () => {
  const dead = `127.0.0.1:${await findPort()}`;
  const flags = `--policy first --record ${file}`;
  const { origin } = await listening(`http://${dead} ${upstream.url} ${flags}`);
  const [response] = await ask(`${origin}/a`);
  expect(response.statusCode).toBe(200);
  const [first, second, ...others] = await waitForEntries(2);
  expect(others).toEqual([]);
  expect(first?.request.url).toBe(`http://${dead}/a`);
  expect(first?.response).toMatchObject({ status: 0, content: { size: 0 } });
  expect(first?.response._error).toMatch(/^connection_refused: /);
  // Only the last attempt has a time to connect: the proxy does not measure the others.
  expect(first?.timings.connect).toBe(-1);
  expect(second?.timings.connect).toBeGreaterThanOrEqual(0);
  expect(second).toMatchObject({
    request: { url: `${upstream.url}/a` },
    response: { status: 200 },
  });
});

test("bodies that exceed the limit after decoding, and bodies with a wrong coding, are marked", async () => {
  const [bomb, wrong] = [brotliCompressSync("x".repeat(10_000_000)), "no gzip"];
  upstream.handler = ({ url }, res) => {
    const [coding, body] = url === "/bomb" ? ["br", bomb] : ["gzip", wrong];
    res.writeHead(200, { "content-encoding": coding }).end(body);
  };
  const { origin } = await listening(`${upstream.url} --record ${file}`);
  await ask(`${origin}/bomb`);
  await ask(`${origin}/wrong`);
  const entries = await waitForEntries(2);
  const { content } = entryOf(entries, "/bomb").response;
  expect(content).toMatchObject({
    text: "x".repeat(65_536),
    _truncated: true,
    size: bomb.byteLength,
  });
  expect(content._sha256).toBe(createHash("sha256").update(bomb).digest("hex"));
  const raw = entryOf(entries, "/wrong").response.content;
  expect(raw).toEqual({
    size: 7,
    mimeType: "",
    text: wrong,
    comment: "in the content coding gzip",
  });
});

test("with --workers, the parent writes one file, even after workers are replaced", async () => {
  const flags = `--record ${file} --record-max-entries 4`;
  const { proxy, origin } = await listening(`${upstream.url} --workers 2 ${flags}`);
  for (let i = 0; i < 2; i++) await ask(`${origin}/${i}`);
  await waitForEntries(2);
  proxy.child.kill("SIGHUP");
  await proxy.says(/2 workers have been replaced/);
  for (let i = 2; i < 9; i++) await ask(`${origin}/${i}`);
  await until(() => /--record-max-entries/.test(proxy.stderr), "the message");
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(readEntries(file)).toHaveLength(4);
  expect(proxy.stderr.match(/--record-max-entries/g)).toHaveLength(1);
});

test("the entries of requests that run while the workers stop are recorded", async () => {
  let finish: (() => void) | undefined;
  upstream.handler = (_req, res) => {
    finish = () => res.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(PAGE));
  };
  const { proxy, origin } = await listening(`${upstream.url} --workers 2 --record ${file}`);
  const responding = ask(`${origin}/slow`);
  await until(() => finish !== undefined, "the request");
  proxy.child.kill("SIGTERM");
  await proxy.says(/stopping: 1 request still running/);
  finish?.();
  await responding;
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(readEntries(file)).toMatchObject([{ response: { content: { text: PAGE } } }]);
});

test("`record` in a config file is relative to the file's folder, and requests of reloaded routes are recorded", async () => {
  const own = join(folder, "own");
  mkdirSync(own);
  const config = join(own, "fetchway.config.json");
  const write = (stripPrefix: string): void =>
    writeFileSync(
      config,
      JSON.stringify({ target: upstream.url, stripPrefix, server: { record: "a.har" } }),
    );
  write("/one");
  const { proxy, origin } = await listening(`--config ${config}`);
  await ask(`${origin}/one/a`);
  write("/two");
  proxy.child.kill("SIGHUP");
  await proxy.says(/has been reloaded/);
  await ask(`${origin}/two/b`);
  const entries = await waitForEntries(2, join(own, "a.har"));
  const paths = entries.map(({ request: { url } }) => new URL(url).pathname);
  expect(paths).toEqual(["/a", "/b"]);
});

test("an old file is replaced, and a link or a folder is refused", async () => {
  writeFileSync(file, "old", { mode: 0o644 });
  await listening(`${upstream.url} --record ${file}`);
  expect(readEntries(file)).toEqual([]);
  if (process.platform !== "win32") expect(statSync(file).mode & 0o777).toBe(0o600);
  const link = `${file}.link`;
  symlinkSync(file, link);
  for (const path of [link, folder, join(folder, "none", "a.har")]) {
    const refusal = await command(`${upstream.url} --port 0 --record ${path}`).refusal();
    expect(refusal).toMatch(/^fetchway: --record ".*": it cannot be created: E(?:EXIST|NOENT)\n$/);
  }
  expect(lstatSync(link).isSymbolicLink()).toBe(true);
});

test.each(["", "--workers 2"])(
  "a command that cannot listen replaces no file (%s)",
  async (flags) => {
    writeFileSync(file, "old");
    const { port } = new URL(upstream.url);
    const line = `http://127.0.0.1:1 --port ${port} --record ${file} ${flags}`;
    expect(await command(line).refusal()).toContain(`port ${port} is in use`);
    expect(readFileSync(file, "utf8")).toBe("old");
  },
);

test.each(["", "--workers 2"])(
  "a file to which nothing can be written is refused (%s)",
  async (flags) => {
    const full = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", process.execPath];
    const proxy = new Command(`${upstream.url} --port 0 --record ${file} ${flags}`, [], full);
    expect(await within(proxy.exit, "the exit")).toBe(2);
    expect(proxy.stderr).toBe(`fetchway: --record "${file}": it cannot be created: EFBIG\n`);
  },
);

test("with --workers, a file that cannot be created is refused", async () => {
  const proxy = command(`${upstream.url} --port 0 --workers 2 --record ${folder}`);
  expect(await within(proxy.exit, "the exit")).toBe(2);
  expect(proxy.stderr).toMatch(/it cannot be created: EEXIST\n$/);
});

test("the other options for recording are refused without --record", async () => {
  const refusal = await command(`${upstream.url} --record-secrets`).refusal();
  expect(refusal).toBe("fetchway: --record-secrets does nothing without --record\n");
});

test("without --record, no interceptor is added", () => {
  const observers = new Observers(serverDefaults);
  const prepared = observers.prepare({ target: "http://127.0.0.1:4000" });
  expect(prepared.interceptors).toBeUndefined();
  expect(defaultsOf(recordSchema)).not.toHaveProperty("record");
});

test.each([
  ["Authorization", "Bearer x", "REDACTED"],
  ["Proxy-Authorization", "Basic x", "REDACTED"],
  ["Cookie", "a=1; b=2", "a=REDACTED; b=REDACTED"],
  ["Set-Cookie", "a=1; Path=/", "a=REDACTED; Path=/"],
  ["Cookie", "x; a=1;; b", "REDACTED; a=REDACTED;; REDACTED"],
  ["Set-Cookie", "x; Path=/", "REDACTED; Path=/"],
  ["Refresh", "0; url='/a?key=x'", "0; url='/a?key=REDACTED'"],
  ["X-Api-Key", "x", "REDACTED"],
  ["X-Auth-Token", "x", "REDACTED"],
  ["X-CSRF-Token", "x", "REDACTED"],
  ["Cf-Access-Jwt-Assertion", "x", "REDACTED"],
  [
    "Referer",
    "http://a.test/?key=x&b=1#access_token=y",
    "http://a.test/?key=REDACTED&b=1#access_token=REDACTED",
  ],
  ["Accept", "text/html;q=0.8", "text/html;q=0.8"],
  ["WWW-Authenticate", 'Basic realm="x"', 'Basic realm="x"'],
  ["Content-Type", "text/html; charset=utf-8", "text/html; charset=utf-8"],
])("the field %s: %s is recorded as %s", (name, value, recorded) => {
  expect(redactField(name, value)).toBe(recorded);
});

test.each([
  ["/a?api_key=x&apiKey=y&q=key", "/a?api_key=REDACTED&apiKey=REDACTED&q=key"],
  ["/a?X-Amz-Signature=x&sig=y;code=z", "/a?X-Amz-Signature=REDACTED&sig=REDACTED;code=REDACTED"],
  ["/a?key='x'&token=it's-y", "/a?key=REDACTED&token=REDACTED"],
  ['/a?code="<x>', "/a?code=REDACTED"],
  ["/key=x", "/key=x"],
  ["/a?token", "/a?token"],
])("the path %s is recorded as %s", (path, recorded) => {
  expect(redactQuery(path)).toBe(recorded);
});

test("`findHarFaults` finds the faults of HAR files", () => {
  const log = { version: "1.2", creator: { name: "x", version: "1" }, pages: [], entries: [{}] };
  expect(findHarFaults({ log })).toContain("har.log.entries[0].startedDateTime: undefined");
});
