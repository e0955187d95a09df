/**
 * Finds out whether a method is the function that Node itself has defined. A wrapper that other code has installed is another
 * function, even if it was installed before the first request.
 *
 * - Rests on: the stack of an error names the file of each function that was running, and the files of Node's own
 *   functions begin with `node:`. Node's methods use a member of `this` before they do anything else.
 * - Check: the method is called on an object whose members throw. In the stack of the error, there must be functions between
 *   the member that threw and the call, and all of them must be Node's.
 * - Otherwise: the method counts as wrapped, for example if stacks are turned off, or have another form.
 * - Test: test/runtimes/node/internals/ownmethod.test.ts, and test/runtimes/node/wrapped.test.ts, "the kept chunks never
 *   change if the agent wraps the method before the first request".
 */

/** A line of a stack that names a function. */
const FRAME = /^ +at /;
/** Matches the part of a stack line that names one of Node's own files. */
const FRAME_OF_NODE = /[( ]node:/;

type Method = (this: object, ...args: unknown[]) => unknown;

/** An object that throws when a member is read or set. */
const TRAP: object = new Proxy({}, { get: throwHere, set: throwHere, has: throwHere });
/** Arguments that every checked method accepts: a chunk or the name of an event, and a callback or a listener. */
const ARGUMENTS = [new Uint8Array(), (): void => {}] as const;

function throwHere(): never {
  throw new Error("fetchway: a probe");
}

/** Returns whether a method is Node's own function. */
export function isOwnMethod(method: unknown): boolean {
  if (typeof method !== "function") return false;
  // The stack of a plain function has three frames: the trap, the function, and the call in `traceCall`. The stack of any
  // method begins and ends with the same trap and the same call.
  const [trap, , call] = traceCall(readMember);
  const frames = traceCall(method as Method);
  // A long stack is cut off, and then ends before the call.
  const end = call === undefined ? -1 : frames.indexOf(call);
  if (end < 2 || frames[0] !== trap) return false;
  return frames.slice(1, end).every((frame) => FRAME_OF_NODE.test(frame));
}

function readMember(this: { member?: unknown }): unknown {
  return this.member;
}

/**
 * Calls a method on the trap. Returns the lines of the error's stack that name functions, the innermost first; none if the
 * method does not throw.
 */
function traceCall(method: Method): string[] {
  try {
    // A wrapper may return a promise, whose rejection would end the process.
    Promise.resolve(method.call(TRAP, ...ARGUMENTS)).catch(() => {});
  } catch (error) {
    return String((error as Error).stack)
      .split("\n")
      .filter((line) => FRAME.test(line));
  }
  return [];
}
