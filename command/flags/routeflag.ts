/** The value of the flag `--route`: `/api=http://127.0.0.1:4001 --strip-prefix /api`. */
import { cutCredentials, quoteInput } from "#fetchway/options";
import type { BalanceOptions } from "#fetchway/upstreams";
import { findProblems, findTargetProblems } from "../config/problems.ts";
import { checkPattern, normalizePattern } from "../serve/pattern.ts";
import type { RouteCondition } from "../serve/routecondition.ts";
import type { Flag } from "./flags.ts";
import { parse } from "./parse.ts";
import { UsageError } from "./read.ts";
import { readBalanceFlags, type RouteOptions } from "./severalupstreams.ts";
import { expandTarget, isTargetText } from "./shorttarget.ts";

/** A route of the command line. */
export interface GivenRoute {
  readonly match: readonly string[];
  readonly when?: RouteCondition;
  /** The target, and the options that follow it. */
  readonly options: RouteOptions;
}

const FORM = "write it as /path=http://127.0.0.1:4000 or host/path=http://127.0.0.1:4000";

/** Reads the value of a flag `--route`. Returns the route, or the mistakes in it, one line each. */
export function readRoute(text: string): GivenRoute | string[] {
  const [first = "", ...rest] = splitWords(text);
  const equals = first.indexOf("=");
  if (equals < 1 || equals === first.length - 1) return [`--route ${quoteInput(first)}: ${FORM}`];
  const match = first.slice(0, equals).split(",");
  const label = `--route ${cutCredentials(match.join(","))}`;
  const problems: string[] = [];
  for (const pattern of match) {
    const wrong = checkPattern(pattern);
    if (wrong !== undefined) problems.push(`${label}: ${wrong}`);
  }
  const line = parse(rest);
  const { proxy, pool, server, balance, line: other } = line.given;
  const targets = splitTargets(first.slice(equals + 1));
  const found = [...findTargetProblems(targets), ...line.problems, ...findProblems(line)];
  if (line.target !== undefined)
    found.push("write the targets of a route before its flags, with commas between them");
  for (const [flag] of line.labels) {
    const isOwn = flag.option in server || flag.option in other;
    if (isOwn && (flag.scope === "server" || flag.scope === "line") && !isOfRoute(flag)) {
      found.push(`--${flag.name} is not an option of one route; write it outside of the quotes`);
    }
  }
  let spread: BalanceOptions = {};
  try {
    spread = readBalanceFlags(balance);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    found.push(error.message);
  }
  problems.push(...found.map((problem) => `${label}: ${problem}`));
  if (problems.length > 0) return problems;
  const options = {
    ...proxy,
    ...(Object.keys(pool).length > 0 && { pool }),
    ...(Object.keys(spread).length > 0 && { balance: spread }),
    target: targets.length > 1 ? targets : (targets[0] as string),
  };
  const { whenMethod: method, whenHeader: headers, whenQuery: query } = other;
  const when = { ...(method && { method }), ...(headers && { headers }), ...(query && { query }) };
  return {
    match: match.map(normalizePattern),
    ...(Object.keys(when).length > 0 && { when }),
    options,
  };
}

/** Whether a flag sets the condition of a route. These flags are allowed only in the value of `--route`. */
export function isOfRoute({ option }: Pick<Flag, "option">): boolean {
  return option === "whenMethod" || option === "whenHeader" || option === "whenQuery";
}

/** Splits targets at commas, if each part is a target: a URL may have commas in its path. */
function splitTargets(given: string): string[] {
  const parts = given.split(",");
  return (parts.every(isTargetText) ? parts : [given]).map(expandTarget);
}

/** Splits a text into words as a shell does: quotes of both kinds keep spaces, and `\` keeps the next character. */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  for (const [part] of text.matchAll(/\s+|"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\]+|["'\\]/gs)) {
    if (/^\s/.test(part)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + unquote(part);
  }
  if (word !== undefined) words.push(word);
  return words;
}

function unquote(part: string): string {
  if (part.length > 1 && part.startsWith("'")) return part.slice(1, -1);
  if (part.length > 1 && part.startsWith('"'))
    return part.slice(1, -1).replace(/\\(["\\$`])/g, "$1");
  return part.startsWith("\\") ? part.slice(1) : part;
}
