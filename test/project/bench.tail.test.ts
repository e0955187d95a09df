/** The benchmark of latency at fixed rates: its arithmetic, its report, and its load generators. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { contestants } from "../../bench/contestants.ts";
import { hasCommand } from "../../bench/commands.ts";
import { readFlags } from "../../bench/flags.ts";
import { withNodeFlags } from "../../bench/tail/contenders.ts";
import { runPace } from "../../bench/tail/generate.ts";
import {
  answeredInTime,
  combineRounds,
  compareRounds,
  dueAt,
  type Pace,
  type PacedRound,
  percentile,
  toRound,
} from "../../bench/tail/latency.ts";
import { tail } from "../../bench/tail/tail.ts";
import {
  summarizeTail,
  type TailReport,
  type TailSummary,
  toTailDocument,
} from "../../bench/tail/tailreport.ts";
import { listen } from "../helpers/serve.ts";

const root = join(import.meta.dirname, "../..");

describe("the arithmetic of the benchmark", () => {
  test("the due time of a request depends only on its number and on the rate", () => {
    expect([0, 1, 5000, 7500].map((i) => dueAt(i, 5000))).toEqual([0, 0.2, 1000, 1500]);
  });

  test("the 99th percentile is the smallest value that at least 99 % of the values do not exceed", () => {
    const thousand = Array.from({ length: 1000 }, (_, i) => i + 1);
    expect([0.5, 0.99, 0.999, 1].map((part) => percentile(thousand, part))).toEqual([
      500, 990, 999, 1000,
    ]);
    expect([percentile([7], 0.5), percentile([7], 0.999)]).toEqual([7, 7]);
    expect(percentile([], 0.5)).toBeNaN();
  });

  /** Returns the latencies, in µs, of a server that gets 2000 requests a second, takes 0.5 ms for each, and pauses once. */
  const paused = (requests: number, from: number, pause: number): number[] =>
    Array.from({ length: requests }, (_, i) => {
      const due = dueAt(i, 2000);
      const inPause = due >= from && due < from + pause;
      return 500 + (inPause ? Math.round((from + pause - due) * 1000) : 0);
    });
  const pace = (latencies: number[]): Pace => {
    return { latencies, lateness: [10, 20, 30], hiccups: [5, 900], unanswered: 0, failure: "" };
  };

  test("a pause of 100 ms delays the 200 requests that are due during the pause", () => {
    const round = toRound(pace(paused(3000, 500, 100)), 2000, 0.12);
    // The 30 slowest of 3000 waited for at least 85 ms, and the 3 slowest for 98.5 ms.
    expect(round).toMatchObject({ p50: 0.5, p90: 0.5, p99: 85.5, p999: 99, longest: 100.5 });
    expect(round).toMatchObject({
      answered: 1,
      late: 0.03,
      hiccup: 0.9,
      cpu: 0.12,
      requests: 3000,
    });
  });

  test("a contestant keeps a rate if almost all its responses are complete when the last request is due", () => {
    expect(answeredInTime(paused(3000, 500, 100), 2000)).toBe(1);
    // 1900 requests a second are 95 % of the rate, and each further request waits longer.
    const slow = Array.from({ length: 3000 }, (_, i) => ((i + 1) / 1900 - i / 2000) * 1e6);
    expect(answeredInTime(slow, 2000)).toBe(0.95);
    const [kept, not] = [paused(3000, 500, 100), slow].map((each) =>
      toRound(pace(each), 2000, 0.1),
    );
    expect(combineRounds([not, kept, not] as PacedRound[])).toBe(
      "does not keep the rate: 95 % answered in time",
    );
    expect(combineRounds([kept, not, kept] as PacedRound[])).toMatchObject({
      p50: [0.5, expect.closeTo(9.5, 0)],
      p99: [85.5, expect.any(Number)],
      cpu: 33.3,
    });
  });
});

const STEADY: PacedRound = {
  answered: 1,
  p50: 0.2,
  p90: 0.4,
  p99: 1,
  p999: 3,
  longest: 9,
  late: 0.1,
  hiccup: 0.5,
  cpu: 0.15,
  requests: 3000,
};

