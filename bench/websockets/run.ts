/** `npm run bench:websockets`: measures WebSockets that send messages through several proxies to an upstream that echoes them. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { on } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { toStamp } from "../code.ts";
import type { Contestant } from "../contestants.ts";
import { numbers, readCommandLine } from "../commandline.ts";
import { emphasize, judge, show } from "../goals.ts";
import { freePort, pin, Program } from "../program.ts";
import { besides, compare, type Compared, contestantOf, cpuOf, toTitle } from "../ratios.ts";
import { describeMachine, toPercent, toRow } from "../report.ts";
import { chooseNames, readRoundFlags } from "../roundflags.ts";
import { interleave, startContestant } from "../rounds.ts";
import { median, spread } from "../statistics.ts";
import { usageOf } from "../usage.ts";
import { KIB } from "../workloads.ts";
import type { LoadCommand, LoadEvent, LoadSettings } from "./load.ts";

const NAMES = ["node", "httpxy-server", "http-proxy-3", "nginx", "bun", "deno", "workerd"];
/** The names of the contestants that a quick run leaves out. */
const NOT_QUICK: ReadonlySet<string> = new Set(["bun", "deno", "workerd"]);
const SIZES: Readonly<Record<string, number>> = { "64 B": 64, "1 KB": KIB, "64 KB": 64 * KIB };
const SOCKETS = "1,64,1000";
const QUICK_SOCKETS = "1,64";
/** The messages that are on their way on each socket: several on a single one, so that the proxy always has work. */
const WINDOW: Readonly<Record<number, number>> = { 1: 16 };
/** The goal of the tunnel: CPU time of a message as a ratio to the best Node peer. */
const GOAL = 0.7;
/** Seconds of load in front of the first round, in which the engine compiles the code. */
const WARM_UP = 0.5;
/** Seconds in which the load must tell something. */
const PATIENCE = 60;

const help = `Usage: npm run bench:websockets -- [flags]

  --quick           three rounds of 0.3 s on 1 and 64 sockets, without Bun, Deno and workerd; writes no files
  --only <names>    some of ${NAMES.join(",")}
  --sizes <sizes>   some of ${Object.keys(SIZES).join(",")}
  --sockets <n,…>   ${SOCKETS} by default
  --rounds <n>      interleaved rounds, 5 by default
  --seconds <n>     length of a round, 0.7 by default

A run without --quick, --only, --sizes and --sockets writes bench/websockets.md and bench/websockets.json.`;

interface SocketSample {
  /** CPU time of the proxy's processes for one message there and back, in µs. */
  readonly cpu: number;
  /** Messages a second. */
  readonly rate: number;
}

interface SocketMeasurement extends Compared {
  readonly samples: SocketSample[];
  failed?: string;
}

/** The load generator for one contestant. */
class Load {
  readonly #child: ChildProcess;
  readonly #events: AsyncIterator<unknown[], undefined>;

  constructor(settings: LoadSettings) {
    const file = fileURLToPath(new URL("load.ts", import.meta.url));
    const [command, ...args] = pin([process.execPath, file, JSON.stringify(settings)], "others");
    this.#child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    const signal = AbortSignal.timeout(PATIENCE * 1000 * 10);
    this.#events = on(this.#child, "message", { signal, close: ["exit"] });
  }

  /** Returns what the load tells next. */
  async next(): Promise<LoadEvent> {
    const { value, done } = await this.#events.next();
    if (done === true) throw new Error("the load has ended");
    const event = value[0] as LoadEvent;
    if (typeof event === "object" && "failed" in event) throw new Error(event.failed);
    return event;
  }

  send(command: LoadCommand): void {
    this.#child.send(command);
  }

