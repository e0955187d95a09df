/**
 * Returns the name that a misspelt name probably means; undefined if no name is similar. A name is similar if a third of the
 * letters of the shorter name, or fewer, are wrong. Case, `-` and `_` do not count.
 */
export function nearest(spelled: string, names: Iterable<string>): string | undefined {
  const letters = toLetters(spelled);
  let best: string | undefined;
  let least = Infinity;
  for (const name of names) {
    const others = toLetters(name);
    const edits = countEdits(letters, others);
    const limit = Math.floor(Math.min(letters.length, others.length) / 3);
    if (edits <= limit && edits < least) [best, least] = [name, edits];
  }
  return best;
}

/** Returns a text that says what to write instead of an unknown name. */
export function suggest(spelled: string, names: readonly string[]): string {
  const meant = nearest(spelled, names);
  return meant ? `did you mean \`${meant}\`?` : `there are ${names.join(", ")}`;
}

function toLetters(name: string): string {
  return name.replace(/[-_]/g, "").toLowerCase();
}

/**
 * Counts the edits that turn one text into the other: a letter added, dropped or changed, or two neighbours exchanged
 * (optimal string alignment distance).
 */
function countEdits(from: string, to: string): number {
  /** `rows[i][j]` is the number of edits between the first `i` letters of `from` and the first `j` letters of `to`. */
  const rows: number[][] = [Array.from({ length: to.length + 1 }, (_, j) => j)];
  const editsAt = (i: number, j: number): number => rows[i]?.[j] as number;
  for (let i = 1; i <= from.length; i++) {
    const row = (rows[i] = [i]);
    for (let j = 1; j <= to.length; j++) {
      const isSame = from[i - 1] === to[j - 1];
      const isExchanged = from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      row[j] = Math.min(
        editsAt(i - 1, j) + 1,
        editsAt(i, j - 1) + 1,
        editsAt(i - 1, j - 1) + (isSame ? 0 : 1),
        isExchanged ? editsAt(i - 2, j - 2) + 1 : Infinity,
      );
    }
  }
  return editsAt(from.length, to.length);
}
