/**
 * Makes entries of HAR 1.2, the file format in which browsers save and open requests.
 * @see http://www.softwareishard.com/blog/har-12-spec/
 */
import * as zlib from "node:zlib";
import type { RequestEnd } from "#fetchway";
import { getHeader, type HeaderList } from "#fetchway/transport";
import { diagnoseFailure, isClientGone } from "../log/causes.ts";
import { redactField, redactQuery } from "../log/redact.ts";
import { sumOf } from "../status/recent.ts";
import type { CapturedAttempt, Tap } from "./capture.ts";

/** A header field, a cookie, or a parameter of the query. */
export interface HarPair {
  readonly name: string;
  readonly value: string;
}

/** Begins the part of `comment` that names the content codings which a recorded body still has. */
export const STILL_CODED = "in the content coding";

/** A body. HAR does not define the members that begin with `_`. */
export interface HarBody {
  readonly mimeType: string;
  /** The body as text or in base64, without its content codings unless `comment` names them; undefined if it is not known. */
  readonly text?: string;
  /** `base64` if `text` is in base64. */
  readonly encoding?: string;
  /** Whether `text` is only the beginning of the body. */
  readonly _truncated?: boolean;
  /** The SHA-256 digest of the whole body with its content codings, if `text` is truncated. */
  readonly _sha256?: string;
  readonly comment?: string;
}

/** The body of a request. HAR allows only text here, so `_encoding` takes the place of `encoding`. */
export interface HarPostData extends Omit<HarBody, "encoding"> {
  readonly params: readonly HarPair[];
  readonly _encoding?: string;
}

/** A request with its response. */
export interface HarEntry {
  readonly startedDateTime: string;
  readonly time: number;
  readonly request: {
    readonly method: string;
    readonly url: string;
    readonly httpVersion: string;
    readonly cookies: readonly HarPair[];
    readonly headers: readonly HarPair[];
    readonly queryString: readonly HarPair[];
    readonly postData?: HarPostData;
    readonly headersSize: number;
    readonly bodySize: number;
  };
  readonly response: {
    /** The status; 0 if there was no response. */
    readonly status: number;
    readonly statusText: string;
    readonly httpVersion: string;
    readonly cookies: readonly HarPair[];
    readonly headers: readonly HarPair[];
    readonly content: HarBody & {
      readonly size: number;
      readonly compression?: number;
    };
    readonly redirectURL: string;
    readonly headersSize: number;
    readonly bodySize: number;
    /** Why there was no response, or why its body was cut off. */
    readonly _error?: string;
  };
  readonly cache: object;
  readonly timings: Readonly<Record<"blocked" | "connect" | "send" | "wait" | "receive", number>>;
  readonly _resourceType?: string;
  readonly comment?: string;
}

/** Which parts of messages the entries have. */
export interface EntrySettings {
  /** The maximum size of each body in bytes, both with its content codings and after they are removed. */
  readonly maxBody: number;
  /** Whether secrets are recorded, instead of being replaced with `REDACTED`. */
  readonly secrets: boolean;
}

/**
 * Makes the entry of an attempt.
 * @param end the report on the exchange, for its last attempt; undefined for an attempt that was followed by another one
 * @param isOnly whether the exchange has no other attempt, so that all times of the report are those of the attempt
 */
