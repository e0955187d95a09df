import { parseArgs } from "node:util";
import { quoteInput, nearest } from "#fetchway/options";
import type { LineSettings, ServerSettings } from "./commandoptions.ts";
import { isDoubtful } from "./duration.ts";
import { type Flag, flags, type FlagGroup } from "./flags.ts";
import { adviseOn, type PeerFlag, peerFlags } from "./peerflags.ts";
import { UsageError } from "./read.ts";
import type { BalanceFlags } from "./severalupstreams.ts";
import { expandTarget } from "./shorttarget.ts";

/** The parts of a command line. */
export interface CommandLine {
  /** The first target, with a short form expanded (see `expandTarget`). */
  readonly target: string | undefined;
  /**
   * The targets before the first unknown flag that may have a target as its value; if `unsure`, only the first target. Several
   * targets are the upstreams among which requests are distributed.
   */
  readonly targets: readonly string[];
  /** The options that were given. The options of the proxy and of its pool are not checked yet. */
  readonly given: Readonly<Record<FlagGroup, Record<string, unknown>>> & {
    readonly line: LineSettings;
    readonly balance: BalanceFlags;
    readonly server: Partial<ServerSettings>;
  };
  /** The flags that were given, each with the text that messages use for it. */
  readonly labels: ReadonlyMap<Flag, string>;
  /** The mistakes so far, one line each. */
  readonly problems: readonly string[];
  /** The warnings about values that are valid, but probably mistakes, one line each. */
  readonly doubts: readonly string[];
  /** Whether `target` may be the value of an unknown flag instead. */
  readonly unsure: boolean;
}

interface Spelling {
  readonly flag: Flag;
  /** Whether the flag is spelled `--no-name`. */
  readonly negated: boolean;
}

const spellings: Map<string, Spelling> = new Map();
for (const flag of flags) {
  spellings.set(`--${flag.name}`, { flag, negated: false });
  if (flag.short !== undefined) spellings.set(`-${flag.short}`, { flag, negated: false });
  if (flag.negatable) spellings.set(`--no-${flag.name}`, { flag, negated: true });
}
const longNames = Array.from(spellings.keys()).filter((each) => each.startsWith("--"));

/**
 * The flags as options of `parseArgs`. A flag with an optional value is a boolean for `parseArgs`, so its value is parsed as
 * a separate word.
 */
const options = Object.fromEntries(
  flags.map(({ name, short, value }) => [
    name,
    { type: value === undefined ? "boolean" : "string", ...(short !== undefined && { short }) },
  ]),
) as NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>["options"]>;

/** A part of a command line: a flag, or a word that is not a flag. */
interface Part {
  /** The flag as it is spelled; undefined for a word. */
  readonly flag?: string;
  /** The value of the flag, or the word. */
  readonly value?: string | undefined;
}

