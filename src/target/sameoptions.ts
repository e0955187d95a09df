/**
 * Recognizes target objects that have been parsed before. An app may write its target as a literal at each call, or change an
 * object between calls, so a target is compared with a copy of what it was, not by identity.
 */

/** Whether a value is made of its members alone: an array, or an object without a class. */
export function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return Array.isArray(value) || (value as object | null | undefined)?.constructor === Object;
}

/** Returns a copy of a value that later changes to the value do not reach. */
export function copyOptions(value: unknown): unknown {
  if (value instanceof URL) return value.href;
  if (Array.isArray(value)) return value.map((each: unknown) => copyOptions(each));
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, copyOptions(each)]));
}

/** Whether a value is equal to a copy that `copyOptions` has made. A function, or an object of a class, is equal to itself only. */
export function isUnchanged(value: unknown, copy: unknown): boolean {
  if (value === copy) return true;
  if (value instanceof URL) return value.href === copy;
  if (!isPlain(value) || !isPlain(copy)) return false;
  let missing = Object.keys(copy).length;
  for (const name in value) {
    if (!(name in copy) || !isUnchanged(value[name], copy[name])) return false;
    missing--;
  }
  return missing === 0;
}
