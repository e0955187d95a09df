/** Explains what the runtime does not permit this process to do. Node with `--permission` and Deno restrict processes. */
import process from "node:process";
import type { serve } from "srvx";
import { UsageError } from "../flags/read.ts";

/** The members of the errors that the runtimes throw if they do not permit something. */
interface Refusal {
  /** Deno: `NotCapable`. */
  readonly name?: string;
  /** Node: `ERR_ACCESS_DENIED`. */
  readonly code?: string;
  /** The text of the error, which names the missing flag. */
  readonly message?: string;
  /** Node: the path, if the error is about a file. */
  readonly resource?: string;
}

/** Explains in one line what the runtime does not permit; returns undefined for any other error. */
export function explainRefused(error: unknown): string | undefined {
  const { name, code, message = "", resource = "" } = Object(error) as Refusal;
  if (name !== "NotCapable" && code !== "ERR_ACCESS_DENIED") return undefined;
  return `the runtime does not permit this: ${message}${resource && ` (${resource})`}`;
}

/**
 * Loads srvx, the library that listens. It is imported dynamically, because it reads an environment variable when it is
 * loaded: Deno may not permit that, and an error of a static import cannot be caught and explained.
 * @throws UsageError if Node does not permit this process to listen
 */
export async function loadServe(): Promise<typeof serve> {
  // Without this check, Node 26 would throw in one of its own callbacks, where no code can catch the error. On Node 24, `has`
  // always returns false, because there is no such permission; so check that `--allow-net` exists as well.
  const { permission } = process as Partial<typeof process>;
  const isLimited = permission !== undefined && !permission.has("net");
  if (isLimited && process.allowedNodeEnvironmentFlags.has("--allow-net")) {
    throw new UsageError("the runtime does not permit this process to listen: use --allow-net");
  }
  return (await import("srvx")).serve;
}
