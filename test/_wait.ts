/** Waiting on conditions: a test never sleeps for a fixed time. */

/** Long enough for a loaded machine; only a failing test ever waits for it. */
export const patience: number = 8000;

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Rejects with a message that contains `what` when `promise` does not settle in time. */
export async function within<T>(
  promise: Promise<T>,
  what: string,
  limit: number = patience,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${limit} ms`)), limit);
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
  const deadline = performance.now() + limit;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${limit} ms`);
    await pause(2);
  }
}

/** Waits until `count` has not changed for a while. */
export async function settled(count: () => number, limit: number = patience): Promise<number> {
  let last = -1;
  let since = performance.now();
  await until(
    () => {
      const now = count();
      if (now !== last) [last, since] = [now, performance.now()];
      return performance.now() - since > 400;
    },
    "rest",
    limit,
  );
  return last;
}
