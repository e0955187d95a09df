import type { HeaderList } from "../transport.ts";

/** Takes every line of a field out of a list. Returns their values. */
export function takeAll(headers: HeaderList, lower: string): string[] {
  const values: string[] = [];
  let end = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    if (name.length === lower.length && name.toLowerCase() === lower) {
      values.push(value);
      continue;
    }
    headers[end++] = name;
    headers[end++] = value;
  }
  headers.length = end;
  return values;
}
