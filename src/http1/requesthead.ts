import { badRequest } from "../error.ts";
import { unsendable } from "../fetch.ts";
import type { HeaderList, Hop } from "../transport.ts";
import { TOKEN } from "./head.ts";
import { badLength } from "./writer.ts";

/** In a value, the end of a line would begin another field, or another request. */
const UNSENDABLE = /[^\t -~\u0080-\u00ff]/;
const TARGET = /^[!-~\u0080-\u00ff]+$/;
/** Their content has no meaning: where there is none, nothing is said of it (RFC 9110 §8.6). */
const BODYLESS = /^(?:GET|HEAD|DELETE|OPTIONS|TRACE)$/;

/**
 * What is to be sent, with a body that is here as a whole by now as bytes.
 * @throws ProxyError for a whole body that is not as long as was announced
 */
export function settle(hop: Hop): Hop {
  const { body, contentLength } = hop;
  const whole = body !== null && "whole" in body ? body.whole?.() : undefined;
  if (whole === undefined) return hop;
  if (contentLength !== undefined && whole.byteLength !== contentLength) throw badLength();
  return { ...hop, body: whole.byteLength > 0 ? whole : null };
}

/**
 * The head of a request, but for what is known only when it is sent.
 * @throws ProxyError for what cannot be sent as it is
 */
export function writeHead({ method, path, upstream, host, headers }: Hop): string {
  // CONNECT asks for a tunnel, not for a response.
  if (method === "CONNECT" || !TOKEN.test(method)) throw unsendable(method);
  if (!TARGET.test(path)) throw badRequest("path");
  const fields = writeFields(["Host", host ?? upstream.host]) + writeFields(headers);
  return `${method} ${path} HTTP/1.1\r\n${fields}`;
}

/** The rest of a head: what of its connection, and the framing that its body has. */
export function writeHeadEnd(hop: Hop, keepAlive: boolean): string {
  return `${writeFraming(hop)}Connection: ${keepAlive ? "keep-alive" : "close"}\r\n\r\n`;
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

function writeFraming({ method, body, contentLength }: Hop): string {
  const length = body instanceof Uint8Array ? body.byteLength : contentLength;
  if (body === null || length === 0) {
    return BODYLESS.test(method) ? "" : "Content-Length: 0\r\n";
  }
  return length === undefined ? "Transfer-Encoding: chunked\r\n" : `Content-Length: ${length}\r\n`;
}
