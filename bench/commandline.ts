/** What the command lines of all benches have in common: help, errors, and values that are names or numbers. */

/**
 * Reads the command line of a bench. Prints the help if the user asks for it, and names a wrong flag without a stack trace.
 * @param name the name of the npm script
 * @param help the text of --help
 * @param read returns undefined if the user asks for help, and throws for a wrong flag
 * @returns undefined if the bench is not to be run
 */
export function readCommandLine<T>(
  name: string,
  help: string,
  read: (args: string[]) => T | undefined,
): T | undefined {
  try {
    const options = read(process.argv.slice(2));
    if (options === undefined) console.log(help);
    return options;
  } catch (error) {
    const { message } = error as Error;
    process.stderr.write(`${message}\nnpm run ${name} -- --help says what there is\n`);
    process.exitCode = 2;
    return undefined;
  }
}

/**
 * Returns what a list of names, separated by commas, stands for; a name may end in `*`.
 * @throws TypeError that names the flag and what there is
 */
export function select<T extends { name: string }>(
  flag: string,
  all: readonly T[],
  names: string | undefined,
): readonly T[] {
  if (names === undefined) return all;
  const chosen = new Set<T>();
  for (const name of names.split(",")) {
    const matches = all.filter((each) =>
      name.endsWith("*") ? each.name.startsWith(name.slice(0, -1)) : each.name === name,
    );
    if (matches.length === 0) {
      const known = all.map((each) => each.name).join(", ");
      throw new TypeError(`--${flag}: there is no ${JSON.stringify(name)}; use ${known}`);
    }
    for (const match of matches) chosen.add(match);
  }
  return all.filter((each) => chosen.has(each));
}

/** @throws TypeError if the text is no whole number from 1 to `most` */
export function number(
  flag: string,
  text: string | undefined,
  fallback: number,
  most = 1000,
): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new TypeError(`--${flag}: ${JSON.stringify(text)} is no whole number from 1 to ${most}`);
}

export function numbers(flag: string, text: string, most: number): number[] {
  return text.split(",").map((each) => number(flag, each, 0, most));
}
