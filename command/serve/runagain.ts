/**
 * Returns a function that starts some work, one run after the other. All calls before the next run begins share that run, so
 * that many signals cause few runs.
 * @param work must not reject
 */
export function runAgain(work: () => Promise<unknown>): () => void {
  let last: Promise<unknown> = Promise.resolve();
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    last = last.then(() => {
      isWaiting = false;
      return work();
    });
  };
}