  /** Sends messages for some seconds, and measures the proxy meanwhile. */
  async run(seconds: number, proxy: Program): Promise<SocketSample> {
    this.send({ run: seconds });
    const [began, before] = [await this.#count(), usageOf(proxy.pid)];
    const [ended, after] = [await this.#count(), usageOf(proxy.pid)];
    await this.next();
    if (!proxy.alive) throw new Error(`it ended: ${proxy.output.trim().slice(-200)}`);
    const messages = ended.messages - began.messages;
    if (messages === 0) throw new Error("no message has returned");
    return {
      cpu: ((after.cpu - before.cpu) / messages) * 1e6,
      rate: (1000 * messages) / (ended.now - began.now),
    };
  }

  async #count(): Promise<{ messages: number; now: number }> {
    const event = await this.next();
    if (typeof event === "object" && "messages" in event) return event;
    throw new Error(`the load says ${JSON.stringify(event)}`);
  }

  stop(): void {
    this.#child.disconnect();
  }
}

interface Rounds {
  readonly rounds: number;
  readonly seconds: number;
}

/** Measures all proxies with one size of messages on one number of sockets. */
async function measureCell(
  programs: ReadonlyMap<string, Program>,
  size: string,
  sockets: number,
  { rounds, seconds }: Rounds,
): Promise<SocketMeasurement[]> {
  const cells = Array.from(programs, ([contestant, program]) => ({
    program,
    load: undefined as Load | undefined,
    result: { contestant, workload: size, connections: sockets, samples: [] } as SocketMeasurement,
  }));
  type Cell = (typeof cells)[number];
  const attempt = async (cell: Cell, work: () => Promise<void>): Promise<void> => {
    if (cell.result.failed !== undefined) return;
    try {
      await work();
    } catch (error) {
      cell.result.failed = (error as Error).message;
      say(`  ${cell.result.contestant} failed: ${cell.result.failed}`);
    }
  };
  for (const cell of cells) {
    await attempt(cell, async () => {
      cell.load = new Load({
        port: cell.program.port,
        sockets,
        size: SIZES[size] as number,
        window: WINDOW[sockets] ?? 1,
      });
      await cell.load.next();
      await cell.load.run(WARM_UP, cell.program);
    });
  }
  await interleave(rounds, cells, (cell) =>
    attempt(cell, async () => {
      cell.result.samples.push(await (cell.load as Load).run(seconds, cell.program));
    }),
  );
  for (const cell of cells) {
    // After millions of messages, each socket still returns every byte.
    await attempt(cell, async () => {
      cell.load?.send("check");
      await cell.load?.next();
    });
    cell.load?.stop();
  }
  return cells.map(({ result }) => result);
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

const line = (count: number): string => toRow(["---", ...Array<string>(count - 1).fill("--:")]);

/** Returns a table with a row for each contestant and a column for each size and number of sockets. */
function toTable(
  results: readonly SocketMeasurement[],
  cell: (measurement: SocketMeasurement) => string,
): string {
  const names = new Set(results.map(({ contestant }) => contestant));
  const [one] = names;
  const head = results
    .filter(({ contestant }) => contestant === one)
    .map(({ workload, connections }) => `${workload} × ${connections}`);
  const rows = Array.from(names, (name) =>
    toRow([
      toTitle(name),
      ...results
        .filter(({ contestant }) => contestant === name)
        .map((each) => (each.failed === undefined ? cell(each) : "–")),
    ]),
  );
  return [toRow(["", ...head]), line(head.length + 1), ...rows].join("\n");
}

function toGoals(results: readonly SocketMeasurement[]): string {
  const rows = results
    .filter(({ contestant }) => contestantOf(contestant)?.uses.length === 0)
    .flatMap((one) => {
      const measured = compare(results, one, "peer");
      const title = `${toTitle(one.contestant)}, ${one.workload} × ${one.connections}`;
      return measured
        ? [toRow([title, GOAL.toFixed(2), show(measured), emphasize(judge(measured, GOAL))])]
        : [];
    });
  return [toRow(["", "goal", "measured", ""]), "| --- | --: | --: | --- |", ...rows].join("\n");
}

function toMarkdown(results: readonly SocketMeasurement[], { rounds, seconds }: Rounds): string {
  const taking = Array.from(new Set(results.map(({ contestant }) => contestant)), (name) =>
    contestantOf(name),
  ).filter((each) => each !== undefined);
  const { versions, date, cpu, code, pinned } = describeMachine(taking);
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  const failures = results.flatMap(({ contestant, workload, connections, failed }) =>
    failed === undefined
      ? []
      : [`- ${toTitle(contestant)}, ${workload} × ${connections}: **no figures**, ${failed}`],
  );
  return `# WebSockets

Made by \`npm run bench:websockets\` with the ${toStamp(code)}: Node ${versions["node"]}, ${others.map(([name, version]) => `${name} ${version}`).join(", ")}; ${date}.
${cpu}; ${pinned ? "the proxy alone on its core" : "nothing pinned to a core"}; ${rounds} interleaved rounds of ${seconds} s.

## How to read it

Clients send messages through a proxy to an upstream that echoes them; "1 KB × 64" is messages of 1 KB on 64 sockets. A message
counts when it has returned, so that the proxy has carried it twice.

- **CPU µs** is the CPU time of the proxy's processes, user and system, divided by the number of messages. It is the figure to
  compare: messages a second also depend on the load and the upstream, which share the other core.
- Figures are medians of interleaved rounds, in each of which every proxy runs in turn; ± is half the distance between the
  quartiles. A ratio is the median of the ratios of neighbouring rounds. Differences below 5 % are noise.
- On a single socket, 16 messages are on their way at the same time: a read may bring several of them, which makes
  each cheaper. With more sockets, each has one message on its way, so that a proxy reads and writes each by itself.
- Before the first round and after the last one, each socket sends messages of different contents, and every byte must return.
- The load and the upstream use raw sockets and ready-made frames. No extension is negotiated.
- A small message costs the proxies on Node mostly system calls: in a profile of Fetchway, the call that writes took two thirds
  of the time. All of them make the same calls, so that their figures are close together. Large messages also cost memory.
- nginx and the proxies on Node pass bytes on (a tunnel). h3, srvx and Hono on Node use the same tunnel as node:http: their
  servers hand the socket over, and take no further part. Bun, Deno and workerd hand out messages instead of a socket, so
  that the proxy reads and writes frames (a relay; on workerd, the runtime itself relays).

## CPU of a message, µs

${toTable(results, (each) => {
  const middle = median(cpuOf(each));
  return `${middle.toFixed(1)} ± ${toPercent(spread(cpuOf(each)) / middle)}`;
})}

## The tunnel on Node as a ratio to the best Node peer

The best Node peer is the cheaper one of httpxy and http-proxy-3.

${toGoals(results)}

## Messages a second

${toTable(results, ({ samples }) => median(samples.map(({ rate }) => rate)).toFixed(0))}
${failures.length > 0 ? `\n${failures.join("\n")}\n` : ""}`;
}

/** Returns the median and the spread. */
function summarizeRounds(rounds: readonly number[]): number[] {
  return [median(rounds), spread(rounds)].map((value) => Number(value.toPrecision(4)));
}

/** Returns the medians and spreads, by the number of sockets, the size and the contestant. */
function summarize(results: readonly SocketMeasurement[]): unknown {
  return results.map((one) => {
    const { contestant, workload, connections, samples, failed } = one;
    if (failed !== undefined) return { contestant, workload, connections, failed };
    return {
      contestant,
      workload,
      connections,
      cpu: summarizeRounds(cpuOf(one)),
      rate: summarizeRounds(samples.map(({ rate }) => rate)),
    };
  });
}

interface Cells {
  readonly names: readonly string[];
  readonly sizes: readonly string[];
  readonly sockets: readonly number[];
  readonly rounds: number;
  readonly seconds: number;
  /** Whether everything is measured. */
  readonly complete: boolean;
}

function readCells(args: string[]): Cells | undefined {
  const options = readRoundFlags(args, { known: NAMES, further: ["sizes", "sockets"] });
  if (options === undefined) return undefined;
  const { quick, further, complete } = options;
  const sizes = Object.keys(SIZES);
  return {
    names: options.names ?? (quick ? NAMES.filter((name) => !NOT_QUICK.has(name)) : NAMES),
    sizes: further.sizes === undefined ? sizes : chooseNames("sizes", further.sizes, sizes),
    sockets: numbers("sockets", further.sockets ?? (quick ? QUICK_SOCKETS : SOCKETS), 10_000),
    rounds: options.rounds ?? (quick ? 3 : 5),
    seconds: options.seconds ?? (quick ? 0.3 : 0.7),
    complete,
  };
}

async function main(): Promise<void> {
  const cells = readCommandLine("bench:websockets", help, readCells);
  if (cells === undefined) return;
  const { names, sizes, sockets, rounds, seconds, complete } = cells;
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const port = await freePort();
  const echo = fileURLToPath(new URL("echo.ts", import.meta.url));
  const upstream = await Program.start(pin([process.execPath, echo], "others"), port);
  const programs = new Map<string, Program>();
  const results: SocketMeasurement[] = [];
  try {
    for (const name of names) {
      try {
        const place = { target: `http://127.0.0.1:${port}`, directory };
        programs.set(name, await startContestant(contestantOf(name) as Contestant, place));
      } catch (error) {
        say(`${name} is left out: ${(error as Error).message}`);
      }
    }
    for (const count of sockets) {
      for (const size of sizes) {
        say(`\n${size} × ${count}`);
        const some = await measureCell(programs, size, count, { rounds, seconds });
        results.push(...some);
        for (const one of besides(some, some[0] as SocketMeasurement)) {
          const { ratio = Number.NaN } = compare(some, one, "peer") ?? {};
          say(
            `  ${one.contestant.padEnd(14)} ${median(cpuOf(one)).toFixed(1).padStart(6)} µs, ${ratio.toFixed(2)} of the best peer, ${median(one.samples.map(({ rate }) => rate)).toFixed(0)}/s`,
          );
        }
      }
    }
  } finally {
    await Promise.all(Array.from(programs.values(), (program) => program.stop()));
    await upstream.stop();
  }
  console.log(toMarkdown(results, { rounds, seconds }));
  if (complete) {
    const files = ["websockets.md", "websockets.json"].map((name) =>
      fileURLToPath(new URL(`../${name}`, import.meta.url)),
    ) as [string, string];
    writeFileSync(files[0], toMarkdown(results, { rounds, seconds }));
    writeFileSync(files[1], JSON.stringify({ rounds, seconds, results: summarize(results) }));
    execFileSync(fileURLToPath(new URL("../../node_modules/.bin/oxfmt", import.meta.url)), files, {
      stdio: "ignore",
    });
  }
  if (
    results.some(
      ({ contestant, failed }) =>
        failed !== undefined && contestantOf(contestant)?.role === "fetchway",
    )
  ) {
    process.exitCode = 1;
  }
}

await main();
