import { availableParallelism } from "node:os";
import { UsageError } from "../flags/read.ts";

/** Why a runtime cannot have workers, by the name of the runtime. */
const REASONS: Readonly<Record<string, string>> = {
  // Seen with Bun 1.4.5: each worker has its own listening socket (SO_REUSEPORT), and with port 0 its own port.
  Bun: "its workers do not share one listening socket, so that clients would lose connections when a worker is replaced",
  // Deno's node:cluster shares the socket of node:http, but the command's server there is Deno.serve.
  Deno: "Deno.serve takes no connections from a parent process",
};

/**
 * Returns how many workers `--workers` asks for; 1 means that there are none, and that this process serves.
 * @throws UsageError on a runtime that cannot have several
 */
export function countWorkers(workers: number | "auto"): number {
  const count = workers === "auto" ? availableParallelism() : workers;
  const runtime = Object.keys(REASONS).find((name) => name in globalThis);
  if (count === 1 || runtime === undefined) return count;
  // Bun and Deno accept `auto`, so that one command line works on all runtimes.
  if (workers === "auto") return 1;
  throw new UsageError(
    `--workers ${count} does not work on ${runtime}: ${REASONS[runtime]}; run this on Node, or use --workers 1`,
  );
}
