import type { HeaderList } from "./headers.ts";

/**
 * Header fields in two forms: the runtime's own `Headers`, and the list that was read from it. workerd's `Headers` store
 * the case, repeated lines and bytes above 0x7f, but do not show them when they are read, so the list lacks them. To
 * preserve these details, changes are made to a copy of the `Headers`.
 */
export interface OriginalFields {
  /** The runtime's own `Headers`, which may store details that `list` lacks, such as the case of names. */
  readonly headers: Headers;
  /** The list that was read from `headers`. */
  readonly list: HeaderList;
}

/**
 * Returns the runtime's own `Headers` with the changes that were made to the list. A field without a change keeps its case,
 * lines and bytes.
 * @param list the list that was made from `original.list`
 * @returns a copy of the `Headers`, or the `Headers` themselves if nothing has changed
 */
export function amend(original: OriginalFields, list: HeaderList): Headers {
  const { headers, list: before } = original;
  // In nearly all cases, the only changes are fields that were dropped, and fields that were added at the end. This
  // function handles these cases, and `amendByName` all others.
  const dropped: string[] = [];
  let end = 0;
  for (let i = 0; i < before.length; i += 2) {
    if (before[i] === list[end] && before[i + 1] === list[end + 1]) end += 2;
    else dropped.push((before[i] as string).toLowerCase());
  }
  if (dropped.length === 0 && end === list.length) return headers;
  // Only `Set-Cookie` can occur several times in a list made from `Headers`. If one of its fields was dropped, others
  // may have to stay, so they cannot be deleted by name.
  if (dropped.includes("set-cookie")) return amendByName(original, list);
  for (let i = end; i < list.length; i += 2) {
    if (dropped.includes((list[i] as string).toLowerCase())) return amendByName(original, list);
  }
  const amended = new Headers(headers);
  for (const name of dropped) amended.delete(name);
  for (let i = end; i < list.length; i += 2) {
    amended.append(list[i] as string, list[i + 1] as string);
  }
  return amended;
}

/** Does the same as `amend` for any changes: it replaces all fields of each name that has other values than before. */
function amendByName(original: OriginalFields, list: HeaderList): Headers {
  const before = joinValues(original.list);
  const after = joinValues(list);
  const headers = new Headers(original.headers);
  for (const [name, value] of before) {
    if (after.get(name) !== value) headers.delete(name);
  }
  for (let i = 0; i < list.length; i += 2) {
    const name = (list[i] as string).toLowerCase();
    if (before.get(name) === after.get(name)) continue;
    headers.append(list[i] as string, list[i + 1] as string);
  }
  return headers;
}

function joinValues(list: HeaderList): Map<string, string> {
  const values = new Map<string, string>();
  for (let i = 0; i < list.length; i += 2) {
    const name = (list[i] as string).toLowerCase();
    const value = list[i + 1] as string;
    const others = values.get(name);
    values.set(name, others === undefined ? value : `${others}, ${value}`);
  }
  return values;
}
