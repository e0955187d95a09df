/**
 * `npm run bench -- overload`: offers proxies several times the requests that they can answer, and counts the answers within a
 * second. Needs Linux, root and Go.
 */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { buildGo } from "../commands.ts";
import { type Contestant, overloaded } from "../contestants.ts";
import { type Bench, defineBench, names, wholeNumber } from "../flags.ts";
import { makeDirectory, pin, Program, reasonOf, say } from "../program.ts";
import { median } from "../statistics.ts";
import { Share } from "./share.ts";

/** How clients use their connections: each request has its own, or each client keeps one for its requests. */
interface Mode {
  readonly name: string;
  /** The number of clients that keep their connections; 0 for a new connection for each request. */
  readonly clients: number;
}
const MODES: readonly Mode[] = [
  { name: "new", clients: 0 },
  { name: "kept", clients: 4000 },
];
/** Multiples of the rate that was best before the rounds; the rounds may show a better one. */
const LOADS = [1, 2, 3];
/** The share of one core that Fetchway and Go get, and that the cheaper proxies get. */
const SHARE = 0.2;
const CHEAP_SHARE = 0.06;
/** The warm-up, in which V8 compiles and nothing limits the proxy: requests per second, and seconds. */
const WARM_UP = 4000;
const WARM_UP_TIME = 8;
/** The first rate that `startRunner` tries, in requests per second, and the factor to the next rate. */
const FIRST_RATE = 900;
const STEP = 1.2;
/** The seconds of load before each measurement, in which the proxy notices the overload. */
const LEAD = 6;
/** The time in µs within which a response must come to count as `good`. */
const GOOD = 1_000_000;
/** The ports are below those from which the system takes the ports of clients. */
const FIRST_PORT = 20_000;

/** What became of the requests of a run. Times are in µs. */
interface Outcome {
  readonly answered: readonly number[] | null;
  readonly refused: readonly number[] | null;
  readonly cut: number;
  readonly unanswered: number;
  readonly lost: number;
  readonly late: number;
}

/** The figures of a run: rates per second, and times in ms. */
interface Figures {
  readonly good: number;
  readonly p50: number;
  readonly refused: number;
  readonly refusedP50: number;
  /** Requests without an answer for 10 s. */
  readonly unanswered: number;
  /** Requests that were not sent, because no client was idle. */
  readonly unsent: number;
}

interface Runner {
  readonly contestant: Contestant;
  readonly mode: Mode;
  readonly program: Program;
  capacity: number;
}

const execute = promisify(execFile);
let port = FIRST_PORT + (process.pid % 1000) * 10;

async function runFlood(
  directory: string,
  { program, mode }: Runner,
  rate: number,
  seconds: number,
  lead = LEAD,
): Promise<Figures> {
  const flood = buildGo(fileURLToPath(new URL("flood", import.meta.url)), directory);
  const settings = { Port: program.port, Path: "/get-1k", Clients: mode.clients };
  const load = { Rate: rate, Lead: lead, Seconds: seconds };
  const [file, ...args] = pin([flood, JSON.stringify({ ...settings, ...load })], "others");
  const { stdout } = await execute(file, args, { maxBuffer: 2 ** 28 });
  const outcome = JSON.parse(stdout) as Outcome;
  const answered = outcome.answered ?? [];
  const refused = outcome.refused ?? [];
  return {
    good: answered.filter((time) => time <= GOOD).length / seconds,
    p50: median(answered) / 1000,
    refused: refused.length / seconds,
    refusedP50: median(refused) / 1000,
    unanswered: outcome.unanswered / seconds,
    unsent: outcome.lost / seconds,
  };
}

/** Starts a contestant, warms it up, and finds the highest number of responses per second that come within a second. */
async function startRunner(
  contestant: Contestant,
  mode: Mode,
  target: string,
  directory: string,
): Promise<Runner> {
  const place = { port: port++, target, directory };
  const command = pin(await contestant.command(place), "proxy");
  const program = await Program.start(command, place.port, { TARGET: target });
  const runner = { contestant, mode, program, capacity: 0 };
  const share = new Share(`${contestant.name}-${mode.name}`);
  share.add(program.pid);
  await runFlood(directory, runner, WARM_UP, WARM_UP_TIME, 0);
  share.limit(contestant.role === "reference" && contestant.name !== "go" ? CHEAP_SHARE : SHARE);
  for (let rate = FIRST_RATE; rate < 1.5 * (runner.capacity || rate); rate *= STEP) {
    const { good } = await runFlood(directory, runner, rate, 2, 1);
    runner.capacity = Math.max(runner.capacity, good);
  }
  return runner;
}

