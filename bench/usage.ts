/** Reads the CPU time and the memory of a process and its descendants. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

export interface Usage {
  /** CPU time of all threads, user and system, in seconds. */
  readonly cpu: number;
  /** Resident memory in bytes. */
  readonly rss: number;
}

interface Process extends Usage {
  readonly pid: number;
  readonly parent: number;
}

const linux = process.platform === "linux";
const read = (name: string): number =>
  linux ? Number(execFileSync("getconf", [name], { encoding: "utf8" })) : 1;
const ticksPerSecond = read("CLK_TCK");
const pageSize = read("PAGESIZE");

/** Returns the usage of the process `pid` and all of its descendants. */
export function usageOf(pid: number): Usage {
  const all = linux ? readProc() : readPs();
  const tree = new Set([pid]);
  // Process ids wrap around, so a child may be listed before its parent. Repeat until no process is added.
  for (let size = 0; size < tree.size;) {
    size = tree.size;
    for (const each of all) if (tree.has(each.parent)) tree.add(each.pid);
  }
  let cpu = 0;
  let rss = 0;
  for (const each of all) {
    if (!tree.has(each.pid)) continue;
    cpu += each.cpu;
    rss += each.rss;
  }
  return { cpu, rss };
}

/**
 * Returns the CPU time of all threads of a process in ms. On Linux, it is more exact than `usageOf`, whose ticks take 10 ms.
 */
export function preciseCpuOf(pid: number): number {
  if (!linux) return usageOf(pid).cpu * 1000;
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = threads.map((id) =>
    Number.parseInt(readFileSync(`/proc/${pid}/task/${id}/schedstat`, "latin1"), 10),
  );
  return nanoseconds.reduce((sum, each) => sum + each, 0) / 1e6;
}

function readProc(): Process[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        return [parseStat(readFileSync(`/proc/${name}/stat`, "latin1"))];
      } catch {
        // The process ended after its id was listed.
        return [];
      }
    });
}

/**
 * Parses /proc/<pid>/stat, see proc_pid_stat(5). The command may contain any character, but it ends at the last
 * parenthesis.
 */
export function parseStat(stat: string): Process {
  const end = stat.lastIndexOf(")");
  const fields = stat.slice(end + 2).split(" ");
  const field = (number: number): number => Number(fields[number - 3]);
  return {
    pid: Number.parseInt(stat, 10),
    parent: field(4),
    cpu: (field(14) + field(15)) / ticksPerSecond,
    rss: field(24) * pageSize,
  };
}

function readPs(): Process[] {
  const columns = ["-A", "-o", "pid=,ppid=,rss=,time="];
  return parsePs(execFileSync("ps", columns, { encoding: "utf8" }));
}

/** Parses lines of `pid ppid rss time`, with rss in KiB and time as `[[dd-]hh:]mm:ss[.cc]`. */
export function parsePs(text: string): Process[] {
  return text
    .trim()
    .split("\n")
    .map((line) => {
      const [pid, parent, rss, time = "0"] = line.trim().split(/\s+/);
      const [days, clock] = time.includes("-") ? time.split("-") : ["0", time];
      const seconds = (clock ?? "0").split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
      return {
        pid: Number(pid),
        parent: Number(parent),
        cpu: Number(days) * 86_400 + seconds,
        rss: Number(rss) * 1024,
      };
    });
}
