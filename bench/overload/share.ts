/** Limits a contestant to a share of a core, so that a load generator on another core can offer several times its capacity. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The length of a period in microseconds. A contestant gets its share in each period, so it never pauses for longer. */
const PERIOD = 20_000;

/** A group of processes with a limit on their CPU time, in version 1 or 2 of Linux's control groups. Needs root. */
export class Share {
  readonly #folder: string;
  readonly #isOld: boolean;

  constructor(name: string) {
    const old = "/sys/fs/cgroup/cpu";
    this.#isOld = existsSync(old);
    this.#folder = join(
      this.#isOld ? old : "/sys/fs/cgroup",
      `fetchway-bench-${name}-${process.pid}`,
    );
    mkdirSync(this.#folder);
    // Other programs of the machine get little CPU time beside the group.
    const [file, weight] = this.#isOld ? ["cpu.shares", "200000"] : ["cpu.weight", "10000"];
    writeFileSync(join(this.#folder, file), weight);
    process.on("exit", () => {
      try {
        rmdirSync(this.#folder);
      } catch {
        // A process of the group has not ended yet.
      }
    });
  }

  /** Adds a process and its children. */
  add(pid: number): void {
    writeFileSync(join(this.#folder, "cgroup.procs"), `${pid}`);
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1");
    for (const child of children.split(" ").filter(Boolean)) this.add(Number(child));
  }

  /** @param share the share of one core; 1 for no limit */
  limit(share: number): void {
    const quota = share === 1 ? undefined : Math.round(PERIOD * share);
    if (this.#isOld) {
      writeFileSync(join(this.#folder, "cpu.cfs_period_us"), `${PERIOD}`);
      writeFileSync(join(this.#folder, "cpu.cfs_quota_us"), `${quota ?? -1}`);
    } else writeFileSync(join(this.#folder, "cpu.max"), `${quota ?? "max"} ${PERIOD}`);
  }
}
