import { ProxyError } from "../error.ts";
import type { HeaderList } from "../transport.ts";
import { malformed } from "./lines.ts";

/** Instead of a length: the body comes in chunks, */
export const CHUNKED = -1;
/** or ends with its connection. */
export const UNTIL_CLOSE = -2;

/** The head of a response, and what it says of the bytes behind it. */
export interface ResponseHead {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  /** Bytes of the body, or one of the above. */
  readonly length: number;
  /** Whether its connection can take another request. */
  readonly persistent: boolean;
  /** Milliseconds that the upstream says it keeps the connection. */
  readonly keptFor: number;
}

/** Control characters, and halves of line ends: whoever reads them as something else sees another head. */
const UNCLEAR = /[^\t\r\n -~\u0080-\u00ff]|\r(?!\n)/;
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/;
/** A field's name, or a method. */
export const TOKEN: RegExp = /^[!#$%&'*+.^_`|~\w-]+$/;
const LENGTH = /^\d{1,15}$/;
/** Within a line that is not unclear, the only characters up to this one are spaces and tabs. */
const SPACE = 0x20;

/**
 * Reads a response's head, its line ends included.
 * @param isHead whether HEAD was asked: a body's length says nothing then
 * @throws ProxyError for what is malformed, or could be read in two ways
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-6.3
 */
export function parseHead(text: string, isHead: boolean): ResponseHead {
  const end = text.indexOf("\r\n");
  const [, minor, digits, statusText = ""] = STATUS_LINE.exec(text.slice(0, end)) ?? [];
  if (digits === undefined) throw malformed("status line");
  const status = Number(digits);
  const headers = parseFields(text, end + 2);
  let connection = "";
  let length: number | undefined;
  let coding: string | undefined;
  let keptFor = Infinity;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    switch (name.length) {
      case 10:
        if (/^connection$/i.test(name)) connection += `${value},`;
        else if (/^keep-alive$/i.test(name)) keptFor = parseHint(value);
        break;
      case 14:
        if (!/^content-length$/i.test(name)) break;
        if (length !== undefined || !LENGTH.test(value)) throw malformed("Content-Length");
        length = Number(value);
        break;
      case 17:
        if (/^transfer-encoding$/i.test(name)) {
          coding = coding === undefined ? value.toLowerCase() : `${coding}, ${value}`;
        }
        break;
    }
  }
  if (coding !== undefined && length !== undefined) throw malformed("framing");
  if (coding !== undefined && coding !== "chunked" && coding !== "identity") {
    throw new ProxyError("http_response_transfer_coding", { message: `upstream sent ${coding}` });
  }
  const bodyless = isHead || status === 204 || status === 304 || status < 200;
  const framed = coding === "chunked" ? CHUNKED : (length ?? UNTIL_CLOSE);
  // Nobody who speaks 1.0 can have meant a coding of 1.1 (RFC 9112 §6.1).
  const persistent = isPersistent(connection, minor === "1") && !(minor === "0" && coding);
  return {
    status,
    statusText,
    headers,
    length: bodyless ? 0 : framed,
    persistent,
    keptFor,
  };
}

/**
 * Reads fields, each with its line end, and the empty line behind them. Nothing in the text may be unclear.
 * @throws ProxyError for a line that is none: folded ones, too (RFC 9112 §5.2)
 */
export function parseFields(text: string, from: number): HeaderList {
  if (UNCLEAR.test(text)) throw malformed("head");
  const fields: HeaderList = [];
  for (let at = from; at < text.length - 2;) {
    const end = text.indexOf("\r\n", at);
    const colon = text.indexOf(":", at);
    const name = text.slice(at, colon);
    // A colon of a later line, or none, leaves a line end in the name.
    if (!TOKEN.test(name)) throw malformed("field");
    let first = colon + 1;
    let last = end;
    while (first < last && text.charCodeAt(first) <= SPACE) first++;
    while (last > first && text.charCodeAt(last - 1) <= SPACE) last--;
    fields.push(name, text.slice(first, last));
    at = end + 2;
  }
  return fields;
}

/**
 * Whether the connection stays open (RFC 9112 §9.3).
 * @param connection values of `Connection`, each with a comma behind it
 */
function isPersistent(connection: string, byDefault: boolean): boolean {
  const options = connection.toLowerCase();
  // Nearly every Connection field says just this.
  if (options === "keep-alive,") return true;
  let persistent = byDefault;
  // To split at commas with white space around them takes quadratic time.
  for (let at = 0; at < options.length;) {
    const end = options.indexOf(",", at);
    let last = end;
    // `trim()` would take other characters off as well.
    while (options.charCodeAt(at) <= SPACE) at++;
    while (last > at && options.charCodeAt(last - 1) <= SPACE) last--;
    const option = options.slice(at, last);
    if (option === "close") return false;
    if (option === "keep-alive") persistent = true;
    at = end + 1;
  }
  return persistent;
}

function parseHint(value: string): number {
  const seconds = /timeout=(\d+)/i.exec(value)?.[1];
  return seconds === undefined ? Infinity : Number(seconds) * 1000;
}
