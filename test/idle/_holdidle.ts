/** Opens many idle connections to the command, and measures whether other clients are still served. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, get, type IncomingMessage } from "node:http";
import { fileURLToPath } from "node:url";
import { listen } from "../helpers/serve.ts";
import { patience, settled, until } from "../helpers/wait.ts";

const command = new URL("../../command/main.ts", import.meta.url);
const holder = new URL("_holder.ts", import.meta.url);

/** The measurements of a flood. */
export interface Flooded {
  /** The number of connections that the clients opened. */
  readonly opened: number;
  /** The number of these connections that the server closed. */
  readonly closed: number;
  /** The number of open file descriptors of the server. */
  readonly descriptors: number;
  /** The growth of the server's memory in bytes for each connection that it kept. */
  readonly bytesEach: number;
  /** The time in milliseconds that the slowest request during or after the flood took. */
  readonly slowest: number;
  /** The statuses of the requests during and after the flood. */
  readonly statuses: readonly number[];
}

/** The maximum number of connections of one client process, below the usual limit of file descriptors. */
const PER_PROCESS = 9_000;
/** The number of requests, each on a new connection, after all idle connections are open. */
const REQUESTS = 50;

/**
 * Floods the command with idle connections, and measures requests of other clients.
 * @param count the number of connections
 * @param flags the flags of the command
 * @param text the bytes that each connection sends
 */
export async function holdIdle(
  count: number,
  flags: readonly string[],
  text: string,
): Promise<Flooded> {
  const upstream = createServer((_, res) => res.end("answered"));
  const target = `http://127.0.0.1:${await listen(upstream)}`;
  const proxy = fork(fileURLToPath(command), [target, "--port", "0", ...flags], { silent: true });
  const clients: ChildProcess[] = [];
  try {
    let printed = "";
    proxy.stdout?.on("data", (data: Buffer) => (printed += data.toString()));
    await until(() => printed.includes("listens on"), "the command");
    const origin = /http:\S+/.exec(printed)?.[0] as string;
    const { pid } = proxy;
    const before = memoryOf(pid);
    const seen = new Map<ChildProcess, { opened: number; closed: number }>();
    for (let n = 0; n < count; n += PER_PROCESS) {
      const size = Math.min(PER_PROCESS, count - n);
      const args = [text, new URL(origin).port, String(size), String(n / 1000)];
      const client = fork(fileURLToPath(holder), args);
      client.on("message", (state) =>
        seen.set(client, state as { opened: number; closed: number }),
      );
      clients.push(client);
    }
    const sum = (name: "opened" | "closed"): number =>
      Array.from(seen.values()).reduce((total, state) => total + state[name], 0);

    const statuses: number[] = [];
    let slowest = 0;
    const ask = async (): Promise<void> => {
      const begin = performance.now();
      const [response] = (await once(get(origin, { agent: false }), "response")) as [
        IncomingMessage,
      ];
      await once(response.resume(), "end");
      statuses.push(response.statusCode ?? 0);
      slowest = Math.max(slowest, performance.now() - begin);
    };
    while (sum("opened") < count) await ask();
    for (let n = 0; n < REQUESTS; n++) await ask();
    // The holders report every 100 ms, and may be stalled.
    const closed = await settled(() => sum("closed"), patience, 2000);
    const kept = count - closed;
    return {
      opened: sum("opened"),
      closed,
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      bytesEach: (memoryOf(pid) - before) / kept,
      slowest,
      statuses,
    };
  } finally {
    for (const client of clients) if (client.connected) client.disconnect();
    for (const client of clients) if (client.exitCode === null) await once(client, "exit");
    proxy.kill("SIGKILL");
    upstream.close().closeAllConnections();
  }
}

/** Returns the resident memory of a process in bytes. */
function memoryOf(pid: number | undefined): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}
