/**
 * `npm run bench -- upstreams`: compares the effect on clients when one of three upstreams fails, through Fetchway on Node
 * and through nginx.
 */
import { Agent, get } from "node:http";
import { toStamp } from "../code.ts";
import { ATTEMPT_TIMEOUT } from "../commands.ts";
import { balancing, type Contestant } from "../contestants.ts";
import { type Bench, defineBench, names, wholeNumber } from "../flags.ts";
import { makeDirectory, type Program, reasonOf, say, startScript } from "../program.ts";
import { describeMachine, listVersions, toTable, writeBetween } from "../report.ts";
import { startContestant } from "../rounds.ts";
import { median } from "../statistics.ts";
import { type Fault, FAULTS } from "./faulty.ts";

const UPSTREAMS = 3;
const CLIENTS = 16;
/** The numbers of requests before and after the fault. During the last `LAST` of these, the proxy has detected the fault. */
const BEFORE = 1_000;
const AFTER = 5_000;
const LAST = 2_000;

/** The effect of one fault on the clients. */
interface Figures {
  readonly failed: number;
  readonly perSecond: number;
  readonly p99: number;
  readonly recovery: number;
}

/** Sends a request, and returns the status; 0 if there is no complete response. */
function ask(url: string, agent: Agent): Promise<number> {
  return new Promise((resolve) => {
    get(url, { agent }, (response) => {
      response.on("end", () => resolve(response.statusCode ?? 0)).on("error", () => resolve(0));
      response.resume();
    }).on("error", () => resolve(0));
  });
}

/** Sends requests through a proxy, and makes the first upstream fail after some of them. */
async function sendThrough(
  { port }: Program,
  [failing]: readonly string[],
  fault: Fault,
): Promise<Figures> {
  const url = `http://127.0.0.1:${port}`;
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const results: { status: number; took: number; at: number }[] = [];
  let sent = 0;
  let faultAt = 0;
  async function runClient(): Promise<void> {
    while (sent < BEFORE + AFTER) {
      const n = sent++;
      if (n === BEFORE) {
        void ask(`${failing}/fault/${fault}`, new Agent());
        faultAt = performance.now();
      }
      const begun = performance.now();
      const status = await ask(url, agent);
      const at = performance.now();
      results[n] = { status, took: at - begun, at };
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, runClient));
  agent.destroy();
  const after = results.slice(BEFORE);
  const last = after.slice(-LAST);
  const sorted = last.map(({ took }) => took).toSorted((a, b) => a - b);
  const bad = after.filter(({ status, took }) => status !== 200 || took >= ATTEMPT_TIMEOUT);
  return {
    failed: after.filter(({ status }) => status !== 200).length,
    perSecond: (1_000 * last.length) / ((last.at(-1)?.at ?? 0) - (last[0]?.at ?? 0)),
    p99: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
    recovery: Math.max(0, ...bad.map(({ at }) => at - faultAt)),
  };
}

async function measureFault(
  contestant: Contestant,
  fault: Fault,
  directory: string,
): Promise<Figures> {
  const script = new URL("faulty.ts", import.meta.url);
  const started = Array.from({ length: UPSTREAMS }, () => startScript(script, { pins: "all" }));
  const programs = await Promise.all(started);
  try {
    const targets = programs.map(({ port }) => `http://127.0.0.1:${port}`);
    const [target = ""] = targets;
    const proxy = await startContestant(contestant, { target, targets, directory }, "all");
    programs.push(proxy);
    return await sendThrough(proxy, targets, fault);
  } finally {
    await Promise.all(programs.map((program) => program.stop()));
  }
}

/** Returns the medians of the rounds, and the sum of their failures. */
function combine(rounds: readonly Figures[]): Figures {
  return {
    failed: rounds.reduce((sum, { failed }) => sum + failed, 0),
    perSecond: median(rounds.map(({ perSecond }) => perSecond)),
    p99: median(rounds.map(({ p99 }) => p99)),
    recovery: median(rounds.map(({ recovery }) => recovery)),
  };
}

async function measureFaults(
  contestants: readonly Contestant[],
  faults: readonly Fault[],
  rounds: number,
): Promise<string[][]> {
  const directory = makeDirectory();
  const rows: string[][] = [];
  for (const fault of faults) {
    const found = new Map(contestants.map((contestant) => [contestant, [] as Figures[]]));
    for (let round = 0; round < rounds; round++) {
      for (const [contestant, figures] of found) {
        try {
          figures.push(await measureFault(contestant, fault, directory));
        } catch (error) {
          found.delete(contestant);
          say(`${contestant.name}: ${reasonOf(error)}`);
        }
      }
    }
    for (const [{ name }, figures] of found) {
      const { failed, perSecond, p99, recovery } = combine(figures);
      const cells = [`${failed}`, perSecond.toFixed(0), p99.toFixed(1), recovery.toFixed(0)];
      rows.push([fault, name, ...cells]);
      say(rows.at(-1)?.join(" | ") ?? "");
    }
  }
  return rows;
}

function toMarkdown(rows: readonly (readonly string[])[], rounds: number): string {
  const machine = describeMachine(balancing);
  const head = ["fault", "proxy", "failed", "per second", "p99, ms", "recovery, ms"];
  return [
    `${listVersions(machine)}, ${toStamp(machine.code)}; ${machine.date}, ${machine.cpu}; ${rounds} rounds.`,
    toTable(head, rows, 2),
  ].join("\n\n");
}

const faultsByName = FAULTS.map((name) => ({ name }));

export const upstreams: Bench = defineBench({
  name: "upstreams",
  text: "what clients see of one failing upstream of three, beside nginx, about two minutes",
  writes: "the figures of bench/upstreams.md",
  flags: {
    only: names("these contestants", balancing),
    faults: names("these faults", faultsByName),
    rounds: wholeNumber("runs of each contestant with each fault", {
      usual: "3",
      keepsComplete: true,
    }),
  },
  async run({ only, faults, rounds }, isComplete) {
    const rows = await measureFaults(
      only,
      faults.map(({ name }) => name),
      rounds,
    );
    const text = toMarkdown(rows, rounds);
    console.log(text);
    if (isComplete) writeBetween("upstreams.md", "figures", text);
  },
});
