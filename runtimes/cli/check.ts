import { createProxy, type CreateProxyOptions, type Proxy } from "#proxy";
import { flags } from "./flags.ts";
import type { CommandLine } from "./parse.ts";
import { UsageError } from "./read.ts";

const ANY_TARGET = "http://localhost";

/**
 * Has the proxy check every option that was given, each by itself: `createProxy` stops at the first bad one.
 * @returns what is wrong, one line each
 */
export function checkOptions({ given, labels }: CommandLine): string[] {
  return Array.from(labels).flatMap(([{ scope, option }, label]) => {
    if (scope === "command") return [];
    const one = { [option]: given[scope][option] };
    const wrong = tryCreate({ target: ANY_TARGET, ...(scope === "pool" ? { pool: one } : one) });
    return wrong === undefined ? [] : [`${label}: ${wrong}`];
  });
}

/** What is wrong with a target. */
export function checkTarget(target: string): string[] {
  const wrong = tryCreate({ target });
  if (wrong === undefined) return [];
  // `localhost:4000` is a URL whose scheme is `localhost:`.
  const port = /^:?(\d+)$/.exec(target)?.[1];
  const meant = `http://${port === undefined ? target : `127.0.0.1:${port}`}`;
  const guessed = !target.includes("//") && tryCreate({ target: meant }) === undefined;
  return [guessed ? `bad target ${JSON.stringify(target)}: use ${meant}` : wrong];
}

function tryCreate(options: CreateProxyOptions): string | undefined {
  let proxy: Proxy;
  try {
    // An option that is checked by itself is not to miss the one that it needs.
    proxy = createProxy({ followRedirects: false, ...options });
  } catch (error) {
    return explain(error);
  }
  void proxy.close();
  return undefined;
}

/** What the user did wrong, in one line; what is no fault of theirs is thrown again. */
export function explain(error: unknown): string {
  if (error instanceof UsageError) return error.message;
  if (error instanceof TypeError && error.message.startsWith("fetchway: ")) {
    return toCommandLine(error.message);
  }
  throw error;
}

/** A message about options, in the command line's spelling. */
function toCommandLine(message: string): string {
  return message
    .replace(/^fetchway: (?:bad option `[^`]*`: )?/, "")
    .replace(/`(\w+)(?:: \{ ([\w-]+) \})?`/g, (all, option: string, name?: string) => {
      const flag = flags.find((each) => each.option === option && each.scope !== "command");
      if (flag === undefined) return all;
      return name === undefined ? `--${flag.name}` : `--${flag.name} "${name}: …"`;
    });
}
