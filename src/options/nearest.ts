/** Returns the name that a misspelt name probably means; undefined if no name is similar. */
export function nearest(spelled: string, names: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.max(2, Math.floor(spelled.length / 3));
  for (const name of names) {
    const edits = countEdits(spelled, name);
    if (name.length > 2 && edits <= least) [best, least] = [name, edits - 1];
  }
  return best;
}

/** Counts the letters to add, drop or change to turn one text into the other (Levenshtein distance). */
function countEdits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const above = row;
    row = [i];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1] ? 0 : 1;
      row.push(
        Math.min(
          (above[j] as number) + 1,
          (row[j - 1] as number) + 1,
          (above[j - 1] as number) + same,
        ),
      );
    }
  }
  return row[to.length] as number;
}
