/** Counters of the last minute. Their memory does not depend on the number of requests. */

/** The number of seconds that are counted. */
export const RECENT_SECONDS = 60;

/** The number of buckets in an octave, so that the width of a bucket is about 4 % of its value. */
const STEPS = 16;
/** The lowest bucket has the times up to about 1/16 ms, which is 2 to the power of this number. */
const LOWEST = -4;
const OCTAVES = 24;
const FINE = STEPS * OCTAVES;

function toBucket(milliseconds: number): number {
  const bucket = Math.floor((Math.log2(milliseconds) - LOWEST) * STEPS);
  return bucket > 0 ? Math.min(bucket, FINE - 1) : 0;
}

/** Returns the upper bound of a bucket in milliseconds. */
function boundOf(bucket: number): number {
  return 2 ** ((bucket + 1) / STEPS + LOWEST);
}

/** Counters of the last minute, one set for each second. */
export class Recent {
  // Doubles are used because integers of 32 bits wrap at 2^32.
  readonly #slots: readonly Float64Array[];
  #second = 0;
  readonly sum: Float64Array;

  constructor(size: number) {
    this.#slots = Array.from({ length: RECENT_SECONDS }, () => new Float64Array(size));
    this.sum = new Float64Array(size);
  }

  add(second: number, index: number, amount = 1): void {
    this.advance(second);
    const slot = this.#slots[second % RECENT_SECONDS] as Float64Array;
    slot[index] = (slot[index] as number) + amount;
    this.sum[index] = (this.sum[index] as number) + amount;
  }

  /** Drops the counts of the seconds that are a minute or more before `second`. */
  advance(second: number): void {
    const from = Math.max(this.#second + 1, second - RECENT_SECONDS + 1);
    for (let each = from; each <= second; each++) {
      const slot = this.#slots[each % RECENT_SECONDS] as Float64Array;
      for (let i = 0; i < slot.length; i++)
        this.sum[i] = (this.sum[i] as number) - (slot[i] as number);
      slot.fill(0);
    }
    if (second > this.#second) this.#second = second;
  }

  /** Returns the values of one counter in each second of the minute up to `second`, oldest first. */
  history(second: number, index: number): number[] {
    this.advance(second);
    return Array.from(
      { length: RECENT_SECONDS },
      (_, i) => (this.#slots[(second + 1 + i) % RECENT_SECONDS] as Float64Array)[index] as number,
    );
  }
}

/**
 * The percentiles of the latencies, in milliseconds. `max` is exact to the microsecond; the others are estimates from the
 * buckets, with three significant digits.
 */
export type Percentiles = Readonly<Record<"p50" | "p90" | "p99" | "max", number>>;

/** The latencies of the last minute, in buckets, and the longest one. */
export class Latencies {
  readonly #recent = new Recent(FINE);
  /** The longest latency of each second, with that second. */
  readonly #longest: { second: number; milliseconds: number }[] = [];

  add(second: number, milliseconds: number): void {
    this.#recent.add(second, toBucket(milliseconds));
    this.addLongest(second, milliseconds);
  }

  /** Adds `count` latencies to a bucket. Both numbers come from `counts` of another process. */
  addTo(second: number, bucket: number, count: number): void {
    this.#recent.add(second, bucket, count);
  }

  /** Notes a latency, which may be the longest one of its second. */
  addLongest(second: number, milliseconds: number): void {
    const slot = (this.#longest[second % RECENT_SECONDS] ??= { second, milliseconds: 0 });
    if (slot.second === second) slot.milliseconds = Math.max(slot.milliseconds, milliseconds);
    else Object.assign(slot, { second, milliseconds });
  }

  /** Returns the longest latency of the minute up to a second; 0 if there was no request. */
  longest(second: number): number {
    const recent = this.#longest.filter((slot) => slot.second > second - RECENT_SECONDS);
    return Math.max(0, ...recent.map(({ milliseconds }) => milliseconds));
  }

  /** Returns the buckets that are not empty: `[bucket, count]`. */
  counts(): [bucket: number, count: number][] {
    return Array.from(this.#recent.sum, (count, bucket): [number, number] => [
      bucket,
      count,
    ]).filter(isFilled);
  }

  /** Returns the percentiles; undefined if there was no request. */
  percentiles(second: number): Percentiles | undefined {
    this.#recent.advance(second);
    const { sum } = this.#recent;
    const total = sumOf(sum);
    if (total === 0) return undefined;
    const max = this.longest(second);
    // The latencies in a bucket are treated as evenly distributed between its bounds.
    const at = (share: number): number => {
      let left = Math.ceil(total * share);
      let bucket = 0;
      while (bucket < FINE - 1 && left > (sum[bucket] as number)) left -= sum[bucket++] as number;
      const below = bucket === 0 ? 0 : boundOf(bucket - 1);
      const above = Math.min(boundOf(bucket), max);
      return roundToThree(below + ((above - below) * left) / (sum[bucket] as number));
    };
    return { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: Math.round(max * 1000) / 1000 };
  }

  /**
   * Returns buckets of half an octave, from the first to the last one that is not empty: `[upper bound in milliseconds,
   * requests]`.
   */
  bars(second: number): [below: number, requests: number][] {
    this.#recent.advance(second);
    const { sum } = this.#recent;
    const bars: [number, number][] = [];
    const width = STEPS / 2;
    for (let first = 0; first < FINE; first += width) {
      bars.push([
        roundToThree(boundOf(first + width - 1)),
        sumOf(sum.subarray(first, first + width)),
      ]);
    }
    const start = bars.findIndex(isFilled);
    return start === -1 ? [] : bars.slice(start, bars.findLastIndex(isFilled) + 1);
  }
}

function isFilled([, count]: readonly [number, number]): boolean {
  return count > 0;
}

export function sumOf(numbers: Iterable<number>): number {
  let sum = 0;
  for (const number of numbers) sum += number;
  return sum;
}

/** Rounds to three significant digits. */
export function roundToThree(number: number): number {
  return Number(number.toPrecision(3));
}
