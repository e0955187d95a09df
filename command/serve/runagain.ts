/**
 * Returns a function that runs `work`. Runs never overlap: a call during a run causes one more run after it, which all
 * further calls share until it begins. So many signals cause few runs.
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
