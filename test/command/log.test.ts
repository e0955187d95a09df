import { EventEmitter } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WriteStream } from "node:tty";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { escapeAsApache, renderJson } from "../../command/log/escape.ts";
import { escapeControls } from "../../src/explain/printable.ts";
import { FailureLog, kindOfFailure } from "../../command/log/failurelog.ts";
import {
  coloursOf,
  createPalette,
  createPrettyForm,
  renderCombined,
  renderCommon,
  renderDuration,
  renderJsonLine,
  renderSize,
} from "../../command/log/lineforms.ts";
import { LineWriter } from "../../command/log/linewriter.ts";
import {
  chooseLogForm,
  describeDropped,
  type LogForm,
  RequestLog,
} from "../../command/log/requestlog.ts";
import { clientGone, placeError, ProxyError } from "../../src/error.ts";
import { endOf } from "./_requestend.ts";
import { until } from "../helpers/wait.ts";

/** A stream that, while it is slow, completes its writes only when the test calls `complete`. */
class SlowOutput extends EventEmitter {
  fd = -1;
  /** The error with which each write fails. */
  failure: Error | undefined;
  // Use a terminal's real method, which reads NO_COLOR and TERM.
  readonly getColorDepth = (): number => WriteStream.prototype.getColorDepth();
  readonly isTTY: boolean;
  readonly writes: string[] = [];
  isSlow = false;
  readonly #waiting: (() => void)[] = [];

  constructor(isTTY = false) {
    super();
    this.isTTY = isTTY;
  }
  write(text: string, done: (error?: Error) => void): boolean {
    const { failure } = this;
    if (failure !== undefined) {
      process.nextTick(() => {
        done(failure);
        this.emit("error", failure);
      });
      return false;
    }
    this.writes.push(text);
    if (this.isSlow) this.#waiting.push(done);
    else process.nextTick(done);
    return !this.isSlow;
  }
  complete(): void {
    this.isSlow = false;
    for (const done of this.#waiting.splice(0)) done();
  }
  get text(): string {
    return this.writes.join("");
  }
}

const refused = (): ProxyError => {
  const cause = Object.assign(new Error("connect"), {
    code: "ECONNREFUSED",
    address: "127.0.0.1",
    port: 4000,
  });
  return new ProxyError("connection_refused", { cause });
};
const plain = createPalette(false);

beforeEach(() => {
  vi.stubEnv("TZ", "America/St_Johns");
  vi.stubEnv("NO_COLOR", undefined);
  vi.stubEnv("FORCE_COLOR", undefined);
  vi.stubEnv("NODE_DISABLE_COLORS", undefined);
  vi.stubEnv("TERM", "xterm-256color");
});
afterEach(() => vi.unstubAllEnvs());

describe("a line of the log in the pretty form", () => {
  const render = createPrettyForm(plain);

  test("has time, method, path, upstream, status, duration and size", () => {
    expect(render(endOf())).toMatch(
      /^\d\d:\d\d:36 GET \/a\?b=c → 127\.0\.0\.1:4000 200 3\.3 ms 2\.3 kB$/,
    );
    expect(render(endOf({ upstream: "https://x.test:1" }))).toContain(" → https://x.test:1 200");
    expect(render(endOf({ upstream: "unix:/run/a.sock" }))).toContain(" → unix:/run/a.sock 200");
  });

  test("for a response that a hook has made, it has no upstream and no size", () => {
    expect(render(endOf({ upstream: undefined, bytesOut: undefined }))).toMatch(
      /GET \/a\?b=c 200 3\.3 ms$/,
    );
  });

  test.each([
    [
      { status: 101, protocol: "websocket", bytesIn: 1234, timings: { total: 12_345 } },
      "101 websocket closed after 12.3 s, 1.2 kB in, 2.3 kB out",
    ],
    [
      { status: 101, protocol: "websocket", error: new ProxyError("connection_terminated") },
      "101 websocket cut after 3.3 ms, 0 B in, 2.3 kB out",
    ],
    [{ status: 499, error: clientGone(), bytesOut: 0 }, "499 client left after 3.3 ms, 0 B"],
    [{ error: clientGone() }, "200 client left after 3.3 ms, 2.3 kB"],
    [{ attempts: 3 }, "200 3.3 ms 2.3 kB, 3 attempts"],
  ])("says how the request ended, for an end with %j", (differences, expected) => {
    expect(render(endOf(differences as never)).endsWith(expected)).toBe(true);
  });

  test("has colours only on a terminal, and obeys NO_COLOR and FORCE_COLOR", () => {
    vi.stubEnv("TERM", "xterm-256color");
    for (const name of ["CI", "NO_COLOR", "FORCE_COLOR", "NODE_DISABLE_COLORS"])
      vi.stubEnv(name, undefined);
    const line = (isTTY: boolean): string => {
      const { stdout } = coloursOf(new SlowOutput(isTTY), new SlowOutput());
      return createPrettyForm(createPalette(stdout))(endOf({ status: 503 }));
    };
    expect(line(false)).not.toContain("\u001b");
    expect(line(true)).toContain("\u001b[31m503\u001b[39m");
    vi.stubEnv("NO_COLOR", "1");
    expect(line(true)).not.toContain("\u001b");
    vi.stubEnv("NO_COLOR", undefined);
    vi.stubEnv("FORCE_COLOR", "1");
    expect(line(false)).toContain("\u001b[31m503");
  });

  test.each([
    [0.04, "0.0 ms"],
    [9.96, "10 ms"],
    [999.4, "999 ms"],
    [999.6, "1.0 s"],
    [59_949, "59.9 s"],
    [59_960, "1 m 00 s"],
    [3_599_400, "59 m 59 s"],
    [3_599_600, "1 h 00 m"],
    [90_000_000, "25 h 00 m"],
  ])("writes %d milliseconds as %s", (ms, expected) => expect(renderDuration(ms)).toBe(expected));

  test.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1.0 kB"],
    [9960, "10 kB"],
    [999_499, "999 kB"],
    [999_500, "1.0 MB"],
    [5e15, "5000 TB"],
  ])("writes %d bytes as %s", (bytes, expected) => expect(renderSize(bytes)).toBe(expected));
});

