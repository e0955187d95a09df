/**
 * `npm run bench -- fairness`: measures how the command, HAProxy and nginx serve clients while others are slow, or hold many
 * event streams. Everything runs on the loopback interface.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { get } from "node:http";
import { get as getSecurely } from "node:https";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { limitOfOpenFiles } from "../../runtimes/node.ts";
import { makeCertificate } from "../../test/helpers/certificate.ts";
import type { Place } from "../commands.ts";
import { type Contestant, crowded } from "../contestants.ts";
import { type Bench, defineBench, names, optional, wholeNumber } from "../flags.ts";
import { makeDirectory, reasonOf, sleep, startScript } from "../program.ts";
import { startContestant } from "../rounds.ts";
import { usageOf } from "../usage.ts";
import { MIB } from "../workloads.ts";
import type { Crowd } from "./crowd.ts";

/** A script of the benchmark: clients of one kind hold connections, while 20 other clients send requests. */
interface Script {
  readonly name: string;
  readonly crowd: Crowd;
  /** The number of clients if the limit of file descriptors is 16 384 or more. */
  readonly many: number;
  /** The number of clients if the limit of file descriptors is lower. */
  readonly few: number;
  /**
   * The number of clients for each upstream connection that `--max-sockets` allows; undefined to skip this script if that flag
   * is given.
   */
  readonly perSocket?: number;
}

const SCRIPTS: readonly Script[] = [
  { name: "slow-readers", crowd: "readers", many: 1000, few: 600, perSocket: 2 },
  { name: "slow-uploads", crowd: "uploads", many: 1000, few: 600, perSocket: 2 },
  { name: "http2-polls", crowd: "polls", many: 10, few: 4 },
  { name: "event-streams", crowd: "events", many: 2000, few: 800 },
];

/** The number of clients that do not belong to the crowd. */
const OTHERS = 20;
/** The address of the other clients. No slow client has this address. */
const OTHER_ADDRESS = "127.0.0.2";
/** The milliseconds after which one of the other clients gives up. */
const PATIENCE = 20_000;
/** The milliseconds to wait at most until all clients of the crowd have begun. */
const BEGINNING = 15_000;
/** The milliseconds between the end of that wait and the first request of the other clients. */
const SETTLING = 3000;
/** If the limit of file descriptors is at least this, the larger crowds (`many`) are used. */
const MANY_DESCRIPTORS = 16_384;

/** The results of one contestant in one script. */
interface Seen {
  readonly begun: number;
  readonly ended: number;
  readonly answered: number;
  /** The statuses and errors that the other clients got, with the number of each. */
  readonly outcomes: string;
  /** The longest response time of the other clients, in milliseconds. */
  readonly slowest: number;
  /** The resident memory of all processes of the contestant, in bytes. */
  readonly memory: number;
}

interface Answer {
  readonly outcome: string;
  readonly took: number;
}

function askOnce(port: number, isSecure: boolean, n: number): Promise<Answer> {
  const begin = performance.now();
  return new Promise((resolve) => {
    const end = (outcome: string): void => resolve({ outcome, took: performance.now() - begin });
    const options = {
      host: "127.0.0.1",
      port,
      path: `/small?${n}`,
      agent: false,
      localAddress: OTHER_ADDRESS,
      rejectUnauthorized: false,
    };
    const request = (isSecure ? getSecurely : get)(options, (response) => {
      response.on("error", () => end("cut"));
      response.resume().on("end", () => end(`${response.statusCode}`));
    });
    request.on("error", (error: NodeJS.ErrnoException) => end(error.code ?? "error"));
    request.setTimeout(PATIENCE, () => {
      end("timeout");
      request.destroy();
    });
  });
}

async function startCrowd(
  crowd: Crowd,
  port: number,
  count: number,
): Promise<{ child: ChildProcess; seen: { begun: number; ended: number } }> {
  const seen = { begun: 0, ended: 0 };
  const file = fileURLToPath(new URL("crowd.ts", import.meta.url));
  const child = fork(file, [crowd, `${port}`, `${count}`]);
  child.on("message", (state) => Object.assign(seen, state));
  const deadline = performance.now() + BEGINNING;
  while (seen.begun < count && performance.now() < deadline) await sleep(50);
  await sleep(SETTLING);
  return { child, seen };
}

