/** How the time of a function grows with its input: a ratio, which no slow machine changes. */

/** By how much the input grows. */
const FACTOR = 8;
/** Characters, or fields, of the shorter input. */
const SHORT = 2500;
/** Linear time gives a ratio near 8, quadratic time one near 64. */
export const LINEAR = 24;
/** Milliseconds that any call may take: below, the clock and the collector say more than the function. */
const FLOOR = 0.02;
/** Milliseconds in which a function is called again and again. */
const BUDGET = 10;
const ROUNDS = 5;

/** The shortest of several runs: only the function itself is in all of them. */
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

/** A call with input of this size. */
export type Sized = (size: number) => () => unknown;

/** How many times as long a call takes with eight times the input. */
export function growthOf(make: Sized): number {
  const short = make(SHORT);
  const long = make(SHORT * FACTOR);
  let shortest = Infinity;
  let longest = Infinity;
  let ratio = Infinity;
  // A machine that is busy elsewhere spoils a round, never all of them.
  for (let round = 0; round < ROUNDS && ratio >= LINEAR; round++) {
    shortest = Math.min(shortest, timeOf(short));
    longest = Math.min(longest, timeOf(long));
    ratio = (longest + FLOOR) / (shortest + FLOOR);
  }
  return ratio;
}

/** The regular expressions that a source is written with. The code is as esbuild prints it without comments, types and templates. */
export function literalsIn(code: string): RegExp[] {
  const string = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/;
  const regex = /(?<=[=(,:[!&|?{};]|return)\/((?:[^\\/[\n]|\\.|\[(?:[^\\\]\n]|\\.)*\])+)\/([a-z]*)/;
  const found = code.matchAll(new RegExp(`${string.source}|${regex.source}`, "g"));
  return Array.from(found)
    .filter(([, source]) => source !== undefined)
    .map(([, source = "", flags]) => new RegExp(source, flags));
}
