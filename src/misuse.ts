/**
 * The error for a mistake in the app's code, such as a bad option. If a transport rejects with this error, so does the promise
 * of the proxy; all other errors of a transport become responses.
 */
export class MisuseError extends TypeError {}

/** Makes the error of a wrong option. */
export function badOption(option: string, fix: string): MisuseError {
  return new MisuseError(`fetchway: bad option \`${option}\`: ${fix}`);
}

/** Makes the error of an option that sets a `Host`, for a client that always sends the target's. */
export function cannotSetHost(option: string, client: string): MisuseError {
  return badOption(option, `the ${client} client cannot set Host; leave it out`);
}

/**
 * Returns a text of the user without the part that may be the credentials of a URL: everything between the scheme (without one:
 * the beginning of the text) and the last `@`. The text may be an invalid URL: that is often what the message is about.
 */
export function cutCredentials(text: string): string {
  const at = text.lastIndexOf("@");
  if (at < 0) return text;
  const scheme = /:[/\\]+/.exec(text.slice(0, at));
  const start = scheme === null ? 0 : scheme.index + scheme[0].length;
  return `${text.slice(0, start)}…${text.slice(at)}`;
}

/** Quotes a user's input for a message: as JSON, and without credentials. */
export function quoteInput(value: unknown): string {
  return typeof value === "string"
    ? JSON.stringify(cutCredentials(value))
    : cutCredentials(JSON.stringify(value) ?? String(value));
}

/** Whether a value is a promise. A promise of another library need not be an instance of `Promise`. */
export function isPromise<T>(returned: T | PromiseLike<T>): returned is PromiseLike<T> {
  return typeof (returned as { then?: unknown } | null | undefined)?.then === "function";
}

/**
 * Returns the result of a function that the app has set as an option. A promise is refused, because the proxy does not wait
 * for it: as the answer to a question, for example, it would always count as true.
 * @throws TypeError that names the option
 */
export function refusePromise<T>(result: T, option: string): T {
  if (!isPromise(result)) return result;
  result.then(undefined, () => {});
  throw badOption(option, "return the value itself, not a promise");
}

/** Makes the error for an interceptor that sends two requests with one scope. */
export function scopeEnded(): MisuseError {
  const fix = "a scope serves one attempt; send another with `next(request, scope.again())`";
  return badOption("interceptors", fix);
}
