import type { HeaderList, OriginalFields } from "./transport.ts";

/**
 * Original fields, changed to say what the list says: a field that is the same
 * in both keeps its case, lines and bytes. A copy, unless nothing changes.
 */
export function amend(original: OriginalFields, list: HeaderList): Headers {
  const before = joinValues(original.list);
  const after = joinValues(list);
  let headers: Headers | undefined;
  for (const [name, value] of before) {
    if (after.get(name) !== value) (headers ??= new Headers(original.headers)).delete(name);
  }
  for (let i = 0; i < list.length; i += 2) {
    const name = (list[i] as string).toLowerCase();
    if (before.get(name) === after.get(name)) continue;
    (headers ??= new Headers(original.headers)).append(list[i] as string, list[i + 1] as string);
  }
  return headers ?? original.headers;
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
