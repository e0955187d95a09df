import { badRequest, unsendable } from "../error.ts";
import type { BodySource } from "../body/source.ts";
import type { HeaderList, UpstreamRequest } from "../transport.ts";
import { TOKEN } from "./head.ts";
import { badLength } from "./writer.ts";

/** In a value, the end of a line would begin another field, or another request. */
const UNSENDABLE = /[^\t -~\u0080-\u00ff]/;
const TARGET = /^[!-~\u0080-\u00ff]+$/;
/** Their content has no meaning: where there is none, nothing is said of it (RFC 9110 §8.6). */
const BODYLESS = /^(?:GET|HEAD|DELETE|OPTIONS|TRACE)$/;

/**
 * A body that has arrived as a whole.
 * @returns undefined for one that is still arriving
 * @throws ProxyError for one that is not as long as its Content-Length, or broke off
 */
export function wholeBody(body: BodySource, contentLength?: number): Uint8Array | undefined {
  const bytes = body.whole();
  const isWrong = contentLength !== undefined && bytes?.byteLength !== contentLength;
  if (bytes !== undefined && isWrong) throw badLength();
  return bytes;
}

/**
 * The head of a request, but for what is known only when it is sent.
 * @throws ProxyError for what cannot be sent as it is
 */
export function writeHead({ method, path, upstream, host, headers }: UpstreamRequest): string {
  // CONNECT asks for a tunnel, not for a response.
  if (method === "CONNECT" || !TOKEN.test(method)) throw unsendable(method);
  if (!TARGET.test(path)) throw badRequest("path");
  const fields = writeFields(["Host", host ?? upstream.host]) + writeFields(headers);
  return `${method} ${path} HTTP/1.1\r\n${fields}`;
}

/**
 * The rest of a head: the framing of the body, and what becomes of the connection.
 * @param length bytes of the body, 0 for none; undefined for chunked coding
 */
export function writeHeadEnd(
  method: string,
  length: number | undefined,
  keepAlive: boolean,
): string {
  const framing = writeFraming(method, length);
  return `${framing}Connection: ${keepAlive ? "keep-alive" : "close"}\r\n\r\n`;
}

function writeFields(list: HeaderList): string {
  let lines = "";
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    const value = list[i + 1] as string;
    if (!TOKEN.test(name) || UNSENDABLE.test(value)) throw badRequest(name);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

function writeFraming(method: string, length: number | undefined): string {
  if (length === 0) return BODYLESS.test(method) ? "" : "Content-Length: 0\r\n";
  return length === undefined ? "Transfer-Encoding: chunked\r\n" : `Content-Length: ${length}\r\n`;
}
