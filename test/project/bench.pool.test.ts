/** The benchmark of the pool measures and reports the same figures as the benchmark of agentkeepalive. */
import { spawn } from "node:child_process";
import { cpus } from "node:os";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";

/** Reads the figures of the Markdown table below a heading, by the name of their row. */
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
    cwd: new URL("../..", import.meta.url),
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  const report = await text(child.stdout);
  expect(report).not.toMatch(/NaN|undefined/);
  expect(report).toContain(
    `machine with ${cpus().length} × ${cpus()[0]?.model.trim()}, whose load average was `,
  );

  const table = readTable(report, /^60 clients/);
  const numbers = (name: string): number[] => (table[name] ?? []).map(Number);
  // The counters of connections also include the same number of requests for warm-up.
  const transactions = 60 * 5;
  expect(table["transactions"]).toEqual([`${transactions}`, `${transactions}`]);
  expect(table["successful transactions"]).toEqual([`${transactions}`, `${transactions}`]);
  expect(table["failed transactions"]).toEqual(["0", "0"]);
  expect(table["availability"]).toEqual(["100.00 %", "100.00 %"]);
  expect(table["data transferred, MiB"]).toEqual(["0.29", "0.29"]);
  const [created = 0, one] = numbers("sockets created, warm-up included");
  expect(created).toBeLessThanOrEqual(50);
  expect(one).toBe(2 * transactions);
  // Kept connections are closed by their idle timeout, the others after their request.
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
    const perTransaction = of("CPU of the proxy per transaction, µs");
    // Both are rounded, the sum to 10 ms.
    expect(Math.abs(perTransaction * transactions * 1e-6 - of("CPU of the proxy, s"))).toBeLessThan(
      0.01,
    );
    for (const name of [
      "elapsed, s",
      "transactions per second",
      "throughput, MiB/s",
      "CPU of the proxy per transaction, µs",
    ]) {
      expect(of(name), name).toBeGreaterThan(0);
    }
  }

  for (const scheme of [/^HTTP, 20 requests/, /^HTTPS, 20 requests/]) {
    const rows = readTable(report, scheme);
    const column = ["min", "p50", "p95", "max"].map((name) => Number(rows[name]?.[0]));
    expect(column).toEqual(column.toSorted((a, b) => a - b));
    expect(column[0]).toBeGreaterThan(0);
    const [kept = 0, not = 0, ratio] = (rows["CPU of the proxy, µs"] ?? []).map(Number);
    expect(kept).toBeGreaterThan(0);
    expect(ratio).toBeCloseTo(not / kept, 1);
  }
}, 60_000);
