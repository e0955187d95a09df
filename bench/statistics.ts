/** Statistics over rounds. */

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/**
 * Half the distance between the quartiles: what half of the rounds stay within.
 * One round tells nothing of it: `NaN`.
 */
export function spread(values: readonly number[]): number {
  if (values.length < 2) return Number.NaN;
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2;
}

/** Between two values, as far as it is between them. */
function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = (sorted.length - 1) * part;
  const below = sorted[Math.floor(place)] ?? Number.NaN;
  const above = sorted[Math.ceil(place)] ?? Number.NaN;
  return below + (above - below) * (place % 1);
}

/** The ratios of neighbouring rounds: a change of the machine's speed affects both sides of a ratio. */
export function ratios(values: readonly number[], base: readonly number[]): number[] {
  const pairs = Math.min(values.length, base.length);
  return Array.from({ length: pairs }, (_, i) => (values[i] as number) / (base[i] as number));
}