export async function toEntry(
  attempt: CapturedAttempt,
  end: RequestEnd | undefined,
  isOnly: boolean,
  { maxBody, secrets }: EntrySettings,
): Promise<HarEntry> {
  const { request, response, sent, received, httpVersion } = attempt;
  const { upstream, upgrade } = request;
  const redact = secrets ? (_: string, value: string): string => value : redactField;
  const toPairs = (list: HeaderList): HarPair[] =>
    list.flatMap((name, i) => {
      return i % 2 === 0 ? [{ name, value: redact(name, list[i + 1] as string) }] : [];
    });
  const sentFields = toPairs([
    "Host",
    request.host ?? upstream.host,
    ...(upgrade === undefined ? [] : ["Upgrade", upgrade]),
    ...request.headers,
  ]);
  // The URL of `OPTIONS *` has no path (RFC 9112 §3.3).
  const url = upstream.origin + (request.path === "*" ? "" : request.path);
  const shownUrl = secrets ? url : redactQuery(url);
  const { status = 0, statusText = "", headers = [] } = response ?? {};
  const receivedFields = toPairs(headers);
  const timings = toTimings(attempt, end, isOnly);
  const known = Object.values(timings).filter((time) => time > 0);
  const failure = attempt.error ?? end?.error;
  return {
    startedDateTime: new Date(isOnly && end ? end.startedAt : attempt.startedAt).toISOString(),
    time: round(sumOf(known)),
    request: {
      method: request.method,
      url: shownUrl,
      httpVersion,
      cookies: cookiesOf(sentFields, "cookie"),
      headers: sentFields,
      queryString: queryOf(shownUrl),
      ...(sent && { postData: await toPostData(sent, request.headers, maxBody) }),
      headersSize: -1,
      bodySize: sent?.size ?? 0,
    },
    response: {
      status,
      statusText,
      httpVersion,
      cookies: cookiesOf(receivedFields, "set-cookie"),
      headers: receivedFields,
      content: received
        ? await toContent(received, headers, maxBody)
        : { size: 0, mimeType: getHeader(headers, "content-type") ?? "" },
      redirectURL: redact("location", getHeader(headers, "location") ?? ""),
      headersSize: -1,
      bodySize: received?.size ?? (response === undefined ? -1 : 0),
      ...(failure !== undefined && { _error: describeError(failure) }),
    },
    cache: {},
    timings,
    ...(upgrade?.toLowerCase() === "websocket" && { _resourceType: "websocket" }),
    ...(upstream.socketPath !== undefined && { comment: `unix:${upstream.socketPath}` }),
  };
}

function describeError(error: unknown): string {
  if (isClientGone(error)) return "the client disconnected";
  const { code, cause } = diagnoseFailure(error);
  return `${code}: ${cause}`;
}

/**
 * Returns the times of an attempt in milliseconds; -1 for unknown ones. The time to send the request is a part of `wait`,
 * because the upstream may respond before it has read the whole request.
 */
function toTimings(
  { duration, response }: CapturedAttempt,
  end: RequestEnd | undefined,
  isOnly: boolean,
): HarEntry["timings"] {
  const { held = 0, queue = 0, connect = -1, firstByte = 0, total = 0 } = end?.timings ?? {};
  // Of several attempts, the report has `connect` of the last one, but its other times cover all of them.
  const headersAt = !isOnly ? duration : response === undefined ? total : firstByte;
  const blocked = isOnly ? Math.min(held + queue, headersAt) : -1;
  const connecting = Math.min(connect, headersAt - Math.max(0, blocked));
  const wait = headersAt - Math.max(0, blocked) - Math.max(0, connecting);
  const receive = isOnly ? total - headersAt : 0;
  return {
    blocked: round(blocked),
    connect: round(connecting),
    send: 0,
    wait: round(wait),
    receive: round(receive),
  };
}