describe("a line of the log in Apache's forms", () => {
  test('has %h %l %u %t "%r" %>s %b in the form `common`', () => {
    expect(renderCommon(endOf())).toBe(
      '192.0.2.7 - - [10/Oct/2026:11:25:36 -0230] "GET /a?b=c HTTP/1.1" 200 2326',
    );
  });

  test("has a hyphen for an empty body and for an unknown client", () => {
    expect(renderCommon(endOf({ bytesOut: 0, clientAddress: undefined }))).toMatch(
      /^- - - \[.*\] "GET \/a\?b=c HTTP\/1\.1" 200 -$/,
    );
    expect(renderCommon(endOf({ bytesOut: undefined }))).toMatch(/ 200 -$/);
  });

  test("has a plus for a time zone east of Greenwich", () => {
    vi.stubEnv("TZ", "Asia/Kathmandu");
    expect(renderCommon(endOf({ startedAt: Date.UTC(2026, 0, 1, 0, 0, 1) }))).toContain(
      "[01/Jan/2026:05:45:01 +0545]",
    );
  });

  test("has the HTTP version of the client's request", () => {
    const runtime = { node: { req: { httpVersion: "2.0" } } };
    const request = Object.assign(new Request("http://a"), { runtime });
    expect(renderCommon(endOf({ request }))).toContain('"GET /a?b=c HTTP/2.0"');
  });

  test("has Referer and User-Agent in the form `combined`", () => {
    const headers = { referer: "http://x.test/", "user-agent": 'a "b" \\c' };
    expect(renderCombined(endOf({ request: new Request("http://a", { headers }) }))).toMatch(
      / 200 2326 "http:\/\/x\.test\/" "a \\"b\\" \\\\c"$/,
    );
    expect(renderCombined(endOf())).toMatch(/ 200 2326 "-" "-"$/);
  });

  // The cases of `ap_escape_logitem` in Apache's server/util.c.
  test.each([
    ["plain ~ !", "plain ~ !"],
    ['"', '\\"'],
    ["\\", "\\\\"],
    ["\b\t\n\v\f\r", "\\b\\t\\n\\v\\x0c\\r"],
    ["\0\u001b[2J\u007f", "\\x00\\x1b[2J\\x7f"],
    ["ä\u009b", "\\xc3\\xa4\\xc2\\x9b"],
    ["\u{1f600}", "\\xf0\\x9f\\x98\\x80"],
  ])("has the text %j escaped as %s", (text, expected) =>
    expect(escapeAsApache(text)).toBe(expected),
  );
});