function withP99(values: readonly number[], answered = 1): PacedRound[] {
  return values.map((p99) => Object.assign({}, STEADY, { p99, answered }));
}

describe("the report of the benchmark", () => {
  const report: TailReport = {
    date: "2026-11-22",
    cpu: "2 × CPU",
    generator: "wrk",
    pinned: true,
    code: "0123456789ab",
    versions: { node: "24.0.0", go: "1.26" },
    rounds: 4,
    seconds: 1.5,
    connections: 64,
    rates: [2000, 9000],
    slowest: 18_000,
    failures: { nginx: "nginx is not on the path" },
    samples: {
      2000: {
        direct: withP99([0.2, 0.2, 0.2, 0.2]),
        node: withP99([1.1, 1.1, 1.1, 1.1]),
        h3: withP99([1, 1.5, 1.3, 1.3]),
        hono: withP99([2, 2, 2, 2]),
        go: withP99([1, 1, 1, 1]),
        fastify: withP99([1.3, 1.3, 1.3, 1.3]),
        "httpxy-server": withP99([1.2, 1.2, 1.2, 1.2]),
      },
      9000: {
        node: withP99([2, 2, 2, 2]),
        hono: withP99([2, 2, 2, 2], 0.9),
        "h3-own": withP99([4, 4, 4, 4]),
        "httpxy-server": withP99([1, 1, 1, 1], 0.5),
      },
    },
  };
  const text = toTailDocument(summarizeTail(report));

  test("a ratio compares two contestants only within the same round", () => {
    // The machine is ten times slower in the second round.
    expect(compareRounds(withP99([1, 10, 1]), withP99([2, 20, 2]), "p99")).toEqual([0.5, 0]);
  });

  test.each([
    ["node:http**, p99 to Go's | 1.2 | 1.10 ± 0.00, met | – |"],
    ["node:http**, p99 to the best Node peer's | 1.0 | 0.92 ± 0.00, met | 0.50 ± 0.00, met |"],
    ["h3**, p99 to Go's | 1.2 | 1.30 ± 0.06, **missed** | – |"],
    ["h3**, p99 to the best Node peer's | 1.0 | 1.08 ± 0.05, **missed** | – |"],
    ["Hono**, p99 to Go's | 1.2 | 2.00 ± 0.00, **missed** | **missed** |"],
    [
      "Hono**, p50 to the best Node peer's | 1.0 | 1.00 ± 0.00, met, within the noise | **missed** |",
    ],
  ])("the report's table of ratios has the row: %s", (row) => {
    expect(text).toContain(`| **Fetchway, ${row}`);
  });

  test("a contestant that does not keep a rate has no latency in the report, and is in no ratio", () => {
    expect(text).toContain(
      "- httpxy server: **no figures**, does not keep the rate: 50 % answered",
    );
    expect(text).toContain("- nginx, one worker: **no figures**, nginx is not on the path");
    expect(text).toContain("Half of what the slowest contestant can: 18000 requests a second.");
    expect(text).toContain(
      "| _no proxy_ | 0.20 | 0.40 | 0.20 ± 0.00 | 3.0 | 9.0 |  | 0.10 | 0.50 |",
    );
    expect(text).not.toMatch(/NaN|undefined/);
  });

  test("the report says that the machine was busy if the timer was late in the runs without a proxy", () => {
    expect(text).not.toContain("The machine was busy");
    const direct = withP99([1, 1, 1]).map((each) => Object.assign(each, { hiccup: 7 }));
    const busy = { ...report, samples: { 2000: { ...report.samples[2000], direct } } };
    expect(toTailDocument(summarizeTail(busy))).toContain("the timer was up to 7.0 ms late");
  });

  test("bench/tail.md is written from tail.json", () => {
    const read = (name: string): string => readFileSync(join(root, "bench", name), "utf8");
    const cells = (line: string): string =>
      line
        .split("|")
        .map((cell) => cell.trim())
        .join("|")
        .replace(/-{3,}/g, "---");
    const written = new Set(read("tail.md").split("\n").map(cells));
    const summary = JSON.parse(read("tail.json")) as TailSummary;
    const lines = toTailDocument(summary)
      .split("\n")
      .filter((line) => !/^\|[-: |]+$/.test(line));
    expect(lines.map(cells).filter((line) => !written.has(line))).toEqual([]);
    expect(lines.join("\n")).not.toMatch(/NaN|undefined/);
  });
});

