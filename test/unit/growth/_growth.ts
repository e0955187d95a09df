/** Measures how the running time of a function grows with its input: a ratio, which a slow machine does not change. */
import { parseTarget, type Upstream } from "../../../src/target/target.ts";
import type { HeaderList } from "../../../src/fields/headers.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";

/** The length of the longer input, divided by that of the shorter one. */
const FACTOR = 8;
/** The number of characters or header fields in the shorter input. */
const SHORT = 2500;
/** A ratio below this one passes as linear: linear time gives about 8, quadratic time about 64. */
export const LINEAR = 24;
/**
 * Milliseconds that are added to both times of a ratio, because a time shorter than this depends more on the clock and the
 * garbage collector than on the function.
 */
const FLOOR = 0.02;
/** The time in milliseconds for which a function is called repeatedly. */
const BUDGET = 10;
const ROUNDS = 5;
/** The CPU time in microseconds that the runs take together where CPU time is measured. */
const CPU_BUDGET = 200_000;

/** Returns the shortest time of several runs, which is the least disturbed by other work of the machine. */
function timeOf(run: () => unknown): number {
  let best = Infinity;
  const begin = performance.now();
  do {
    const start = performance.now();
    run();
    best = Math.min(best, performance.now() - start);
  } while (performance.now() - begin < BUDGET);
  return best;
}

/** Returns the mean CPU time of several runs in microseconds. The system counts CPU time in steps of some milliseconds. */
function cpuTimeOf(run: () => unknown): number {
  const begin = process.cpuUsage();
  for (let runs = 1; ; runs++) {
    run();
    const { user, system } = process.cpuUsage(begin);
    if (user + system >= CPU_BUDGET) return (user + system) / runs;
  }
}

/** Prepares input of this size, and returns a function that makes one call with it. */
export type Sized = (size: number) => () => unknown;

/** Returns how many times as long a call takes with eight times the input. */
export function growthOf(make: Sized): number {
  const short = make(SHORT);
  const long = make(SHORT * FACTOR);
  let shortest = Infinity;
  let longest = Infinity;
  // A busy machine disturbs single rounds, but not all of them.
  for (let round = 0; round < ROUNDS; round++) {
    shortest = Math.min(shortest, timeOf(short));
    longest = Math.min(longest, timeOf(long));
    const ratio = (longest + FLOOR) / (shortest + FLOOR);
    if (ratio < LINEAR) return ratio;
  }
  // A very busy machine interrupts every call that takes longer than a time slice, so compare CPU times.
  return cpuTimeOf(long) / cpuTimeOf(short);
}

/** Returns the result of a call, or the error that it throws: refusing a text is measured as well as accepting it. */
export function attempt(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return error;
  }
}

/** Creates a text that begins with `before`, repeats `filling` for about `size` characters, and ends with `after`. */
export function fill(size: number, before: string, filling: string, after = ""): string {
  return before + filling.repeat(Math.ceil(size / filling.length)) + after;
}

export function lines(
  size: number,
  field: (index: number) => [name: string, value: string],
): HeaderList {
  return Array.from({ length: size }, (_, index) => field(index)).flat();
}

/** Creates a name from a prefix and a number. All names with the same prefix have the same length. */
export const numbered = (prefix: string, index: number): string =>
  prefix + String(index).padStart(6, "0");

/** Texts for `fill`, each of which becomes a separate test. */
export type Texts = readonly (readonly [before: string, filling: string, after?: string])[];

export function each(
  name: string,
  texts: Texts,
  use: (text: string) => unknown,
): [string, Sized][] {
  return texts.map(([before, filling, after]) => [
    `${name}: ${JSON.stringify(`${before}${filling}…${after ?? ""}`)}`,
    (size) => {
      const text = fill(size, before, filling, after);
      return () => use(text);
    },
  ]);
}

export const upstream: Upstream = parseTarget("http://up.test/base?q");
export const hop: UpstreamRequest = {
  upstream,
  method: "GET",
  path: "/base/x",
  headers: [],
  host: undefined,
  body: null,
  contentLength: undefined,
};
export const hopTo = (path: string, headers: HeaderList = []): UpstreamRequest => ({
  ...hop,
  path,
  headers,
});
export const replyOf = (headers: HeaderList, statusText = ""): UpstreamResponse => ({
  status: 302,
  statusText,
  headers,
  body: null,
});

/** Texts of white space and commas, the separators of lists in header fields. */
export const spaces: Texts = [
  ["a", " ", "x"],
  ["a", " \t", "x"],
  ["", ","],
  ["a", " , ", "x"],
  ["", "close "],
];
