/** The benchmarks measure and report as documented. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { toChart } from "../../bench/chart.ts";
import { hashOfCode, stampsIn, toStamp } from "../../bench/code.ts";
import { contestants } from "../../bench/contestants.ts";
import { help, readFlags } from "../../bench/flags.ts";
import { baseOf, compare } from "../../bench/ratios.ts";
import { interleave, type Measurement } from "../../bench/rounds.ts";
import { describeMachine, toMarkdown } from "../../bench/report.ts";
import { median, ratios, spread } from "../../bench/statistics.ts";
import { summarize, type Summary, toOverview } from "../../bench/summary.ts";
import { parsePs, parseStat, usageOf } from "../../bench/usage.ts";
import { headSizeOf, KEY_SIZE, toFrame } from "../../bench/websockets/frames.ts";
import { type FrameHandler, FrameReader } from "../../src/websocket/frames.ts";
import { MIB, workloads } from "../../bench/workloads.ts";

const root = join(import.meta.dirname, "../..");

describe("flags", () => {
  test("a run without flags measures everything, and only such a run writes the figures of README", () => {
    const flags = readFlags([]);
    expect(flags).toMatchObject({ rounds: 5, connections: [64], complete: true });
    expect(flags?.contestants).toEqual(contestants);
    expect(flags?.workloads).toEqual(workloads);
    for (const flag of [
      "--quick",
      "--paper",
      "--only=node",
      "--workloads=sse",
      "--connections=16",
    ]) {
      expect(readFlags([flag])?.complete, flag).toBe(false);
    }
  });

  test("select contestants, workloads and rounds", () => {
    const flags = readFlags(["--only", "go,h3*", "--workloads", "sse", "--connections", "16,4096"]);
    expect(flags?.contestants.map(({ name }) => name)).toEqual(["h3", "h3-own", "go"]);
    expect(flags?.workloads.map(({ name }) => name)).toEqual(["sse"]);
    expect(flags?.connections).toEqual([16, 4096]);
    expect(readFlags(["--quick", "--rounds", "7"])).toMatchObject({ rounds: 7, seconds: 1 });
    const small = workloads.filter(({ name }) => name.endsWith("-1k"));
    const paper = { rounds: 1, seconds: 60, connections: [128], workloads: small };
    expect(readFlags(["--paper"])).toMatchObject(paper);
    expect(readFlags(["--paper", "--seconds", "5", "--workloads", "sse"])).toMatchObject({
      ...paper,
      seconds: 5,
      workloads: [{ name: "sse" }],
    });
    expect(readFlags(["--help"])).toBeUndefined();
    for (const { name } of [...contestants, ...workloads]) expect(help).toContain(name);
  });

  test.each([
    [["--hlep"], /--hlep/],
    [["--only", "nobody"], /--only: there is no "nobody"; use floor, node/],
    [["--workloads", "get-2k"], /--workloads: there is no "get-2k"; use get-1k/],
    [["--rounds", "0"], /--rounds: "0" is no whole number from 1 to/],
    [["--connections", "64,x"], /--connections: "x" is no whole number/],
    [["--quick", "--paper"], /--quick or --paper, not both/],
    [["fast"], /fast/],
  ])("%j is refused", (args, message) => {
    expect(() => readFlags(args)).toThrow(message);
  });
});

describe("figures", () => {
  test("median, spread, and the ratio of neighbouring rounds", () => {
    expect([median([3, 1, 2]), median([1, 2, 3, 4])]).toEqual([2, 2.5]);
    expect([spread([5, 5, 5]), spread([1, 5, 2, 4, 3]), spread([9, 1, 3])]).toEqual([0, 1, 2]);
    expect(spread([5])).toBeNaN();
    // In the second round the machine is three times slower, but the ratio stays the same.
    expect(ratios([10, 30, 11], [20, 60, 22])).toEqual([0.5, 0.5, 0.5]);
  });

  test("every second round runs in reverse order", async () => {
    const order: string[] = [];
    await interleave(3, ["a", "b", "c"], async (item) => void order.push(item));
    expect(order.join("")).toBe("abccbaabc");
  });

  test.each([0, 64, 125, 126, 1024, 65_535, 65_536])(
    "a message of %i bytes is one frame",
    (size) => {
      const payload = Buffer.alloc(size, "m");
      const messages: unknown[] = [];
      const handler: FrameHandler = {
        onMessage: (data) => void messages.push(data),
        onPing: () => expect.fail("a ping"),
        onPong: () => expect.fail("a pong"),
        onCloseFrame: () => expect.fail("a close frame"),
        onViolation: (_, message) => expect.fail(message),
      };
      const frame = toFrame(payload, false);
      new FrameReader(handler, 65_536).feed(frame);
      expect(messages.map((data) => Buffer.from(data as Uint8Array))).toEqual([payload]);
      // The masked frame has the key zero behind its head.
      const masked = toFrame(payload, true);
      const head = headSizeOf(masked[1] as number);
      expect(masked[1]).toBe((frame[1] as number) | 0x80);
      expect(masked.subarray(head)).toEqual(Buffer.concat([Buffer.alloc(KEY_SIZE), payload]));
    },
  );

  test("CPU and memory are read from proc and from ps", () => {
    const stat = `42 (a ) b) S 7 ${"0 ".repeat(9)}250 50 0 0 20 0 4 0 100 1000000 256 rest`;
    expect(parseStat(stat)).toMatchObject({ pid: 42, parent: 7, cpu: 3 });
    expect(parsePs(" 42 7 1024 1-02:03:04\n 43 42 2048 0:01.50\n")).toEqual([
      { pid: 42, parent: 7, rss: 1024 ** 2, cpu: 93_784 },
      { pid: 43, parent: 42, rss: 2 * 1024 ** 2, cpu: 1.5 },
    ]);
    const { cpu, rss } = usageOf(process.pid);
    expect(cpu).toBeGreaterThan(0);
    expect(rss).toBeGreaterThan(10 * 1024 ** 2);
  });

  const machine = { date: "", cpu: "", generator: "", pinned: true, code: "", versions: {} };

  const measured = (contestant: string, ...cpu: number[]): Measurement => ({
    contestant,
    workload: "get-1k",
    connections: 64,
    samples: cpu.map((each) => ({ cpu: each, rps: 1, p50: 1, p99: 1, rss: 3 * MIB })),
  });

  test("a ratio compares with the best contestant that did not fail", () => {
    const h3 = measured("h3", 30, 30);
    const failed = { ...measured("fastify", 1), failed: "status 500 instead of 200" };
    const all = [h3, measured("httpxy-server", 60, 60), measured("h3-own", 150, 150), failed];
    expect(baseOf(all, h3, "peer")?.contestant).toBe("httpxy-server");
    expect(compare(all, h3, "peer")).toEqual({ ratio: 0.5, noise: 0 });
    expect(compare(all, h3, "rival")?.ratio).toBe(0.2);
    expect(compare(all, h3, "go")).toBeUndefined();
    const text = toMarkdown({ ...machine, rounds: 2, seconds: 1, results: all });
    expect(text).toContain("@fastify/http-proxy: **no figures**, status 500 instead of 200");
    expect(text).toContain("| to the best Node peer | 0.55 | 0.50 ± 0.00 | met |");
  });

  test("Node and workerd have a floor each, and other runtimes have none", () => {
    const workerd = measured("workerd", 220, 220);
    const floors = [measured("floor", 60, 60), measured("workerd-floor", 200, 200)];
    expect(compare([workerd, ...floors], workerd, "floor")?.ratio).toBe(1.1);
    const deno = measured("deno", 90, 90);
    expect(compare([deno, ...floors], deno, "floor")).toBeUndefined();
  });

  test.each([
    [[20, 20, 20, 20, 20], "0.20 ± 0.00 | met |"],
    [[10, 20, 20, 40, 60], "0.20 ± 0.10 | met, within the noise |"],
    [[10, 20, 35, 40, 60], "0.35 ± 0.10 | **missed**, within the noise |"],
    [[40, 40, 50, 60, 60], "0.50 ± 0.10 | **missed** |"],
    // A single round has no spread.
    [[20], "0.20 ± ? | met, within the noise |"],
  ])("a goal of 0.28 and rounds of %j: %s", (rounds, verdict) => {
    const results = [measured("h3", ...rounds), measured("h3-own", 100, 100, 100, 100, 100)];
    const text = toMarkdown({ ...machine, rounds: rounds.length, seconds: 1, results });
    expect(text).toContain(`| to the host's own, or the naive one | 0.28 | ${verdict}`);
  });

  test("a base without figures has no column, and without goals there is no table of goals", () => {
    const results = [measured("node", 30), measured("floor", 60)];
    const text = toMarkdown({ ...machine, rounds: 1, seconds: 1, results });
    expect(text).toContain("|  | CPU µs | × floor | requests/s |");
    expect(text).toMatch(/Fetchway, node:http\*\* \| 30\.0 ± \? \| 0\.50 \| 1 \|/);
    const alone = toMarkdown({
      ...machine,
      rounds: 1,
      seconds: 1,
      results: [measured("nginx", 5)],
    });
    expect(alone).toContain("|  | CPU µs | requests/s |");
    expect(alone).not.toMatch(/Goals|With/);
  });

  test("throughput and mean have columns when they were measured", () => {
    const one = measured("node", 30);
    const sample = { cpu: 30, rps: 1000, bps: 1.5 * MIB, mean: 1.25, p50: 1, p99: 2, rss: 3 * MIB };
    const now = { ...one, samples: [sample] };
    const text = (result: Measurement): string =>
      toMarkdown({ ...machine, rounds: 1, seconds: 1, results: [result] });
    const columns = "| requests/s | MiB/s | mean ms | p50 ms | p99 ms | RSS MiB |";
    expect(text(now)).toContain(columns);
    expect(text(now)).toContain("| 1000 | 1.5 | 1.25 | 1.00 | 2.00 | 3 |");
    expect(text(one)).toContain("| requests/s | p50 ms | p99 ms | RSS MiB |");
  });

  test("the report names the versions of the contestants that took part", () => {
    const [floor, node, hono] = ["floor", "node", "hono"].map((name) =>
      contestants.filter((each) => each.name === name),
    );
    expect(Object.keys(describeMachine(node).versions)).toEqual(["node"]);
    const { versions } = describeMachine([...(floor ?? []), ...(hono ?? [])]);
    expect(Object.keys(versions)).toEqual(["node", "undici", "hono", "@hono/node-server"]);
    for (const version of Object.values(describeMachine().versions)) {
      expect(version).toMatch(/^\d+\.\d+/);
    }
  });

  test("the tables of bench/README.md are those of results.json; node bench/report.ts writes them again", () => {
    const file = readFileSync(join(root, "bench/results.json"), "utf8");
    const summary = JSON.parse(file) as Summary;
    const text = toOverview(summary, hashOfCode());
    const cells = (line: string): string[] => line.split("|").map((cell) => cell.trim());
    const readme = new Set(
      readFileSync(join(root, "bench/README.md"), "utf8")
        .split("\n")
        .map((line) => cells(line).join("|")),
    );
    for (const line of text.split("\n")) {
      if (!line.startsWith("| ---") && !line.includes("--:")) {
        expect(readme).toContain(cells(line).join("|"));
      }
    }
    for (const { name, title } of workloads) {
      expect(Object.keys(summary.cpuTimes[name] ?? {}).length, name).toBeGreaterThan(10);
      expect(text).toContain(` ${title} |`);
    }
    expect(text).not.toMatch(/NaN|undefined/);
  });

  test("a summary keeps the medians and spreads of a run, and the reasons of failures", () => {
    const failed = { ...measured("fastify", 1), failed: "status 500 instead of 200" };
    const results = [measured("h3", 20, 30, 40), measured("h3-own", 100, 100, 100), failed];
    const summary = summarize({ ...machine, rounds: 3, seconds: 1, results });
    expect(summary.cpuTimes).toEqual({
      "get-1k": { h3: [30, 5], "h3-own": [100, 0], fastify: "status 500 instead of 200" },
    });
    const rival = [0.3, 0.05];
    expect(summary.ratios).toEqual({ "get-1k": { h3: { peer: rival, rival } } });
    expect(summary.load).toEqual({ h3: [1, 1], "h3-own": [1, 1] });
    expect(summary.memory).toEqual({ "get-1k": { h3: 3, "h3-own": 3 } });
    const text = toOverview(summary, "");
    expect(text).toContain("| **Fetchway, h3** | 30.0 ± 17 % |");
    expect(text).toContain("| _0.30 ± 0.05_ (≤ 0.28) |");
    expect(text).toContain("@fastify/http-proxy, GET 1 KB: **no figures**, status 500 instead");
    expect(text).toContain(
      [
        "2 goals:\n",
        "- **1 met**",
        "- **0 met, within the noise**",
        "- **1 missed, within the noise**",
        "  - **Fetchway, h3**: GET 1 KB to the host's own, or the naive one",
        "- **0 missed**",
      ].join("\n"),
    );
    expect(toChart(summary, "node")).toContain(">30.0</text>");
    expect(toChart(summary, "node")).toContain(">Fetchway</text>");
    expect(toChart(summary, "runtimes")).not.toContain(">Fetchway</text>");
  });

  test("the tables say whether the code has changed since the run", () => {
    const run = { ...machine, code: "0123456789ab", rounds: 1, seconds: 1, results: [] };
    const summary = summarize(run);
    expect(toOverview(summary, "0123456789ab")).toContain("which is the code beside this document");
    const text = toOverview(summary, "ba9876543210");
    expect(text).toContain("code `0123456789ab`: the code beside this document has changed since.");
    expect(stampsIn(text)).toEqual(["0123456789ab"]);
    expect(toStamp(hashOfCode())).toMatch(/^code `[\da-f]{12}`$/);
  });

  test("a summary after one round has no spread", () => {
    const results = [measured("h3", 20), measured("h3-own", 100)];
    const text = toOverview(summarize({ ...machine, rounds: 1, seconds: 1, results }), "");
    expect(text).toContain("| 20.0 ± ? |");
    expect(text).toContain("| _0.20 ± ?_ (≤ 0.28) |");
  });
});

test("of the bench, only its documents are published", () => {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    files: string[];
  };
  const published = manifest.files.filter((file) => file.includes("bench"));
  expect(published.filter((file) => !/\.(?:md|svg)$/.test(file))).toEqual([]);
});
