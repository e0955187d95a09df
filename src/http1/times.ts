/** Milliseconds that one of several addresses may take: then the next is tried. Only the last may take all that is left. */
const ATTEMPT = 1000;

/** Milliseconds before the upstream closes an idle connection in which it is not used any more. */
export const MARGIN = 1000;

/** How long one of several addresses may take: at most half of the time to connect, where that is limited. */
export function attemptTime(connectTimeout: number): number {
  return connectTimeout > 0 ? Math.min(ATTEMPT, Math.ceil(connectTimeout / 2)) : ATTEMPT;
}

/** A timer that does not hold the process, where the runtime has such: on Deno it is a number. */
export function later(callback: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(callback, ms);
  (timer as { unref?(): unknown }).unref?.();
  return timer;
}
