/**
 * `npm run bench:fairness`: how other clients fare beside slow ones, and beside many event streams, in the command, HAProxy and
 * nginx. It only prints, and needs about four minutes. Everything is on the loopback interface.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { get } from "node:http";
import { get as getSecurely } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { limitOfOpenFiles } from "../../runtimes/node.ts";
import { makeCertificate } from "../../test/helpers/certificate.ts";
import { number, readCommandLine, select } from "../commandline.ts";
import { type Command, hasCommand } from "../commands.ts";
import { freePort, Program, sleep } from "../program.ts";
import { usageOf } from "../usage.ts";
import type { Attack } from "./attackers.ts";
import { type Contestant, CONTESTANTS, type Place } from "./contestants.ts";

/** A script: clients of one kind hold connections, while 20 others ask. */
interface Script {
  readonly name: string;
  readonly attack: Attack;
  /** How many clients there are, with 16 384 file descriptors or more, and with fewer. */
  readonly many: number;
  readonly few: number;
  /** How many there are with `--max-sockets`, for each connection to the upstream; undefined if the script is left out. */
  readonly perSocket?: number;
}

const SCRIPTS: readonly Script[] = [
  { name: "slow-readers", attack: "readers", many: 1000, few: 600, perSocket: 2 },
  { name: "slow-uploads", attack: "uploads", many: 1000, few: 600, perSocket: 2 },
  { name: "http2-polls", attack: "polls", many: 10, few: 4 },
  { name: "event-streams", attack: "events", many: 2000, few: 800 },
];

/** The other clients, whose address no slow client has, and the milliseconds that each waits at most. */
const OTHERS = 20;
const OTHER_ADDRESS = "127.0.0.2";
const PATIENCE = 20_000;
/** Milliseconds in which the slow clients may begin, and for which they are then left alone. */
const BEGINNING = 15_000;
const SETTLING = 3000;
/** The number of file descriptors for which the larger crowds are meant. */
const MANY_DESCRIPTORS = 16_384;
const MIB = 1024 ** 2;

const HELP = `Usage: npm run bench:fairness -- [flags]

  --descriptors <n>   file descriptors of each contestant; what this shell has by default.
                      Below ${MANY_DESCRIPTORS}, the crowds are smaller: 600, 600, 4 and 800
  --max-sockets <n>   connections to the upstream, with twice as many slow readers or uploads;
                      the defaults of the contestants without it
  --scripts <names>   some of ${SCRIPTS.map(({ name }) => name).join(", ")}
  --only <names>      some of ${CONTESTANTS.map(({ name }) => name).join(", ")}`;

interface Options {
  readonly descriptors: number;
  readonly maxSockets: number | undefined;
  readonly scripts: readonly Script[];
  readonly contestants: readonly Contestant[];
}

function readFlags(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      descriptors: { type: "string" },
      "max-sockets": { type: "string" },
      scripts: { type: "string" },
      only: { type: "string" },
      help: { type: "boolean" },
    },
  });
  if (values.help === true) return undefined;
  const own = Math.min(limitOfOpenFiles() ?? MANY_DESCRIPTORS, 1_000_000);
  const given = values["max-sockets"];
  const maxSockets = given === undefined ? undefined : number("max-sockets", given, 0, 4096);
  const all = SCRIPTS.filter(({ perSocket }) => maxSockets === undefined || perSocket);
  return {
    descriptors: number("descriptors", values.descriptors, own, own),
    maxSockets,
    scripts: select("scripts", all, values.scripts),
    contestants: select("only", CONTESTANTS, values.only),
  };
}

/** What was seen of one contestant in one script. */
interface Seen {
  readonly begun: number;
  readonly ended: number;
  readonly answered: number;
  /** The statuses and errors of the others, with the number of each. */
  readonly outcomes: string;
  /** The milliseconds of the slowest of the others that was answered. */
  readonly slowest: number;
  /** The resident memory of all its processes, in bytes. */
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

async function startAttack(
  attack: Attack,
  port: number,
  count: number,
): Promise<{ child: ChildProcess; seen: { begun: number; ended: number } }> {
  const seen = { begun: 0, ended: 0 };
  const file = fileURLToPath(new URL("attackers.ts", import.meta.url));
  const child = fork(file, [attack, `${port}`, `${count}`]);
  child.on("message", (state) => Object.assign(seen, state));
  const deadline = performance.now() + BEGINNING;
  while (seen.begun < count && performance.now() < deadline) await sleep(50);
  await sleep(SETTLING);
  return { child, seen };
}

async function measure(
  { attack, many, few, perSocket = 0 }: Script,
  contestant: Contestant,
  place: Place,
): Promise<Seen> {
  const { port, descriptors, maxSockets, certificate } = place;
  const usual = descriptors < MANY_DESCRIPTORS ? few : many;
  const count = maxSockets === undefined ? usual : perSocket * maxSockets;
  const isSecure = certificate !== undefined;
  const limited: Command = ["sh", "-c", `ulimit -n ${descriptors}; exec "$@"`, "sh"];
  const command: Command = [...limited, ...contestant.command(place)];
  const program = await Program.start(command, port, {}, isSecure);
  try {
    const { child, seen } = await startAttack(attack, port, count);
    const { begun } = seen;
    const asking = Array.from({ length: OTHERS }, (_, n) => askOnce(port, isSecure, n));
    const answers = await Promise.all(asking);
    const memory = usageOf(program.pid).rss;
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

async function compare(options: Options, directory: string): Promise<void> {
  const { descriptors, maxSockets, scripts, contestants } = options;
  const certificate = await makeCertificate();
  const upstream = await Program.start(
    [process.execPath, fileURLToPath(new URL("upstream.ts", import.meta.url))],
    await freePort(),
  );
  try {
    const bound = maxSockets === undefined ? "" : `, ${maxSockets} connections to the upstream`;
    console.log(`${descriptors} file descriptors${bound}`);
    for (const script of scripts) {
      console.log(`\n${script.name}`);
      for (const contestant of contestants) {
        const { name, program } = contestant;
        const label = `  ${name.padEnd(9)}`;
        if (program !== undefined && !hasCommand(program)) {
          console.log(`${label} is not installed`);
          continue;
        }
        const folder = join(directory, `${script.name}-${name}`);
        mkdirSync(folder);
        const place: Place = {
          port: await freePort(),
          upstream: upstream.port,
          directory: folder,
          certificate: script.attack === "polls" ? certificate : undefined,
          maxSockets,
          descriptors,
        };
        try {
          console.log(`${label} ${render(await measure(script, contestant, place))}`);
        } catch (error) {
          console.log(`${label} ${(error as Error).message}`);
        }
      }
    }
  } finally {
    await upstream.stop();
  }
}

const options = readCommandLine("bench:fairness", HELP, readFlags);
if (options !== undefined) {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-fairness-"));
  try {
    await compare(options, directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
