/** Reads and checks HAR files for tests. */
import { readFileSync } from "node:fs";
import type { HarEntry } from "../../command/record/harentry.ts";

type Check = (value: unknown) => boolean;
type Shape = { readonly [name: string]: Check | Shape | readonly [Check | Shape] };

const text: Check = (value) => typeof value === "string";
const number: Check = (value) => typeof value === "number" && Number.isFinite(value);
const count: Check = (value) => Number.isInteger(value) && (value as number) >= -1;
const duration: Check = (value) => number(value) && ((value as number) >= 0 || value === -1);
const known: Check = (value) => number(value) && (value as number) >= 0;
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

const pair: Shape = { name: text, value: text };
/**
 * The required members of HAR 1.2, and the optional ones that the command writes. Chromium and Firefox refuse a file without a
 * required member.
 */
const entryShape: Shape = {
  startedDateTime: (value) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(String(value)),
  time: known,
  request: {
    method: text,
    url: (value) => URL.canParse(String(value)),
    httpVersion: text,
    cookies: [pair],
    headers: [pair],
    queryString: [pair],
    headersSize: count,
    bodySize: count,
  },
  response: {
    status: count,
    statusText: text,
    httpVersion: text,
    cookies: [pair],
    headers: [pair],
    content: {
      size: count,
      mimeType: text,
      text: optional(text),
      encoding: optional((value) => value === "base64"),
      compression: optional(number),
      comment: optional(text),
    },
    redirectURL: text,
    headersSize: count,
    bodySize: count,
  },
  cache: {},
  timings: { blocked: duration, connect: duration, send: known, wait: known, receive: known },
  comment: optional(text),
};
const postShape: Shape = { mimeType: text, params: [pair], text };
const fileShape: Shape = {
  log: {
    version: (value) => value === "1.2",
    creator: { name: text, version: text },
    pages: [{}],
    entries: [entryShape],
  },
};

function faultsOf(value: unknown, shape: Shape, place: string): string[] {
  if (typeof value !== "object" || value === null) return [`${place} is no object`];
  return Object.entries(shape).flatMap(([name, each]) => {
    const member = (value as Record<string, unknown>)[name];
    const at = `${place}.${name}`;
    if (typeof each === "function") return each(member) ? [] : [`${at}: ${JSON.stringify(member)}`];
    if (!Array.isArray(each)) return faultsOf(member, each as Shape, at);
    if (!Array.isArray(member)) return [`${at} is no array`];
    return member.flatMap((item, i) => faultsOf(item, each[0] as Shape, `${at}[${i}]`));
  });
}

/** Returns the faults of a parsed HAR file. */
export function findHarFaults(har: unknown): string[] {
  const faults = faultsOf(har, fileShape, "har");
  if (faults.length > 0) return faults;
  const { entries } = (har as { log: { entries: HarEntry[] } }).log;
  for (const [i, { request, time, timings }] of entries.entries()) {
    const place = `har.log.entries[${i}]`;
    if (request.postData) faults.push(...faultsOf(request.postData, postShape, place));
    // `time` is the sum of all timings that are known.
    const sum = Object.values(timings).reduce((all, each) => all + Math.max(0, each), 0);
    if (Math.abs(sum - time) > 0.01) faults.push(`${place}.time is not the sum of timings`);
  }
  return faults;
}

/** Reads the entries of a recording, which must be valid. */
export function readEntries(path: string): HarEntry[] {
  const har = JSON.parse(readFileSync(path, "utf8")) as { log: { entries: HarEntry[] } };
  const faults = findHarFaults(har);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return har.log.entries;
}

/** Returns the entry whose URL has this path. */
export function entryOf(entries: readonly HarEntry[], path: string, method?: string): HarEntry {
  const found = entries.find(
    ({ request }) =>
      new URL(request.url).pathname === path && (method === undefined || request.method === method),
  );
  if (found === undefined) throw new Error(`no entry of ${path}`);
  return found;
}

/** Returns the value of a field of a message. */
export function fieldOf(
  { headers }: HarEntry["request"] | HarEntry["response"],
  name: string,
): string | undefined {
  return headers.find((each) => each.name.toLowerCase() === name)?.value;
}
