/**
 * Returns a function that starts some work, one run after the other. A run that has not begun serves all calls before it, so
 * that many signals do not make as many runs.
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
