/** Durations as texts, such as `10s`, in flags and in config files. */

/** A duration as a text: a whole number with its unit. */
export type Duration = `${number}${"ms" | "s" | "m" | "h"}`;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Returns the milliseconds of `500ms`, `10s`, `2m` or `1h`; undefined for any other text. */
export function parseDuration(text: string): number | undefined {
  const [, digits, unit = ""] = /^(\d+)(ms|[smh])$/.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits) * (UNITS[unit] as number);
}
