/** The error of an option that cannot be honoured. */
export function badOption(option: string, fix: string): TypeError {
  return new TypeError(`fetchway: bad option \`${option}\`: ${fix}`);
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
