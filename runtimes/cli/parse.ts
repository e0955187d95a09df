import { nearest } from "../../src/options/nearest.ts";
import type { LineSettings, ServerSettings } from "./commandoptions.ts";
import { type Flag, flags, type Scope } from "./flags.ts";
import { UsageError } from "./read.ts";

/** The parts of a command line. */
export interface CommandLine {
  readonly target: string | undefined;
  /** The options that were given. The options of the proxy and of its pool are not checked yet. */
  readonly given: Readonly<Record<Scope, Record<string, unknown>>> & {
    readonly line: LineSettings;
    readonly server: Partial<ServerSettings>;
  };
  /** The flags that were given, each with the text by which messages name it. */
  readonly labels: ReadonlyMap<Flag, string>;
  /** The mistakes so far, one line each. */
  readonly problems: readonly string[];
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

/** Parses a command line, and collects all mistakes in it. */
export function parse(args: readonly string[]): CommandLine {
  const given: Record<Scope, Record<string, unknown>> = {
    line: {},
    server: {},
    proxy: {},
    pool: {},
  };
  const labels = new Map<Flag, string>();
  const targets: string[] = [];
  const problems: string[] = [];
  // The number of targets before the first unknown flag: a target after it may be the value of that flag instead.
  let sure: number | undefined;

  const rest = [...args];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === "--") {
      targets.push(...rest.splice(0));
      break;
    }
    if (!arg.startsWith("-")) {
      targets.push(arg);
      continue;
    }
    const [, spelled = arg, inline] = /^([^=]*)=(.*)$/s.exec(arg) ?? [];
    const known = spellings.has(spelled) ? spelled : undefined;
    const meant = known ?? nearest(spelled, spellings.keys());
    if (known === undefined) {
      problems.push(`there is no ${spelled}: ${meant ? `use ${meant}` : "see fetchway --help"}`);
    }
    const spelling = spellings.get(meant ?? "");
    if (spelling === undefined) {
      if (inline === undefined) sure ??= targets.length;
      continue;
    }
    const { flag } = spelling;
    const text = takeText(spelling, inline, rest);
    // The value of a misspelt flag has been taken from the arguments, so that it does not count as the target.
    if (known === undefined) continue;
    const label = renderLabel(spelled, spelling, text);
    try {
      if (text === undefined) throw new UsageError("it takes no value, leave that out");
      if (text === "") throw new UsageError(`a value is missing, write ${spelled} ${flag.value}`);
      const value = flag.read(text, given[flag.scope][flag.option]);
      // `createProxy` checks the options of a proxy, but does not know those of the command.
      const isOwn = flag.scope === "line" || flag.scope === "server";
      const wrong = isOwn ? flag.check(value) : undefined;
      if (wrong !== undefined) throw new UsageError(wrong);
      given[flag.scope][flag.option] = value;
      labels.set(flag, label);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      problems.push(`${label}: ${error.message}`);
    }
  }

  for (const extra of targets.slice(1, sure)) {
    problems.push(`"${withoutCredentials(extra)}": one target is enough, leave the others out`);
  }
  return { target: targets[0], given, labels, problems, unsure: sure === 0 };
}

/** Takes the value of a flag: "" if the value is missing, undefined if a flag has a value that it does not take. */
function takeText(
  { flag, negated }: Spelling,
  inline: string | undefined,
  rest: string[],
): string | undefined {
  if (negated) return inline === undefined ? "false" : undefined;
  if (inline !== undefined) return inline;
  const next = rest[0];
  if (flag.value === undefined) {
    // A number cannot be the target, so it is meant as a detail of the option: `Flag.read` explains the mistake.
    const own = flag.negatable ? /^(?:true|false|\d+)$/ : /^(?:true|false)$/;
    return own.test(next ?? "") ? rest.shift() : "true";
  }
  return next === undefined || next.startsWith("--") || spellings.has(next) ? "" : rest.shift();
}

/** Renders a flag and its value; the value is left out where it may be a secret. */
function renderLabel(spelled: string, { flag, negated }: Spelling, text = ""): string {
  const hidden = text === "" || negated || flag.value === undefined || flag.repeats;
  return hidden ? spelled : `${spelled} ${JSON.stringify(text)}`;
}

/** Returns a URL without user name and password, to show in a message. */
function withoutCredentials(text: string): string {
  return text.replace(/\/\/[^/?#]*@/, "//");
}
