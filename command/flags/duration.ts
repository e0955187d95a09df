/** Durations and sizes as texts, such as `10s` and `10mb`, in flags and in config files. */

/** A duration as a text: a whole number with its unit. */
export type Duration = `${number}${"ms" | "s" | "m" | "h"}`;

/** A size as a text: a whole number with its unit, in which `k` is 1024 bytes. */
export type Size = `${number}${"k" | "m" | "g" | "kb" | "mb" | "gb"}`;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Returns the milliseconds of `500ms`, `10s`, `2m` or `1h`; undefined for any other text. */
export function parseDuration(text: string): number | undefined {
  const [, digits, unit = ""] = /^(\d+)(ms|[smh])$/.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits) * (UNITS[unit] as number);
}

/** Matches the timeouts for which a few milliseconds are unlikely. Timeouts of attempts and queues may be that short. */
const LONG = /^(?!attempt|queue)\w*timeout$/i;

/** Whether a time without a unit is probably meant in seconds, as in nginx. */
export function isDoubtful(option: string, time: number): boolean {
  return LONG.test(option) && time > 0 && time < 100;
}

/** Returns the bytes of `512`, `512k` or `10mb`; undefined for any other text. */
export function parseSize(text: string): number | undefined {
  const [, digits, unit = ""] = /^(\d+)([kmg]?)(?:i?b)?$/i.exec(text) ?? [];
  return digits === undefined
    ? undefined
    : Number(digits) * 1024 ** " kmg".indexOf(unit.toLowerCase() || " ");
}