describe("a line of the log in the JSON form", () => {
  test("has the keys of a request in a fixed order", () => {
    expect(renderJsonLine(endOf())).toBe(
      '{"time":"2026-10-10T13:55:36.250Z","level":"info","client":"192.0.2.7","method":"GET","host":"proxy.test",' +
        '"path":"/a?b=c","status":200,"upstream":"http://127.0.0.1:4000","ms":3.25,"queueMs":0.5,' +
        '"connectMs":1.5,"firstByteMs":3,"bytesIn":0,"bytesOut":2326,"attempts":1,"reused":true}',
    );
  });

  test("has exactly the keys that docs/log.md lists", () => {
    const all = endOf({
      route: "/",
      protocol: "websocket",
      error: new ProxyError("connection_refused"),
      timings: { held: 2, queue: 0.5, connect: 1.5, firstByte: 3, total: 5 },
    });
    const left = endOf({ error: clientGone() });
    const keys = [all, left].flatMap((end) =>
      Object.keys(JSON.parse(renderJsonLine(end)) as object),
    );
    // `tls` needs Node's server, and `userAgent` a request with that field.
    keys.push("tls", "userAgent");
    const text = readFileSync(new URL("../../docs/log.md", import.meta.url), "utf8");
    const [, table = ""] = /The keys of `json`[^]*?(\n\|[^]*)$/.exec(text) ?? [];
    const names = Array.from(table.matchAll(/^\| (`.*?) *\|/gm), ([, cell = ""]) =>
      cell.replaceAll("`", "").split(", "),
    );
    expect(names.flat().toSorted()).toEqual([...new Set(keys)].toSorted());
  });

  test("contains the cause and the fix of a failure", () => {
    const line = renderJsonLine(endOf({ status: 502, error: refused() }));
    expect(JSON.parse(line)).toMatchObject({
      status: 502,
      code: "connection_refused",
      cause: "127.0.0.1:4000",
      fix: "is it running?",
    });
    expect(JSON.parse(renderJsonLine(endOf({ error: clientGone() })))).toMatchObject({
      clientLeft: true,
    });
  });
});

describe("no text of a client reaches a terminal unescaped", () => {
  const evil = 'a\r\nFAKE "x" \u001b[2J\u009b31m\u202e\u2028\u007f';
  // oxlint-disable-next-line no-control-regex
  const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e]/;
  test.each(["pretty", "common", "combined", "json"] as const)(
    "in the log form %s",
    async (form) => {
      const request = { headers: { get: () => evil } } as unknown as Request;
      const fields = {
        clientAddress: evil,
        method: evil,
        path: evil,
        authority: evil,
        upstream: evil,
        protocol: evil,
      };
      const [stdout, stderr] = [new SlowOutput(), new SlowOutput()];
      const log = new RequestLog(form, stdout as never, stderr as never);
      log.onRequestEnd?.(endOf({ ...fields, request }));
      log.onRequestEnd?.(endOf({ ...fields, request, status: 101 }));
      log.onRequestEnd?.(endOf({ ...fields, request, error: new Error(evil) }));
      await log.close();
      const lines = (stdout.text + stderr.text).split("\n").slice(0, -1);
      // In the forms pretty and json, a failure has only one line.
      expect(lines).toHaveLength(form === "pretty" || form === "json" ? 3 : 4);
      for (const line of lines) expect(line).not.toMatch(UNSAFE);
    },
  );

  test("but printable text of any language is not changed", () => {
    expect(escapeControls("/größe/日本語/😀")).toBe("/größe/日本語/😀");
    expect(renderJson({ path: "/größe" })).toBe('{"path":"/größe"}');
  });
});

describe("failures in the log", () => {
  function start(form: LogForm): [RequestLog, SlowOutput, SlowOutput] {
    const [stdout, stderr] = [new SlowOutput(), new SlowOutput()];
    return [new RequestLog(form, stdout as never, stderr as never), stdout, stderr];
  }

  test("in the pretty form, a failure has one line on stderr, with cause and fix", async () => {
    const [log, stdout, stderr] = start("pretty");
    log.onRequestEnd?.(endOf({ status: 502, error: refused() }));
    await log.close();
    expect(stderr.text).toMatch(
      /^\d\d:\d\d:36 GET \/a\?b=c → 502 connection_refused: 127\.0\.0\.1:4000 \(is it running\?\)\n$/,
    );
    expect(stdout.text).toBe("");
  });

  test.each(["common", "combined"] as const)(
    "with %s, stdout has a line about the request as well",
    async (form) => {
      const [log, stdout, stderr] = start(form);
      log.onRequestEnd?.(endOf({ status: 502, error: refused() }));
      await log.close();
      expect(stdout.text).toMatch(/502.*\n$/);
      expect(stderr.text).toMatch(
        /^2026-10-10T13:55:36\.253Z GET \/a\?b=c → 502 connection_refused: /,
      );
    },
  );

  test("with json, only stdout has a line, whose level depends on whether the client caused the failure", async () => {
    const [log, stdout, stderr] = start("json");
    log.onRequestEnd?.(endOf({ status: 502, error: refused() }));
    log.onRequestEnd?.(endOf({ status: 413, error: new ProxyError("http_request_error") }));
    log.onRequestEnd?.(endOf({ error: new ProxyError("http_response_incomplete") }));
    log.onRequestEnd?.(endOf({ status: 500 }));
    log.onRequestEnd?.(endOf({ status: 499, error: clientGone() }));
    await log.close();
    const lines = stdout.text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { level: string });
    expect(lines.map(({ level }) => level)).toEqual(["error", "warn", "error", "info", "info"]);
    expect(lines[0]).toMatchObject({ code: "connection_refused", fix: "is it running?" });
    expect(stderr.text).toBe("");
  });

  test("a failure that breaks off a response has a line that says how much the client has received", async () => {
    const [log, , stderr] = start("pretty");
    const error = new ProxyError("http_response_incomplete");
    placeError(error, { origin: "http://127.0.0.1:4000" });
    log.onRequestEnd?.(endOf({ error }));
    await log.close();
    expect(stderr.text).toContain(
      "→ 200 cut after 3.3 ms, 2.3 kB: http_response_incomplete: 127.0.0.1:4000 closed the connection in the middle",
    );
  });

  test("a client that disconnects is no failure", async () => {
    const [log, stdout, stderr] = start("pretty");
    log.onRequestEnd?.(endOf({ status: 499, error: clientGone() }));
    log.onError(clientGone(), new Request("http://a"));
    await log.close();
    expect(stdout.text).toContain("499 client left");
    expect(stderr.text).toBe("");
  });

  test("in the form `off`, failures are on stderr as well, although the log does not get the ends of requests", async () => {
    const [log, stdout, stderr] = start("off");
    expect(log.onRequestEnd).toBeUndefined();
    log.onError(refused(), new Request("http://a/b?c"));
    await log.close();
    expect(stderr.text).toContain("GET /b?c → 502 connection_refused: 127.0.0.1:4000 (is");
    expect(stdout.text).toBe("");
  });

  test("a summary of failures has its own time, so that the lines are in the order of time", async () => {
    const before = new Date().toISOString();
    const [log, , stderr] = start("common");
    // The failures of `endOf` have a time in the past, unlike the summary.
    for (let i = 0; i < 3; i++) log.onRequestEnd?.(endOf({ status: 502, error: refused() }));
    await log.close();
    const [first = "", sum = ""] = stderr.text.split("\n");
    expect(first < before).toBe(true);
    expect(sum).toMatch(/^\S+ … 2 times more in /);
    expect(sum >= before).toBe(true);
  });

  test("each change of an upstream's state has one line, and equal changes that follow immediately are summed up", async () => {
    const down = {
      name: "http://a\n",
      state: "down",
      previous: "up",
      reason: "3 checks failed",
    } as const;
    const up = {
      name: "http://a\n",
      state: "up",
      previous: "down",
      reason: "2 checks succeeded",
    } as const;
    for (const form of ["common", "json"] as const) {
      const [log, stdout, stderr] = start(form);
      for (let i = 0; i < 100; i++) {
        log.onStateChange(down);
        log.onStateChange(up);
      }
      await log.close();
      const [used, other] = form === "json" ? [stdout, stderr] : [stderr, stdout];
      expect(other.text).toBe("");
      const lines = used.text.split("\n").slice(0, -1);
      expect(lines).toHaveLength(4);
      if (form === "json") {
        const [first, second, third] = lines.map((line) => JSON.parse(line) as unknown);
        const time = expect.any(String) as string;
        const { name: upstream, state, reason } = down;
        expect(first).toEqual({ time, level: "error", upstream, state, reason });
        expect(second).toMatchObject({ level: "info", upstream, state: "up" });
        expect(third).toMatchObject({ state: "down", count: 99 });
      } else {
        expect(lines[0]).toMatch(/^\S+ upstream http:\/\/a\\n down: 3 checks failed$/);
        expect(lines[1]).toMatch(/^\S+ upstream http:\/\/a\\n up: 2 checks succeeded$/);
        expect(lines[2]).toMatch(/^\S+ … 99 times more: upstream \S+ down: 3 checks failed$/);
      }
    }
  });

  test("equal failures are summed up at growing intervals, and shown again after a quiet period", () => {
    const said: string[] = [];
    const failures = new FailureLog(
      ({ path }) => said.push(path),
      ({ count, span, last, isMixed }) =>
        said.push(`${count} in ${span}, last ${last.path}${isMixed ? ", mixed" : ""}`),
      kindOfFailure,
    );
    const failure = { code: "connection_refused", cause: "a", fix: undefined } as const;
    const add = (path: string, time: number, cause = "a"): void =>
      failures.add(
        {
          method: "GET",
          path,
          status: 502,
          failure: { ...failure, cause },
          time: 0,
          outcome: undefined,
        },
        time,
      );
    add("/1", 0);
    for (let i = 2; i <= 413; i++) add(`/${i}`, 500);
    failures.tick(999);
    expect(said).toEqual(["/1"]);
    failures.tick(1000);
    add("/x", 1500);
    failures.tick(2999);
    expect(said).toEqual(["/1", "412 in 1000, last /413"]);
    failures.tick(3000);
    add("/y", 3001);
    failures.flush();
    expect(said.slice(2)).toEqual(["1 in 2000, last /x", expect.stringContaining("last /y")]);
  });

  test("failures are summed up on time after the clock of the system has been set back", async () => {
    const stderr = new SlowOutput();
    const began = Date.UTC(2026, 0, 1);
    vi.useFakeTimers({
      toFake: ["Date", "performance", "setInterval", "clearInterval"],
      now: began,
    });
    const log = new RequestLog("pretty", new SlowOutput() as never, stderr as never);
    const fail = (): void => {
      const error = new ProxyError("connection_refused");
      log.onRequestEnd?.(endOf({ status: 502, error, startedAt: Date.now() }));
    };
    fail();
    vi.setSystemTime(began - 3_600_000);
    fail();
    vi.advanceTimersByTime(1000);
    fail();
    vi.advanceTimersByTime(500);
    const closed = log.close();
    vi.useRealTimers();
    await closed;
    expect(stderr.text).toMatch(/ … 1 time more in 1\.0 s: .+\n.+ … 1 time more in 500 ms: /);
  });

  test("an upstream that stays down causes one line a minute", () => {
    let sums = 0;
    const failures = new FailureLog(
      () => sums++,
      () => sums++,
      kindOfFailure,
    );
    const failure = { code: "connection_refused", cause: "a", fix: undefined } as const;
    for (let second = 0; second < 86_400; second++) {
      const time = second * 1000;
      failures.add(
        { method: "GET", path: "/", status: 502, failure, time: 0, outcome: undefined },
        time,
      );
      failures.tick(time);
    }
    expect(sums).toBeLessThan(24 * 60 + 10);
    expect(sums).toBeGreaterThan(24 * 50);
    failures.tick(1e12);
    failures.tick(1e12 + 120_000);
  });

  test("failures of too many kinds are counted together", () => {
    const said: string[] = [];
    const failures = new FailureLog(
      ({ failure }) => said.push(failure.cause),
      ({ count, isMixed }) => said.push(`${count} ${isMixed}`),
      kindOfFailure,
    );
    for (let i = 0; i < 1000; i++) {
      const failure = { code: "proxy_internal_error", cause: `user ${i}`, fix: undefined } as const;
      failures.add(
        { method: "GET", path: "/", status: 500, failure, time: 0, outcome: undefined },
        0,
      );
    }
    failures.tick(1000);
    expect(said).toHaveLength(66);
    expect(said[65]).toBe("935 true");
    failures.tick(1e9);
  });
});