function splitArgs(args: readonly string[]): Part[] {
  const { tokens } = parseArgs({
    args: args.map(toTwoDashes),
    options,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const parts: Part[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") parts.push({ value: token.value });
    if (token.kind !== "option") continue;
    const { rawName, value, inlineValue, index } = token;
    // `toTwoDashes` may have added a dash, so read the name as it was typed from `args`.
    const typed = /^-\w[\w-]+/.exec(args[index] ?? "")?.[0];
    const flag = rawName.startsWith("--") ? (typed ?? rawName) : rawName;
    if (inlineValue === false && value !== undefined && isFlag(value)) {
      // `parseArgs` takes any word as the value, even the next flag. Parse that flag again.
      return [...parts, { flag, value: "" }, ...splitArgs(args.slice(index + 1))];
    }
    const isShort = !rawName.startsWith("--");
    parts.push({ flag, value: isShort ? value?.replace(/^=/, "") : value });
  }
  return parts;
}

/**
 * Returns `-port` as `--port`: `parseArgs` would read it as `-p` with the value `ort`. One-letter flags may be combined, or
 * followed by a value (`-p80`), if the first letter is a known flag.
 */
function toTwoDashes(arg: string): string {
  const [, name = ""] = /^-(\w[\w-]+)(?:=|$)/.exec(arg) ?? [];
  if (name === "" || /^\d+$/.test(name)) return arg;
  const isLong = spellings.has(`--${name}`) || findPeer(`-${name}`) !== undefined;
  return isLong || !spellings.has(arg.slice(0, 2)) ? `-${arg}` : arg;
}

function isFlag(word: string): boolean {
  return word.startsWith("--") || spellings.has(word) || peerFlags.has(word);
}

/** Parses a command line, and collects all mistakes in it. */
export function parse(args: readonly string[]): CommandLine {
  const given: Record<FlagGroup, Record<string, unknown>> = {
    line: {},
    server: {},
    balance: {},
    proxy: {},
    pool: {},
  };
  const labels = new Map<Flag, string>();
  const targets: string[] = [];
  const problems: string[] = [];
  const doubts: string[] = [];
  // The number of targets before the first unknown flag that may have a target as its value. Later targets are not certain.
  let sure: number | undefined;

  const rest = splitArgs(args);
  for (let part = rest.shift(); part !== undefined; part = rest.shift()) {
    const { flag: spelled, value: inline } = part;
    if (spelled === undefined) {
      targets.push(inline as string);
      continue;
    }
    const known = spellings.has(spelled) ? spelled : undefined;
    const peer = known === undefined ? findPeer(spelled) : undefined;
    if (peer !== undefined) {
      const value = inline ?? (peer.takesValue ? takeWord(rest) : undefined);
      problems.push(`there is no ${spelled}: ${adviseOn(peer, value)}`);
      if (peer.isTarget) sure ??= targets.length;
      continue;
    }
    const meant = known ?? findMeant(spelled);
    if (known === undefined) {
      problems.push(
        `there is no ${spelled}: ${meant ? `use ${meant}` : "see fetchway --help all"}`,
      );
    }
    const spelling = spellings.get(meant ?? "");
    if (spelling === undefined) {
      if (inline === undefined) sure ??= targets.length;
      continue;
    }
    const { flag } = spelling;
    const text = takeText(spelling, inline, rest);
    // The value of a misspelt flag has been taken from the arguments, so that the value does not count as a target.
    if (known === undefined) continue;
    const label = renderLabel(spelled, spelling, text);
    try {
      if (text === undefined) throw new UsageError("it takes no value; leave the value out");
      if (text === "") throw new UsageError(`a value is missing, write ${spelled} ${flag.value}`);
      const value = flag.read(text, given[flag.scope][flag.option]);
      // Check only the options of the command here, because `createProxy` checks those of a proxy and its pool.
      const isOwn = flag.scope !== "proxy" && flag.scope !== "pool";
      const wrong = isOwn ? flag.check(value) : undefined;
      if (wrong !== undefined) throw new UsageError(wrong);
      given[flag.scope][flag.option] = value;
      labels.set(flag, label);
      if (/^\d+$/.test(text) && isDoubtful(flag.option, Number(text))) {
        doubts.push(`${spelled} ${text} is ${text} ms; for seconds write ${text}s`);
      }
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      problems.push(`${label}: ${flag.instead ?? error.message}`);
    }
  }

  const known = targets.slice(0, sure === 0 ? 1 : sure).map(expandTarget);
  return { target: known[0], targets: known, given, labels, problems, doubts, unsure: sure === 0 };
}

/** Returns the advice for a flag of another command, even if it is spelled with one dash. */
function findPeer(spelled: string): PeerFlag | undefined {
  return peerFlags.get(spelled) ?? peerFlags.get(`-${spelled}`);
}

/** Returns the flag that an unknown flag probably means. */
function findMeant(spelled: string): string | undefined {
  const long = spelled.startsWith("--") ? spelled : `-${spelled}`;
  if (spellings.has(long) && spelled.length > 2) return long;
  // A single letter is too short for a guess.
  return spelled.length > 2 ? nearest(spelled, longNames) : undefined;
}

/**
 * Takes the value of a flag from the arguments. Returns `""` if a value is missing, and undefined if `--no-name` is given a
 * value.
 */
function takeText(
  { flag, negated }: Spelling,
  inline: string | undefined,
  rest: Part[],
): string | undefined {
  if (negated) return inline === undefined ? "false" : undefined;
  if (inline !== undefined) return inline;
  if (flag.value !== undefined) return takeWord(rest) ?? "";
  const [next] = rest;
  const word = next?.flag === undefined ? (next?.value ?? "") : "";
  // After an on/off flag, a number of up to three digits counts as the flag's value, not as a target: `Flag.read` explains the
  // mistake.
  const own = flag.negatable ? /^(?:true|false|\d{1,3})$/ : /^(?:true|false)$/;
  return own.test(word) || flag.choices.includes(word) ? takeWord(rest) : "true";
}

/** Takes the next part if it is a word. */
function takeWord(rest: Part[]): string | undefined {
  return rest[0]?.flag === undefined ? rest.shift()?.value : undefined;
}

/** Renders a flag and its value, without a value that may be a secret. */
function renderLabel(spelled: string, { flag, negated }: Spelling, text = ""): string {
  const hidden = text === "" || negated || flag.value === undefined || flag.repeats;
  return hidden ? spelled : `${spelled} ${quoteInput(text)}`;
}
