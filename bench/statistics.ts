/** What rounds have in common. */

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** Half the distance between the quartiles, relative to the median: what half of the rounds stay within. */
export function spread(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number): number => sorted[Math.round((sorted.length - 1) * part)] ?? Number.NaN;
  return (at(0.75) - at(0.25)) / 2 / median(values);
}

/**
 * The median of the ratios of rounds that stood beside each other: what the
 * machine did meanwhile has happened to both.
 */
export function ratio(values: readonly number[], base: readonly number[]): number {
  const pairs = Math.min(values.length, base.length);
  return median(
    Array.from({ length: pairs }, (_, i) => (values[i] as number) / (base[i] as number)),
  );
}