describe("the writer of log lines", () => {
  const dropped = (count: number): string => `${count} dropped`;

  test("writes the lines of one turn of the event loop together", async () => {
    const output = new SlowOutput();
    const writer = new LineWriter(output, dropped);
    writer.write("a");
    writer.write("b");
    expect(output.writes).toEqual([]);
    await until(() => output.writes.length > 0, "a write");
    expect(output.writes).toEqual(["a\nb\n"]);
    writer.write("c");
    await writer.close();
    expect(output.writes).toEqual(["a\nb\n", "c\n"]);
  });

  test("has one pending write for a slow reader, buffers a bounded number of bytes, and says how many lines it dropped", async () => {
    const output = new SlowOutput();
    output.isSlow = true;
    const writer = new LineWriter(output, dropped);
    writer.write("first");
    await until(() => output.writes.length > 0, "a write");
    const line = "x".repeat(99);
    for (let i = 0; i < 20_000; i++) writer.write(line);
    await new Promise(setImmediate);
    expect(output.writes).toHaveLength(1);
    output.complete();
    await writer.close();
    const lines = output.writes[1]?.split("\n") ?? [];
    const [count] = lines.at(-2)?.split(" ") ?? [];
    expect(lines.at(-2)).toMatch(/^\d+ dropped$/);
    expect(lines.length - 2 + Number(count)).toBe(20_000);
    expect(output.writes[1]?.length).toBeLessThan(1024 * 1024 + 200);
  });

  test("writes the remaining lines when the process exits, beginning on a new line", async () => {
    const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
    const path = join(folder, "log");
    const fd = openSync(path, "w");
    try {
      const output = Object.assign(new SlowOutput(), { fd });
      output.isSlow = true;
      const writer = new LineWriter(output, dropped);
      writer.write("begun");
      await until(() => output.writes.length > 0, "a write");
      writer.write("größe");
      writer.write("last");
      writer.flushNow();
      writer.flushNow();
      expect(readFileSync(path, "utf8")).toBe("\ngröße\nlast\n");
    } finally {
      closeSync(fd);
      rmSync(folder, { recursive: true });
    }
  });

  test("does not fail if its output has no reader (EPIPE)", async () => {
    const output = new SlowOutput();
    const writer = new LineWriter(output, dropped);
    output.emit("error", Object.assign(new Error("broken pipe"), { code: "EPIPE" }));
    writer.write("a");
    await writer.close();
    expect(output.writes).toEqual([]);
  });

  test.skipIf(!existsSync("/dev/full"))(
    "counts the lines that a full disk loses, says so once, and continues when there is space",
    async () => {
      const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
      const path = join(folder, "log");
      const file = openSync(path, "w");
      // Each write to /dev/full fails with ENOSPC, as on a full disk.
      const full = openSync("/dev/full", "w");
      try {
        const said: string[] = [];
        const output = Object.assign(new SlowOutput(), { fd: full });
        output.failure = Object.assign(new Error("no space"), { code: "ENOSPC" });
        const writer = new LineWriter(output, describeDropped, (text) => said.push(text));
        writer.write("a\nb");
        await until(() => said.length === 1, "the first report");
        writer.write("c");
        await new Promise(setImmediate);
        await new Promise(setImmediate);
        output.fd = file;
        writer.write("d");
        await writer.close();
        expect(readFileSync(path, "utf8")).toBe(
          "d\n3 lines were dropped: this log could not be written, or its reader is too slow\n",
        );
        expect(said).toEqual([
          "the log cannot be written (ENOSPC); its lines are lost",
          "the log is written again; 3 of its lines are lost",
        ]);
      } finally {
        closeSync(file);
        closeSync(full);
        rmSync(folder, { recursive: true });
      }
    },
  );
});

test("the log has the form `pretty` on a terminal, and `common` otherwise", () => {
  expect(chooseLogForm({ isTTY: true })).toBe("pretty");
  expect(chooseLogForm({})).toBe("common");
});
