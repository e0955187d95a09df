/**
 * A programmer's mistake, such as a bad option. Where a transport rejects with it, the call rejects with it too;
 * all other errors of a transport become responses.
 */
export class MisuseError extends TypeError {}

/** The error of an option that cannot be honoured. */
export function badOption(option: string, fix: string): MisuseError {
  return new MisuseError(`fetchway: bad option \`${option}\`: ${fix}`);
}

/**
 * Makes sure that a function of the caller's has answered, and not with a promise: that is no
 * answer yet, and true whatever becomes of it.
 * @throws TypeError that names the option
 */
export function atOnce<T>(answer: T, option: string): T {
  if (!(answer instanceof Promise)) return answer;
  answer.catch(() => {});
  throw badOption(option, "answer at once, not with a promise");
}

/** The error of an interceptor that sends twice with one scope. */
export function scopeEnded(): MisuseError {
  const fix = "a scope is good for one attempt; send another with `next(request, scope.again())`";
  return badOption("interceptors", fix);
}