const show = (value: number | undefined): string => (value ?? 0).toFixed(2);
const showTime = (value: number): string => (Number.isNaN(value) ? "–" : `${Math.round(value)} ms`);

function render(offered: number, all: readonly Figures[], capacity: number): string {
  const of = (name: keyof Figures): number => median(all.map((each) => each[name]));
  const goods = all.map(({ good }) => good / capacity).toSorted((a, b) => a - b);
  return (
    `${(offered / capacity).toFixed(1)} × the best rate: ${show(of("good") / capacity)} (${show(goods[0])} to ${show(goods.at(-1))}), ` +
    `p50 ${showTime(of("p50"))}; refused ${Math.round(of("refused"))}/s after ${showTime(of("refusedP50"))}; ` +
    `unanswered at most ${Math.round(Math.max(...all.map((each) => each.unanswered)))}/s, unsent ${Math.round(of("unsent"))}/s`
  );
}

interface Options {
  readonly contestants: readonly Contestant[];
  readonly modes: readonly Mode[];
  readonly rounds: number;
  readonly seconds: number;
}

async function runAll({ contestants, modes, rounds, seconds }: Options): Promise<void> {
  const directory = makeDirectory();
  const file = fileURLToPath(new URL("../target.ts", import.meta.url));
  const upstream = await Program.start(pin([process.execPath, file], "others"), port++);
  new Share("upstream").add(upstream.pid);
  const target = `http://127.0.0.1:${upstream.port}`;
  const runners: Runner[] = [];
  const figures = new Map<string, Figures[]>();
  try {
    for (const mode of modes) {
      for (const contestant of contestants) {
        try {
          const runner = await startRunner(contestant, mode, target, directory);
          runners.push(runner);
          say(`${mode.name}, ${contestant.title}: ${Math.round(runner.capacity)} requests/s`);
        } catch (error) {
          say(`${mode.name}, ${contestant.title}: ${reasonOf(error)}`);
        }
      }
    }
    for (let round = 0; round < rounds; round++) {
      for (const load of LOADS) {
        for (const runner of runners) {
          const key = `${runners.indexOf(runner)} ${load}`;
          const seen = await runFlood(directory, runner, load * runner.capacity, seconds);
          figures.set(key, [...(figures.get(key) ?? []), seen]);
          say(
            `round ${round + 1}, ${runner.mode.name}, ${runner.contestant.title}: ${render(load * runner.capacity, [seen], runner.capacity)}`,
          );
        }
      }
    }
    for (const [index, { contestant, mode, capacity }] of runners.entries()) {
      // The best rate is the largest median of these rounds, or the rate that was best before them.
      const all = LOADS.map((load) => figures.get(`${index} ${load}`) ?? []);
      const most = Math.max(...all.map((each) => median(each.map(({ good }) => good))));
      const best = Math.max(most, capacity);
      console.log(`\n${mode.name}, ${contestant.title}: ${Math.round(best)} requests/s`);
      for (const [n, load] of LOADS.entries()) {
        console.log(`  ${render(load * capacity, all[n] as Figures[], best)}`);
      }
    }
  } finally {
    await Promise.all(
      [...runners.map(({ program }) => program), upstream].map((each) => each.stop()),
    );
  }
}

export const overload: Bench = defineBench({
  name: "overload",
  text: "answers within a second at one to three times the capacity; needs root and Go",
  flags: {
    only: names("these contestants", overloaded),
    modes: names("new connections, or clients that keep theirs", MODES),
    rounds: wholeNumber("interleaved rounds", { usual: "10", quick: "3" }),
    seconds: wholeNumber("length of a measurement in seconds", { usual: "3", quick: "2" }),
  },
  async run({ only: contestants, modes, rounds, seconds }) {
    await runAll({ contestants, modes, rounds, seconds });
  },
});
