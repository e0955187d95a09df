/** Functions that wait for a condition, so that tests need not sleep for a fixed time. */

/** The default time limit in milliseconds, long enough for a loaded machine. Only a failing test waits this long. */
export const patience: number = 30_000;

/** Returns the longest time limit in milliseconds that `within` and `until` apply. */
let longest = (): number => Infinity;

/** Makes `within` and `until` shorten all longer time limits to the one that `limit` returns. */
export function shortenTo(limit: () => number): void {
  longest = limit;
}

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Rejects with a message that contains `what` when `promise` does not settle in time. */
export async function within<T>(
  promise: Promise<T>,
  what: string,
  limit: number = patience,
): Promise<T> {
  const shorter = Math.min(limit, longest());
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${shorter} ms`)), shorter);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Polls until `condition` holds. */
export async function until(
  condition: () => boolean,
  what: string,
  limit: number = patience,
): Promise<void> {
  const shorter = Math.min(limit, longest());
  const deadline = performance.now() + shorter;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${shorter} ms`);
    await pause(2);
  }
}

/** The number of polls that must find a value unchanged. Time alone is not enough, because this process may have stalled. */
const UNCHANGED_POLLS = 20;

/** Waits until the value of `count` has not changed for `quiet` milliseconds, and returns it. */
export async function settled(
  count: () => number,
  limit: number = patience,
  quiet = 400,
): Promise<number> {
  let last = -1;
  let since = performance.now();
  let polls = 0;
  await until(
    () => {
      const now = count();
      if (now !== last) [last, since, polls] = [now, performance.now(), 0];
      return ++polls > UNCHANGED_POLLS && performance.now() - since > quiet;
    },
    "rest",
    limit,
  );
  return last;
}