/** Rounds milliseconds to microseconds. */
function round(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

function cookiesOf(fields: readonly HarPair[], name: "cookie" | "set-cookie"): HarPair[] {
  const values = fields.filter((field) => field.name.toLowerCase() === name);
  return values.flatMap(({ value }) => {
    const pairs = name === "cookie" ? value.split(";") : value.split(";", 1);
    return pairs.map((pair) => {
      const at = pair.indexOf("=");
      return at < 0
        ? { name: pair.trimStart(), value: "" }
        : { name: pair.slice(0, at).trimStart(), value: pair.slice(at + 1).trimEnd() };
    });
  });
}

function queryOf(url: string): HarPair[] {
  const at = url.indexOf("?");
  if (at < 0) return [];
  return Array.from(new URLSearchParams(url.slice(at)), ([name, value]) => ({ name, value }));
}

// ── bodies ──

async function toPostData(tap: Tap, headers: HeaderList, maxBody: number): Promise<HarPostData> {
  const { encoding, ...body } = await toBody(tap, headers, maxBody);
  return { params: [], ...body, ...(encoding !== undefined && { _encoding: encoding }) };
}

async function toContent(
  tap: Tap,
  headers: HeaderList,
  maxBody: number,
): Promise<HarEntry["response"]["content"]> {
  const body = await toBody(tap, headers, maxBody);
  const { text = "", encoding, _truncated: isTruncated = false } = body;
  const size = isTruncated ? tap.size : Buffer.byteLength(text, encoding as BufferEncoding);
  return { size, ...(size !== tap.size && { compression: size - tap.size }), ...body };
}

/** Makes the members that `postData` and `content` have in common. */
async function toBody(tap: Tap, headers: HeaderList, maxBody: number): Promise<HarBody> {
  const codings = getHeader(headers, "content-encoding") ?? "";
  const decoded = await decodeContent(tap.bytes, codings, maxBody, tap.isWhole);
  const { bytes, isWhole } = decoded ?? { bytes: tap.bytes, isWhole: tap.isWhole };
  const comments = [
    ...(isWhole ? [] : [tap.isComplete ? "truncated" : "incomplete"]),
    ...(decoded === undefined ? [`${STILL_CODED} ${codings}`] : []),
  ];
  const text = toText(bytes, isWhole);
  const digest = isWhole ? undefined : tap.digest();
  return {
    mimeType: getHeader(headers, "content-type") ?? "",
    text: text ?? Buffer.from(bytes).toString("base64"),
    ...(text === undefined && { encoding: "base64" }),
    ...(!isWhole && { _truncated: true }),
    ...(digest !== undefined && { _sha256: digest }),
    ...(comments.length > 0 && { comment: comments.join(", ") }),
  };
}

/** Matches control characters that do not occur in text. */
// oxlint-disable-next-line no-control-regex
const BINARY = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/;

/** Returns bytes as text; undefined for binary data, and for text that is not UTF-8. */
function toText(bytes: Uint8Array, isWhole: boolean): string | undefined {
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    // With `stream`, the decoder leaves out a character that is cut at the end.
    const text = decoder.decode(bytes, { stream: !isWhole });
    return BINARY.test(text) ? undefined : text;
  } catch {
    return undefined;
  }
}

/** The maximum number of content codings that are removed. Senders rarely apply more than one. */
const MAX_DECODINGS = 5;

/** Returns the decoder of a content coding; undefined if the runtime has none. */
function createDecoder(coding: string): NodeJS.ReadWriteStream | undefined {
  // Older versions of the runtimes have no zstd.
  const { createZstdDecompress } = zlib as Partial<typeof zlib>;
  switch (coding) {
    case "gzip":
    case "x-gzip":
      return zlib.createGunzip();
    case "deflate":
      return zlib.createInflate();
    case "br":
      return zlib.createBrotliDecompress();
    case "zstd":
      return createZstdDecompress?.();
    default:
      return undefined;
  }
}

/**
 * Removes the content codings of a body, or of its beginning.
 * @param codings a value of `Content-Encoding`
 * @param limit the maximum number of bytes of the result
 * @param isWhole whether the bytes are the whole body
 * @returns undefined if the runtime has no decoder, if the bytes are not in these codings, or if there are too many codings
 */
async function decodeContent(
  bytes: Uint8Array,
  codings: string,
  limit: number,
  isWhole: boolean,
): Promise<{ readonly bytes: Uint8Array; readonly isWhole: boolean } | undefined> {
  const names = codings.toLowerCase().split(",");
  const applied = names.map((name) => name.trim()).filter((name) => !/^(?:identity)?$/.test(name));
  if (applied.length > MAX_DECODINGS) return undefined;
  let decoded = { bytes, isWhole };
  for (const coding of applied.toReversed()) {
    const decoder = createDecoder(coding);
    if (decoder === undefined) return undefined;
    const result = await readUpTo(decoder, decoded.bytes, limit);
    // If the body is cut off, the decoder always fails at the end, after it has decoded the beginning.
    if (decoded.isWhole && result.hasFailed) return undefined;
    decoded = { bytes: result.bytes, isWhole: decoded.isWhole && result.isWhole };
  }
  return decoded;
}

async function readUpTo(decoder: NodeJS.ReadWriteStream, bytes: Uint8Array, limit: number) {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let hasFailed = false;
  decoder.end(bytes);
  try {
    for await (const chunk of decoder) {
      chunks.push(chunk as Buffer);
      size += (chunk as Buffer).byteLength;
      // Otherwise, a few bytes could expand to gigabytes. Leaving the loop destroys the decoder.
      if (size > limit) break;
    }
  } catch {
    hasFailed = true;
  }
  const isWhole = !hasFailed && size <= limit;
  return { bytes: Buffer.concat(chunks).subarray(0, limit), isWhole, hasFailed };
}
