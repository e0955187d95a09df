/** Reads and writes HTTP/1.1 strictly. A lenient library could hide framing errors. */

export type Header = [name: string, value: string];

export interface Head {
  start: string;
  headers: Header[];
}

export type Framing =
  | { kind: "none" }
  | { kind: "length"; length: number }
  | { kind: "chunked" }
  | { kind: "close" };

const headerLine: RegExp = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*$/;
const control: RegExp = /[\0\r\n]/;

export function parseHead(text: string): Head {
  const [start = "", ...lines] = text.split("\r\n");
  if (control.test(start)) throw new Error(`malformed start line ${JSON.stringify(start)}`);
  const headers = lines.map((line): Header => {
    const match = control.test(line) ? null : headerLine.exec(line);
    if (!match) throw new Error(`malformed header line ${JSON.stringify(line)}`);
    return [match[1] ?? "", match[2] ?? ""];
  });
  return { start, headers };
}

export function valuesOf(headers: readonly Header[], name: string): string[] {
  const wanted = name.toLowerCase();
  return headers.filter(([key]) => key.toLowerCase() === wanted).map(([, value]) => value);
}

/** Determines the framing by RFC 9112 §6.3, but without its recovery rules: ambiguous framing is an error. */
export function readFraming(headers: readonly Header[], absent: "none" | "close"): Framing {
  const codings = valuesOf(headers, "transfer-encoding");
  const lengths = valuesOf(headers, "content-length");
  if (codings.length > 0 && lengths.length > 0) {
    throw new Error("malformed: both transfer-encoding and content-length");
  }
  if (codings.length > 0) {
    if (codings.length === 1 && codings[0]?.toLowerCase() === "chunked") return { kind: "chunked" };
    throw new Error(`malformed transfer-encoding ${JSON.stringify(codings)}`);
  }
  if (lengths.length === 0) return { kind: absent };
  if (lengths.length > 1 || !/^\d+$/.test(lengths[0] ?? "")) {
    throw new Error(`malformed content-length ${JSON.stringify(lengths)}`);
  }
  return { kind: "length", length: Number(lengths[0]) };
}

/** Reads the bytes of a body as they arrive, and finds its end and the bytes behind it. */
export class BodyReader {
  done: boolean;
  trailers: Header[] = [];
  readonly #chunked: boolean;
  #left: number;
  #state: "size" | "data" | "line-end" | "trailers" = "data";
  #line: Buffer = Buffer.alloc(0);

  constructor(framing: Framing) {
    this.#chunked = framing.kind === "chunked";
    this.#left =
      framing.kind === "length" ? framing.length : framing.kind === "close" ? Infinity : 0;
    this.done = framing.kind === "none" || (framing.kind === "length" && framing.length === 0);
    if (this.#chunked) this.#state = "size";
  }

  /** Returns the bytes that follow the body. */
  feed(data: Buffer, emit: (piece: Buffer) => void): Buffer {
    let rest = data;
    while (rest.length > 0 && !this.done) {
      if (this.#state !== "data") {
        rest = this.#feedLine(rest);
        continue;
      }
      const piece = rest.subarray(0, Math.min(this.#left, rest.length));
      rest = rest.subarray(piece.length);
      this.#left -= piece.length;
      emit(piece);
      if (this.#left > 0) continue;
      if (this.#chunked) this.#state = "line-end";
      else this.done = true;
    }
    return rest;
  }

  #feedLine(data: Buffer): Buffer {
    const joined = Buffer.concat([this.#line, data]);
    const end = joined.indexOf("\r\n");
    if (end === -1) {
      if (joined.length > 65_536) throw new Error("malformed chunk: endless line");
      this.#line = joined;
      return joined.subarray(joined.length);
    }
    this.#line = Buffer.alloc(0);
    const line = joined.toString("latin1", 0, end);
    if (this.#state === "size") {
      if (!/^[0-9a-fA-F]{1,12}(?:[ \t]*;.*)?$/.test(line)) {
        throw new Error(`malformed chunk size ${JSON.stringify(line)}`);
      }
      this.#left = Number.parseInt(line, 16);
      this.#state = this.#left === 0 ? "trailers" : "data";
    } else if (this.#state === "line-end") {
      if (line !== "") throw new Error("malformed chunk: data longer than its size");
      this.#state = "size";
    } else if (line === "") {
      this.done = true;
    } else {
      this.trailers.push(...parseHead(`\r\n${line}`).headers);
    }
    return joined.subarray(end + 2);
  }
}

export function bytesOf(data: string | Uint8Array): Buffer {
  return typeof data === "string" ? Buffer.from(data, "latin1") : Buffer.from(data);
}

export function chunk(data: string | Uint8Array): Buffer {
  const bytes = bytesOf(data);
  return Buffer.concat([bytesOf(`${bytes.length.toString(16)}\r\n`), bytes, bytesOf("\r\n")]);
}

export const lastChunk: Buffer = Buffer.from("0\r\n\r\n");

function message(start: string, headers: Header[], body?: string | Uint8Array): Buffer {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return Buffer.concat([bytesOf(`${start}\r\n${lines}\r\n`), bytesOf(body ?? "")]);
}

function isFramed(headers: Header[]): boolean {
  return headers.some(([name]) => /^(?:content-length|transfer-encoding)$/i.test(name));
}

/**
 * Returns the exact bytes of a request. Adds Host if `headers` lacks it, and Content-Length if `headers` does not frame `body`.
 */
export function request(
  method: string,
  target: string,
  headers: Header[] = [],
  body?: string | Uint8Array,
): Buffer {
  const all: Header[] = [...headers];
  if (valuesOf(all, "host").length === 0) all.unshift(["Host", "proxy.test"]);
  if (body !== undefined && !isFramed(all)) {
    all.push(["Content-Length", String(bytesOf(body).length)]);
  }
  return message(`${method} ${target} HTTP/1.1`, all, body);
}

/**
 * Returns the exact bytes of a response. Content-Length is added unless `headers` frames the body or `body` is null.
 */
export function response(
  status: number | string,
  headers: Header[] = [],
  body: string | Uint8Array | null = "",
): Buffer {
  const all: Header[] = [...headers];
  if (body !== null && !isFramed(all)) all.push(["Content-Length", String(bytesOf(body).length)]);
  const line = typeof status === "number" ? `${status} Status` : status;
  return message(`HTTP/1.1 ${line}`, all, body ?? "");
}