describe("the flags of the benchmark", () => {
  test("a run without flags measures ten contestants, and chooses its own rates", () => {
    const { values = {} } = readFlags([], tail.flags) ?? {};
    expect(values).toMatchObject({ rates: undefined, rounds: 6, seconds: 1.5, "node-flags": [] });
    expect((values["only"] as typeof contestants).map(({ name }) => name)).toEqual([
      "node",
      "srvx",
      "h3",
      "hono",
      "httpxy-server",
      "fastify",
      "go",
      "nginx",
      "bun",
      "deno",
    ]);
    const args = ["--rates", "1000,3000", "--node-flags", ";--a --b"];
    const given = { rates: [1000, 3000], "node-flags": ["", "--a --b"] };
    expect(readFlags(args, tail.flags)?.values).toMatchObject(given);
  });

  test("with --node-flags, each contestant on Node runs once for each set of flags", async () => {
    const only = contestants.filter(({ name }) => name === "h3" || name === "go" || name === "bun");
    const variants = withNodeFlags(only, ["", "--a --b=1"]);
    expect(variants.map(({ name }) => name)).toEqual(["h3", "h3 --a --b=1", "go", "bun"]);
    const place = { port: 1, target: "http://127.0.0.1:2", directory: "" };
    const command = await variants[1]?.command(place);
    expect(command).toEqual([
      process.execPath,
      "--a",
      "--b=1",
      expect.stringMatching(/contestants\/h3\.ts$/),
    ]);
  });
});

/** The first build of a Go program compiles the standard library. */
const BUILD_TIMEOUT = 180_000;

describe.runIf(hasCommand("go"))("the load generator", () => {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  afterAll(() => rmSync(directory, { recursive: true }));
  const PAUSE = 100;
  const RATE = 2000;

  /** Starts a server that blocks its thread once, for 100 ms, when it gets the 500th request. */
  async function servePausing(): Promise<{ port: number; close: () => void }> {
    let requests = 0;
    const server = createServer((_, response) => {
      if (++requests === 500) {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE);
      }
      response.end("x".repeat(1024));
    });
    const port = await listen(server);
    const close = (): void => {
      server.closeAllConnections();
      server.close();
    };
    return { port, close };
  }

  test(
    "the latency of all requests that are due during a pause of the server includes the rest of the pause",
    async () => {
      const { port, close } = await servePausing();
      const times = { lead: 0.1, seconds: 0.5, patience: 30 };
      const pace = await runPace(directory, {
        port,
        path: "/",
        connections: 16,
        rate: RATE,
        ...times,
      });
      close();
      expect([pace.latencies.length, pace.unanswered, pace.failure]).toEqual([1000, 0, ""]);
      // On a busy machine, the timer of 1 ms may fire only a few times.
      expect(pace.hiccups.length).toBeGreaterThan(0);
      // 200 requests were due in the pause, and waited until its end: half of them for 50 ms or longer.
      const waited = (ms: number): number =>
        pace.latencies.filter((each) => each >= ms * 1000).length;
      expect(waited(50)).toBeGreaterThanOrEqual(RATE * 0.05 - 2);
      expect(waited(90)).toBeGreaterThanOrEqual(RATE * 0.01 - 2);
      expect(toRound(pace, RATE, 0).p999).toBeGreaterThanOrEqual(PAUSE - 2);
    },
    BUILD_TIMEOUT,
  );

  test("a response other than 200 fails the run", async () => {
    const server = createServer((_, response) => void response.writeHead(503).end());
    const port = await listen(server);
    const settings = { port, path: "/", connections: 2, rate: 100 };
    const times = { lead: 0, seconds: 0.1, patience: 30 };
    await expect(runPace(directory, { ...settings, ...times })).rejects.toThrow(
      /a response failed: 503/,
    );
    server.closeAllConnections();
    server.close();
  });
});
