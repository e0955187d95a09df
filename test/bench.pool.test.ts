/** The bench of the pool measures what agentkeepalive's does, and reports all that it does. */
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";

/** The figures of a Markdown table by the name of their row, below a heading. */
function readTable(report: string, heading: RegExp): Record<string, string[]> {
  const section = report.split(/^## /m).find((each) => heading.test(each)) ?? "";
  const rows = section.matchAll(/^\| (.*?) +\| (.*) \|$/gm);
  return Object.fromEntries(
    Array.from(rows, ([, name = "", cells = ""]) => [name, cells.split("|").map((c) => c.trim())]),
  );
}

test("every row has figures, and they are consistent", async () => {
  const args = ["bench/pool.ts", "--requests", "5", "--sequence", "20"];
  const child = spawn(process.execPath, args, {
    cwd: new URL("..", import.meta.url),
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  const report = await text(child.stdout);
  expect(report).not.toMatch(/NaN|undefined/);

  const table = readTable(report, /^60 clients/);
  const numbers = (name: string): number[] => (table[name] ?? []).map(Number);
  // As many again to warm up.
  const transactions = 60 * 5;
  expect(table["transactions"]).toEqual([`${transactions}`, `${transactions}`]);
  expect(table["failed transactions"]).toEqual(["0", "0"]);
  expect(table["data transferred, MiB"]).toEqual(["0.29", "0.29"]);
  const [created = 0, one] = numbers("sockets created, warm-up included");
  expect(created).toBeLessThanOrEqual(50);
  expect(one).toBe(2 * transactions);
  // Kept ones end when they have been idle for long enough, others with their request.
  expect(numbers("sockets closed")).toEqual([created, one]);
  expect(numbers("of these by timeout")).toEqual([created, 0]);
  expect(table["at rest: in use, free, waiting"]).toEqual(["0, 0, 0", "0, 0, 0"]);
  for (const at of [0, 1]) {
    const of = (name: string): number => numbers(name)[at] ?? Number.NaN;
    expect(of("shortest")).toBeGreaterThanOrEqual(4);
    expect(of("longest")).toBeGreaterThanOrEqual(of("p99"));
    expect(of("p99")).toBeGreaterThanOrEqual(of("p50"));
    expect(of("p50")).toBeGreaterThanOrEqual(of("shortest"));
    expect(of("concurrency")).toBeLessThanOrEqual(60);
    for (const name of ["elapsed, s", "transactions per second", "throughput, MiB/s"]) {
      expect(of(name), name).toBeGreaterThan(0);
    }
  }

  for (const scheme of [/^HTTP, 20 requests/, /^HTTPS, 20 requests/]) {
    const rows = readTable(report, scheme);
    const column = ["min", "p50", "p95", "max"].map((name) => Number(rows[name]?.[0]));
    expect(column).toEqual(column.toSorted((a, b) => a - b));
    expect(column[0]).toBeGreaterThan(0);
  }
}, 60_000);
