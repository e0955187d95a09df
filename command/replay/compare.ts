/** Compares the responses of two HAR entries. */
import { createHash } from "node:crypto";
import { redactField } from "../log/redact.ts";
import type { HarEntry } from "../record/harentry.ts";

/** A part of a response that differs. `recorded` and `replayed` describe it; null if the response has no such field. */
export interface Difference {
  readonly part: "status" | "field" | "body";
  /** The name of the header field; undefined for other parts. */
  readonly name?: string;
  readonly recorded: string | null;
  readonly replayed: string | null;
}

/** Fields that are not compared: they describe the connection, or differ between any two responses to the same request. */
export const IGNORED: readonly string[] = [
  "age",
  "alt-svc",
  "cf-ray",
  "connection",
  "date",
  "expires",
  "keep-alive",
  "request-id",
  "server-timing",
  "traceparent",
  "transfer-encoding",
  "via",
  "x-amz-id-2",
  "x-amz-request-id",
  "x-amzn-requestid",
  "x-amzn-trace-id",
  "x-b3-traceid",
  "x-cloud-trace-context",
  "x-correlation-id",
  "x-request-id",
  "x-response-time",
  "x-runtime",
  "x-trace-id",
];

/**
 * Returns the differences between a recorded response and another response to the same request.
 * @param ignored the names of the fields that may differ, in lower case
 */
export function compareResponses(
  one: HarEntry,
  other: HarEntry,
  ignored: ReadonlySet<string>,
): Difference[] {
  const [recorded, replayed] = [one.response, other.response];
  const differences: Difference[] = [];
  const note = (difference: Difference): void => {
    if (difference.recorded !== difference.replayed) differences.push(difference);
  };
  note({ part: "status", recorded: `${recorded.status}`, replayed: `${replayed.status}` });
  const [before, after] = [collectFields(one), collectFields(other)];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    // HAR files of browsers also list the pseudo-header fields of HTTP/2.
    if (ignored.has(name) || name.startsWith(":")) continue;
    // The bodies themselves are compared below, and another content coding may change the length.
    if (name === "content-length" && one.request.method !== "HEAD") continue;
    const values = { recorded: before.get(name) ?? null, replayed: after.get(name) ?? null };
    note({ part: "field", name, ...values });
  }
  if (!isSameBody(recorded.content, replayed.content)) {
    const bodies = [recorded.content, replayed.content].map(describeBody) as [string, string];
    differences.push({ part: "body", recorded: bodies[0], replayed: bodies[1] });
  }
  return differences;
}

/**
 * Collects the values of each field of a response. Secrets are replaced, because they are replaced in most recordings. The
 * origin of the server itself, for example in `Location`, is removed, because the target has another one.
 */
function collectFields({ request, response }: HarEntry): Map<string, string> {
  const origin = originOf(request.url);
  const groups = Map.groupBy(response.headers, ({ name }) => name.toLowerCase());
  return new Map(
    Array.from(groups, ([name, group]) => {
      const values = group.map(({ value }) => redactField(name, value).replaceAll(origin, ""));
      return [name, values.join(", ")];
    }),
  );
}

/** Returns the scheme and the authority of a URL, unchanged. */
export function originOf(url: string): string {
  return /^\w+:\/\/[^/?#]*/.exec(url)?.[0] ?? url;
}

type Content = HarEntry["response"]["content"];

/** Whether the recording has the whole body of a response, or at least its digest. */
export function isComparable({ text, _truncated, _sha256, size }: Content): boolean {
  // HAR files of browsers have no text in some entries.
  if (text === undefined) return size === 0;
  return _truncated !== true || _sha256 !== undefined;
}

function isSameBody(recorded: Content, replayed: Content): boolean {
  if (!isComparable(recorded)) return true;
  if (recorded._sha256 !== undefined) return recorded._sha256 === replayed._sha256;
  const [one, other] = [bytesOf(recorded), bytesOf(replayed)];
  if (replayed._truncated === true) return false;
  if (one.equals(other)) return true;
  // In HAR files of browsers, text of other charsets than UTF-8 is already decoded.
  const isText = recorded.encoding === undefined && replayed.encoding !== undefined;
  return isText && recorded.text === decode(other, replayed.mimeType);
}

function bytesOf({ text = "", encoding }: Content): Buffer {
  return Buffer.from(text, encoding === "base64" ? "base64" : "utf8");
}

function decode(bytes: Uint8Array, mimeType: string): string | undefined {
  const [, charset] = /;\s*charset="?([^\s";]+)/i.exec(mimeType) ?? [];
  try {
    return new TextDecoder(charset).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Describes a body by the beginning of its digest, and its size. */
function describeBody(content: Content): string {
  const digest = content._sha256 ?? createHash("sha256").update(bytesOf(content)).digest("hex");
  return `sha256 ${digest.slice(0, 12)}, ${content.size} bytes`;
}
