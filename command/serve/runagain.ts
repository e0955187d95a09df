/**
 * Returns a function that runs `work`. Runs never overlap: a call during a run causes one more run afterwards, and
 * further calls before that run begins are ignored. Many signals therefore cause few runs.
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
