import { createProxy, type Proxy } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import { flags } from "../flags/flags.ts";
import type { CommandLine } from "../flags/parse.ts";
import { UsageError } from "../flags/read.ts";
import { type RouteOptions, toProxyOptions } from "../flags/severalupstreams.ts";
import { explainTarget } from "../flags/shorttarget.ts";
import { explainRefused } from "../serve/permission.ts";

const ANY_TARGET = "http://localhost";

/**
 * Finds the wrong options of the proxy and its pool. It creates a proxy for each option alone, because `createProxy` stops at
 * the first wrong option.
 * @returns one line for each wrong option
 */
export function findProblems({ given, labels }: CommandLine): string[] {
  return Array.from(labels).flatMap(([{ scope, option }, label]) => {
    if (scope !== "proxy" && scope !== "pool") return [];
    const one = { [option]: given[scope][option] };
    const wrong = tryCreate({ target: ANY_TARGET, ...(scope === "pool" ? { pool: one } : one) });
    return wrong === undefined ? [] : [`${label}: ${wrong}`];
  });
}

/** Returns what is wrong with targets, one line each. */
export function findTargetProblems(targets: readonly string[]): string[] {
  const problems = targets.flatMap((target) => explainWord(target) ?? tryCreate({ target }) ?? []);
  if (problems.length > 0 || targets.length < 2) return problems;
  const wrong = tryCreate({ target: targets });
  return wrong === undefined ? [] : [wrong];
}

/** Explains a word that is written in place of a target, but probably means something else, such as a route. */
function explainWord(word: string): string | undefined {
  if (/^(?:help|version)$/.test(word)) return `there is no command ${word}: use --${word}`;
  if (/^[^/=:?#]*\/[^=:?#]*=/.test(word))
    return `${quoteInput(word)} is a route: use --route ${quoteInput(word)}`;
  const fix = explainTarget(word);
  return fix && `${quoteInput(word)}: ${fix}`;
}

function tryCreate(options: RouteOptions): string | undefined {
  const message = findRefusal({ followRedirects: false, ...options });
  return message && toCommandLine(message);
}

/**
 * Returns the message with which `createProxy` refuses options; undefined if it accepts them.
 *
 * To check one option alone, pass `followRedirects: false` as well, because `createProxy` refuses `redirectTargets` without
 * `followRedirects`.
 */
export function findRefusal(options: RouteOptions): string | undefined {
  let proxy: Proxy;
  try {
    proxy = createProxy(toProxyOptions(options));
  } catch (error) {
    if (isMisuse(error)) return error.message;
    throw error;
  }
  void proxy.close();
  return undefined;
}

function isMisuse(error: unknown): error is TypeError {
  return error instanceof TypeError && error.message.startsWith("fetchway: ");
}

/**
 * Explains the user's mistake, or what the runtime does not permit, in one line.
 * @throws the error itself, if it is neither of the two
 */
export function explain(error: unknown): string {
  if (error instanceof UsageError) return error.message;
  if (isMisuse(error)) return toCommandLine(error.message);
  const refused = explainRefused(error);
  if (refused !== undefined) return refused;
  throw error;
}

/** Removes the prefix of a message of `createProxy`, and replaces the names of options by those of their flags. */
function toCommandLine(message: string): string {
  return message
    .replace(/^fetchway: (?:bad option `[^`]*`: )?/, "")
    .replace(/`(\w+)(?:: \{ ([\w-]+) \})?`/g, (all, option: string, name?: string) => {
      const flag = flags.find(
        ({ option: each, scope }) => each === option && (scope === "proxy" || scope === "pool"),
      );
      if (flag === undefined) return all;
      return name === undefined ? `--${flag.name}` : `--${flag.name} "${name}: …"`;
    });
}
