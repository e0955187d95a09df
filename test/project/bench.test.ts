/** The benchmarks measure and report as documented. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { hashOfCode, stampsIn, toStamp } from "../../bench/code.ts";
import { contestants } from "../../bench/contestants.ts";
import { toChart } from "../../bench/cpu/chart.ts";
import { type Summary, summarize, toOverview } from "../../bench/cpu/summary.ts";
import {
  decimal,
  defineBench,
  describeBench,
  names,
  optional,
  readFlags,
  roundFlags,
  toggle,
  wholeNumbers,
} from "../../bench/flags.ts";
import { benches } from "../../bench/main.ts";
import { baseOf, compare } from "../../bench/ratios.ts";
import { describeMachine } from "../../bench/report.ts";
import { interleave, type Measurement } from "../../bench/rounds.ts";
import { median, ratios, spread } from "../../bench/statistics.ts";
import { parsePs, parseStat, usageOf } from "../../bench/usage.ts";
import { MIB, workloads } from "../../bench/workloads.ts";

const root = join(import.meta.dirname, "../..");

describe("the flags of a benchmark", () => {
  const letters = ["a", "ab", "b"].map((name) => ({ name }));
  const flags = {
    only: names("these letters", letters),
    some: names("these letters", letters, { usual: "a", quick: "b" }),
    loads: wholeNumbers("connections", { usual: "64" }, 100),
    rates: optional(wholeNumbers("rates", {}, 100)),
    fast: toggle("does less"),
    pause: decimal("pause", { usual: "1.5" }),
    ...roundFlags({ usual: "5", quick: "3" }, { usual: "2" }),
  };

  test("each flag has its usual value, its value for --quick, or the given value", () => {
    const usual = { loads: [64], rates: undefined, fast: false, pause: 1.5, rounds: 5, seconds: 2 };
    expect(readFlags([], flags)?.values).toEqual({
      only: letters,
      some: [{ name: "a" }],
      ...usual,
    });
    const quick = { ...usual, only: letters, some: [{ name: "b" }], rounds: 3 };
    expect(readFlags(["--quick"], flags)?.values).toEqual(quick);
    const given = ["--quick", "--only", "b,a*", "--rounds", "7", "--rates", "1,100", "--fast"];
    const values = { ...quick, rounds: 7, rates: [1, 100], fast: true };
    expect(readFlags(given, flags)?.values).toEqual(values);
    expect(readFlags(["-h"], flags)).toBeUndefined();
  });

  test("a run with --rounds or --seconds counts as complete, and a run with other flags does not", () => {
    const isComplete = (...args: string[]): boolean | undefined =>
      readFlags(args, flags)?.isComplete;
    expect(isComplete()).toBe(true);
    expect(isComplete("--rounds=9", "--seconds=1")).toBe(true);
    for (const flag of ["--quick", "--only=a", "--loads=64", "--rates=1", "--fast"]) {
      expect(isComplete(flag), flag).toBe(false);
    }
  });

  test.each([
    [["--hlep"], /--hlep/],
    [["--only", "nobody"], /--only: there is no "nobody"; use a, ab, b/],
    [["--rounds", "0"], /--rounds: "0" is no whole number from 1 to 1000/],
    [["--loads", "64,x"], /--loads: "x" is no whole number from 1 to 100/],
    [["--seconds", "0.5"], /--seconds: "0.5" is no whole number from 1 to 1000/],
    [["--pause", "0"], /--pause: "0" is no number above 0/],
    [["fast"], /fast/],
  ])("the flags %j are refused with a message that says how to fix them", (args, message) => {
    expect(() => readFlags(args, flags)).toThrow(message);
  });

  test("the help text has each flag with its values, and the files that a complete run writes", () => {
    const bench = defineBench({ name: "x", text: "counts", writes: "x.md", flags, run() {} });
    const lines = describeBench(bench).split("\n");
    expect(lines[0]).toBe("Usage: npm run bench -- x [flags]");
    expect(lines).toContain("  --quick         a shorter run with the values behind quick");
    expect(lines).toContain("  --some <names>  these letters: a, ab, b (a; quick: b)");
    expect(lines).toContain("  --rounds <n>    interleaved rounds (5; quick: 3)");
    expect(lines).toContain("  --fast          does less");
    expect(lines.at(-1)).toBe("A complete run writes x.md.");
  });

  test.each(benches)("$name accepts --quick only if it has quick values", ({ flags: own }) => {
    expect(readFlags([], own)?.isComplete).toBe(true);
    const hasQuick = Object.values(own).some(({ quick }) => quick !== undefined);
    if (hasQuick) expect(readFlags(["--quick"], own)?.isComplete).toBe(false);
    else expect(() => readFlags(["--quick"], own)).toThrow(/--quick/);
  });

  test("cpu measures all contestants and workloads, and with --quick only the workloads of small requests", () => {
    const cpu = benches.find(({ name }) => name === "cpu");
    expect(readFlags([], cpu?.flags ?? {})?.values).toEqual({
      only: contestants,
      workloads,
      connections: [64],
      rounds: 5,
      seconds: 2,
    });
    const small = workloads.filter(({ name }) => name.endsWith("-1k"));
    const quick = { workloads: small, rounds: 3, seconds: 1 };
    expect(readFlags(["--quick"], cpu?.flags ?? {})?.values).toMatchObject(quick);
  });
});

describe("the figures of a run", () => {
  test("median, spread and ratios are right: a ratio compares two contestants within the same round", () => {
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

  test("the CPU time and the memory of processes are read from /proc and from ps", () => {
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
    samples: cpu.map((each) => ({
      cpu: each,
      rps: 1,
      bps: 1,
      mean: 1,
      p50: 1,
      p99: 1,
      rss: 3 * MIB,
    })),
  });

  test("a ratio is relative to the best contestant that did not fail", () => {
    const h3 = measured("h3", 30, 30);
    const failed = { ...measured("fastify", 1), failed: "status 500 instead of 200" };
    const all = [h3, measured("httpxy-server", 60, 60), measured("h3-own", 150, 150), failed];
    expect(baseOf(all, h3, "peer")?.contestant).toBe("httpxy-server");
    expect(compare(all, h3, "peer")).toEqual({ ratio: 0.5, noise: 0 });
    expect(compare(all, h3, "rival")?.ratio).toBe(0.2);
    expect(compare(all, h3, "go")).toBeUndefined();
  });

  test("a contestant is compared with the floor of its runtime, if the runtime has a floor", () => {
    const workerd = measured("workerd", 220, 220);
    const floors = [measured("floor", 60, 60), measured("workerd-floor", 200, 200)];
    expect(compare([workerd, ...floors], workerd, "floor")?.ratio).toBe(1.1);
    const deno = measured("deno", 90, 90);
    expect(compare([deno, ...floors], deno, "floor")).toBeUndefined();
  });

  const show = (results: Measurement[], rounds = 2): string =>
    toOverview(summarize({ ...machine, rounds, seconds: 1, results }), "");

  // The verdicts also count h3's own proxy, a Node peer with a goal of 0.55.
  test.each([
    [[20, 20, 20, 20, 20], "0.20 ± 0.00 (≤ 0.28)", [2, 0, 0, 0]],
    [[10, 20, 20, 40, 60], "_0.20 ± 0.10_ (≤ 0.28)", [1, 1, 0, 0]],
    [[10, 20, 35, 40, 60], "_0.35 ± 0.10_ (≤ 0.28)", [1, 0, 1, 0]],
    [[40, 40, 50, 60, 60], "**0.50 ± 0.10** (≤ 0.28)", [0, 1, 0, 1]],
    // A single round has no spread.
    [[20], "_0.20 ± ?_ (≤ 0.28)", [0, 2, 0, 0]],
  ])(
    "with goals of 0.28 and 0.55, rounds of %j give the cell: %s",
    (rounds, cell, [met, close, near, missed]) => {
      const own = measured("h3-own", 100, 100, 100, 100, 100);
      const text = show([measured("h3", ...rounds), own], rounds.length);
      expect(text).toContain(`| to the host's own, or the naive one | ${cell} |`);
      expect(text).toContain(
        `2 goals: ${met} met; ${close} met, within the noise; ${near} missed, within the noise; ${missed} missed.`,
      );
    },
  );

  test("contestants without goals have no table of ratios", () => {
    const text = show([measured("nginx", 5)], 1);
    expect(text).toContain("| nginx, one worker | 5.0 ± ? |");
    expect(text).not.toMatch(/goals/);
  });

  test("the table has a column for each number of connections, with the goals of the workload", () => {
    const results = [16, 64].flatMap((connections) => [
      { ...measured("h3", 20 + connections), connections },
      { ...measured("h3-own", 100), connections },
    ]);
    const text = show(results, 1);
    expect(text).toContain("load by  over 16, 64 connections");
    expect(text).toContain("|  | GET 1 KB × 16 | GET 1 KB × 64 |");
    expect(text).toContain("| _0.36 ± ?_ (≤ 0.28) | _0.84 ± ?_ (≤ 0.28) |");
    expect(text).toMatch(/^4 goals: /m);
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

  test("the tables of bench/README.md are those that `npm run bench -- render` makes of results.json", () => {
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

  test("the summary of a run has medians, spreads, and the reasons for failures", () => {
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
      "2 goals: 1 met; 0 met, within the noise; 1 missed, within the noise; 0 missed.",
    );
    expect(toChart(summary, "node")).toContain(">30.0</text>");
    // The spread: a line from 25 to 35, on a scale that ends at 105.
    expect(toChart(summary, "node")).toMatch(/<line x1="3\d\d\.\d" y1="\d+" x2="3\d\d\.\d"/);
    expect(toChart(summary, "node")).toContain(">Fetchway</text>");
    expect(toChart(summary, "runtimes")).not.toContain(">Fetchway</text>");
  });

  test("the tables say if the code has changed since the run", () => {
    const run = { ...machine, code: "0123456789ab", rounds: 1, seconds: 1, results: [] };
    const summary = summarize(run);
    expect(toOverview(summary, "0123456789ab")).toContain("which is the code beside this document");
    const text = toOverview(summary, "ba9876543210");
    expect(text).toContain("code `0123456789ab`: the code beside this document has changed since.");
    expect(stampsIn(text)).toEqual(["0123456789ab"]);
    expect(toStamp(hashOfCode())).toMatch(/^code `[\da-f]{12}`$/);
  });

  test("the summary of a run with one round has no spread", () => {
    const results = [measured("h3", 20), measured("h3-own", 100)];
    const text = toOverview(summarize({ ...machine, rounds: 1, seconds: 1, results }), "");
    expect(text).toContain("| 20.0 ± ? |");
    expect(text).toContain("| _0.20 ± ?_ (≤ 0.28) |");
  });
});

test("of the files in bench/, the npm package contains only the documents and charts", () => {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    files: string[];
  };
  const published = manifest.files.filter((file) => file.includes("bench"));
  expect(published.filter((file) => !/\.(?:md|svg)$/.test(file))).toEqual([]);
});
