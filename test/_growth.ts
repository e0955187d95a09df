/** How the time of a function grows with its input: a ratio, which no slow machine changes. */
import { parseTarget, type Upstream } from "../src/request/target.ts";
import type { HeaderList, UpstreamRequest, UpstreamResponse } from "../src/transport.ts";

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
  // A busy machine disturbs single rounds, but not all of them.
  for (let round = 0; round < ROUNDS && ratio >= LINEAR; round++) {
    shortest = Math.min(shortest, timeOf(short));
    longest = Math.min(longest, timeOf(long));
    ratio = (longest + FLOOR) / (shortest + FLOOR);
  }
  return ratio;
}

/** To refuse a text may take no longer than to take it. */
export function attempt(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return error;
  }
}

/** A text of this size that begins and ends as it says, and is full of the same. */
export function fill(size: number, before: string, filling: string, after = ""): string {
  return before + filling.repeat(Math.ceil(size / filling.length)) + after;
}

/** So many lines of fields. */
export function lines(
  size: number,
  field: (index: number) => [name: string, value: string],
): HeaderList {
  return Array.from({ length: size }, (_, index) => field(index)).flat();
}

/** Names that are all of the same length. */
export const numbered = (prefix: string, index: number): string =>
  prefix + String(index).padStart(6, "0");

/** Every text in `texts` becomes a row of its own: [before, filling, after]. */
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

/** White space and commas: what lists are made of. */
export const spaces: Texts = [
  ["a", " ", "x"],
  ["a", " \t", "x"],
  ["", ","],
  ["a", " , ", "x"],
  ["", "close "],
];