async function runScript(
  { crowd, many, few, perSocket = 0 }: Script,
  contestant: Contestant,
  place: Omit<Place, "port">,
): Promise<Seen> {
  const { descriptors = 0, maxSockets, tls } = place;
  const usual = descriptors < MANY_DESCRIPTORS ? few : many;
  const count = maxSockets === undefined ? usual : perSocket * maxSockets;
  const program = await startContestant(contestant, place, "all");
  const { port, pid } = program;
  try {
    const { child, seen } = await startCrowd(crowd, port, count);
    const { begun } = seen;
    const asking = Array.from({ length: OTHERS }, (_, n) => askOnce(port, tls !== undefined, n));
    const answers = await Promise.all(asking);
    const memory = usageOf(pid).rss;
    const { ended } = seen;
    child.disconnect();
    if (child.exitCode === null) await once(child, "exit");
    const good = answers.filter(({ outcome }) => outcome === "200");
    const groups = Object.entries(Object.groupBy(answers, ({ outcome }) => outcome));
    return {
      begun,
      ended,
      answered: good.length,
      outcomes: groups.map(([outcome, all = []]) => `${all.length} × ${outcome}`).join(", "),
      slowest: Math.max(...good.map(({ took }) => took)),
      memory,
    };
  } finally {
    await program.stop();
  }
}

function render({ begun, ended, answered, outcomes, slowest, memory }: Seen): string {
  const time = answered === 0 ? "–" : `${Math.round(slowest)} ms`;
  const others = answered === OTHERS ? "" : ` (${outcomes})`;
  const gone = ended === 0 ? "" : `, of which ${ended} have ended`;
  return (
    `${answered} of ${OTHERS} others answered${others}, slowest ${time}; ` +
    `${Math.round(memory / MIB)} MiB; ${begun} held${gone}`
  );
}

interface Options {
  readonly descriptors: number;
  readonly maxSockets: number | undefined;
  readonly scripts: readonly Script[];
  readonly contestants: readonly Contestant[];
}

async function runAll({ descriptors, maxSockets, scripts, contestants }: Options): Promise<void> {
  const directory = makeDirectory();
  const certificate = join(directory, "certificate.pem");
  const { cert, key } = await makeCertificate();
  writeFileSync(certificate, `${key}\n${cert}`);
  const upstream = await startScript(new URL("upstream.ts", import.meta.url), { pins: "all" });
  const target = `http://127.0.0.1:${upstream.port}`;
  try {
    const bound = maxSockets === undefined ? "" : `, ${maxSockets} connections to the upstream`;
    console.log(`${descriptors} file descriptors${bound}`);
    for (const script of scripts) {
      console.log(`\n${script.name}`);
      const tls = script.crowd === "polls" ? { certificate, serves: true } : undefined;
      for (const contestant of contestants) {
        const place = { target, directory, tls, maxSockets, descriptors };
        const line = await runScript(script, contestant, place).then(render, reasonOf);
        console.log(`  ${contestant.name.padEnd(9)} ${line}`);
      }
    }
  } finally {
    await upstream.stop();
  }
}

/** The limit of file descriptors that this process has inherited. */
const OWN = Math.min(limitOfOpenFiles() ?? MANY_DESCRIPTORS, 1_000_000);

export const fairness: Bench = defineBench({
  name: "fairness",
  text: "other clients beside slow ones, in the command, HAProxy and nginx, about four minutes",
  flags: {
    only: names("these contestants", crowded),
    scripts: names("these scripts", SCRIPTS),
    descriptors: wholeNumber(
      `file descriptors of each contestant; below ${MANY_DESCRIPTORS}, the crowds are smaller`,
      { usual: `${OWN}` },
      OWN,
    ),
    "max-sockets": optional(
      wholeNumber(
        "connections to the upstream, with twice as many slow readers or uploads; without the flag, the contestants' defaults",
        {},
        4096,
      ),
    ),
  },
  async run({ only: contestants, scripts, descriptors, ...values }) {
    const maxSockets = values["max-sockets"];
    const some = scripts.filter(({ perSocket }) => maxSockets === undefined || perSocket);
    await runAll({ descriptors, maxSockets, scripts: some, contestants });
  },
});
