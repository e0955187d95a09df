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

function toLetters(name: string): string {
  return name.replace(/[-_]/g, "").toLowerCase();
}

/**
 * Counts the edits that turn one text into the other: a letter added, dropped or changed, or two neighbours exchanged
 * (optimal string alignment distance).
 */
function countEdits(from: string, to: string): number {
  let above: number[] = [];
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const twoAbove = above;
    above = row;
    row = [i];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1] ? 0 : 1;
      let edits = Math.min(
        (above[j] as number) + 1,
        (row[j - 1] as number) + 1,
        (above[j - 1] as number) + same,
      );
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        edits = Math.min(edits, (twoAbove[j - 2] as number) + 1);
      }
      row.push(edits);
    }
  }
  return row[to.length] as number;
}
