import type { HeaderList } from "./transport.ts";

/** Takes every line of a field out of a list. Returns their values. */
export function takeAll(headers: HeaderList, lower: string): string[] {
  const values: string[] = [];
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if ((headers[i] as string).toLowerCase() !== lower) continue;
    values.unshift(headers.splice(i, 2)[1] as string);
  }
  return values;
}
