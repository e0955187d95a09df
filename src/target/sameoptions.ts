/**
 * Recognizes targets that were parsed before. They are not compared by identity, because an app may write a new object literal
 * at each call, or change an object between two calls. A target is compared with a copy of the target that was parsed.
 */

/** Whether a value is an array or a plain object. Two of these are equal if their members are equal. */
export function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return Array.isArray(value) || (value as object | null | undefined)?.constructor === Object;
}

/** Copies arrays and plain objects with their members, and URLs as text. Other objects, and functions, are not copied. */
export function copyOptions(value: unknown): unknown {
  if (value instanceof URL) return value.href;
  if (Array.isArray(value)) return value.map((each: unknown) => copyOptions(each));
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, copyOptions(each)]));
}

/** Whether a value equals a copy that `copyOptions` has made. Functions and objects of classes are compared by identity. */
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
