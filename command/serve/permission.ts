/** What the runtime does not permit this process to do: Node with `--permission`, and Deno. */
import process from "node:process";
import type { serve } from "srvx";
import { UsageError } from "../flags/read.ts";

/** The members of what the runtimes throw. */
interface Refusal {
  /** Deno: `NotCapable`. */
  readonly name?: string;
  /** Node: `ERR_ACCESS_DENIED`. */
  readonly code?: string;
  /** Names the flag that permits it. */
  readonly message?: string;
  /** Node: the path, if it is about a file. */
  readonly resource?: string;
}

/** Explains in one line what the runtime does not permit; returns undefined for any other error. */
export function explainRefused(error: unknown): string | undefined {
  const { name, code, message = "", resource = "" } = Object(error) as Refusal;
  if (name !== "NotCapable" && code !== "ERR_ACCESS_DENIED") return undefined;
  return `the runtime does not permit this: ${message}${resource && ` (${resource})`}`;
}

/**
 * Loads the library that listens. It is not imported statically, because it reads an environment variable when it is loaded:
 * Deno may refuse that, and only the code that asked for it can explain the error.
 * @throws UsageError if Node does not permit this process to listen
 */
export async function loadServe(): Promise<typeof serve> {
  // Node 26 would throw in a callback of its own, where no code can catch the error. Node 24 does not know this permission,
  // so that `has` returns false there, too.
  const { permission } = process as Partial<typeof process>;
  const isLimited = permission !== undefined && !permission.has("net");
  if (isLimited && process.allowedNodeEnvironmentFlags.has("--allow-net")) {
    throw new UsageError("the runtime does not permit this process to listen: use --allow-net");
  }
  return (await import("srvx")).serve;
}
