/** `npm run bench -- dead`: what a request costs in each proxy on Node while its only upstream refuses connections. */
import { Agent } from "node:http";
import { fileURLToPath } from "node:url";
import { hashOfCode, toStamp } from "../code.ts";
import { type Contestant, contestantsOf } from "../contestants.ts";
import { COUNTER_FLAG } from "../counts/cost.ts";
import type { Watched } from "../counts/counter.ts";
import { type Bench, defineBench, names, wholeNumber } from "../flags.ts";
import { freePort, pin, Program, say, startScript } from "../program.ts";
import { toTitle } from "../ratios.ts";
import { toTable, writeBetween } from "../report.ts";
import { interleave } from "../rounds.ts";
import { median } from "../statistics.ts";
import { preciseCpuOf } from "../usage.ts";
import { ask } from "../validate.ts";
import { type Workload, workloadsOf } from "../workloads.ts";

const [GET] = workloadsOf("get-1k") as [Workload];
const CLIENTS = 64;
const WARM_UP = 8_000;
const REQUESTS = 12_000;

/**
 * The figures of one round: CPU time in µs and allocated bytes of a request, the median pause of the collections of young
 * objects in ms, and the median of the bytes that survive such a collection.
 */
interface Figures {
  readonly cpu: number;
  readonly bytes: number;
  readonly pause: number;
  readonly survived: number;
}

/** Sends requests, each of which must be answered with a server error. */
async function send(count: number, port: number, agent: Agent): Promise<void> {
  let sent = 0;
  async function runClient(): Promise<void> {
    while (sent++ < count) {
      const { status } = await ask(GET, port, agent);
      if (status < 500) throw new Error(`status ${status}, although the upstream has ended`);
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, runClient));
}

async function measureDead({ name }: Contestant): Promise<Figures> {
  const upstream = await startScript(new URL("../target.ts", import.meta.url));
  const [port, counter] = [await freePort(), await freePort()];
  const script = fileURLToPath(new URL(`../contestants/${name}.ts`, import.meta.url));
  const env = { TARGET: `http://127.0.0.1:${upstream.port}`, COUNTER: `${counter}` };
  const command = pin([process.execPath, COUNTER_FLAG, script], "proxy");
  const program = await Program.start(command, port, env);
  await upstream.stop();
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const call = async (path: string): Promise<unknown> =>
    (await fetch(`http://127.0.0.1:${counter}${path}`)).json();
  try {
    // The connections of the request that `Program.start` has sent are closed by now. Let the proxy discover that first.
    await ask(GET, port, agent);
    await send(WARM_UP, port, agent);
    await call("/watch");
    const before = preciseCpuOf(program.pid);
    await send(REQUESTS, port, agent);
    const cpu = (1000 * (preciseCpuOf(program.pid) - before)) / REQUESTS;
    const { allocated, pauses, survived } = (await call("/watched")) as Watched;
    return {
      cpu,
      bytes: allocated / REQUESTS,
      pause: median(pauses),
      survived: median(survived),
    };
  } finally {
    agent.destroy();
    await program.stop();
  }
}

const compared = contestantsOf("node", "floor", "fastify", "httpxy-server", "http-proxy-3");

export const dead: Bench = defineBench({
  name: "dead",
  text: "the cost of a request whose upstream refuses connections, about two minutes",
  writes: "a table of bench/upstreams.md",
  flags: {
    only: names("these contestants", compared),
    rounds: wholeNumber("runs of each contestant", { usual: "5", keepsComplete: true }),
  },
  async run({ only, rounds }, isComplete) {
    const found = new Map(only.map((each) => [each, [] as Figures[]]));
    await interleave(rounds, only, async (contestant) => {
      const figures = await measureDead(contestant);
      found.get(contestant)?.push(figures);
      say(`${contestant.name.padEnd(14)} ${JSON.stringify(figures)}`);
    });
    const rows = Array.from(found, ([{ name }, all]) => {
      const of = (kind: keyof Figures): number => median(all.map((each) => each[kind]));
      return [
        toTitle(name),
        of("cpu").toFixed(0),
        (of("bytes") / 1000).toFixed(1),
        (of("survived") / 1e6).toFixed(1),
        of("pause").toFixed(1),
      ];
    });
    const text = [
      `Node ${process.versions.node}, ${toStamp(hashOfCode())}; medians of ${rounds} interleaved rounds of ${REQUESTS} requests by ${CLIENTS} clients.`,
      toTable(
        ["", "CPU, µs", "allocated, kB", "survives a collection, MB", "collection, ms"],
        rows,
      ),
    ].join("\n\n");
    console.log(text);
    if (isComplete) writeBetween("upstreams.md", "dead", text);
  },
});
