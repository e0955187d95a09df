/** Reads the request of `--inspect` from the command line, and writes its bytes for the server. */
import { quoteInput } from "#fetchway/options";
import { TOKEN, isAuthority, authorityOf, pathOf } from "#fetchway/requests";
import type { HeaderList } from "#fetchway/transport";
import { UsageError } from "../flags/read.ts";

export interface InspectedRequest {
  readonly method: string;
  /** The scheme, if it is typed. */
  readonly scheme: "http" | "https" | undefined;
  /** The request target in origin-form, byte for byte as it is typed. */
  readonly path: string;
  /** All fields, also `Host`. */
  readonly headers: HeaderList;
}

const FORM = 'write it as "GET http://shop.example/path", or as a URL or a path alone';

/**
 * Reads the values of `--inspect` and `--inspect-header`.
 * @param own the authority of the server itself, which is the `Host` of a request that is typed as a path
 * @throws UsageError
 */
export function readInspected(
  text: string,
  fields: readonly string[] = [],
  own = "localhost",
): InspectedRequest {
  const [, method = "GET", url = ""] = /^(?:(\S+) +)?(\S+)$/.exec(text.trim()) ?? [];
  if (!TOKEN.test(method) || url === "" || /^(?!https?:)[a-z]+:\/\//i.test(url)) {
    throw new UsageError(`--inspect ${quoteInput(text)}: ${FORM}`);
  }
  const whole = /^\/(?!\/)|\/\//.test(url) ? url : `http://${url}`;
  const authority = whole.startsWith("/") ? own : authorityOf(whole);
  if (authority === "" || !isAuthority(authority))
    throw new UsageError(`--inspect ${quoteInput(text)}: ${FORM}`);
  const headers = fields.flatMap(readInspectedField);
  const names = headers.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  if (!names.includes("host")) headers.unshift("Host", authority);
  const scheme = /^(https?):/i.exec(url)?.[1]?.toLowerCase() as "http" | "https" | undefined;
  return { method, scheme, path: pathOf(whole), headers };
}

function readInspectedField(text: string): [string, string] {
  const colon = text.indexOf(":");
  const name = text.slice(0, Math.max(colon, 0));
  const value = text.slice(colon + 1).trim();
  // oxlint-disable-next-line no-control-regex
  if (!TOKEN.test(name) || /[\u0000\r\n]|[^\u0000-\u00ff]/.test(value)) {
    const label = name === "" ? "" : ` ${quoteInput(name)}`;
    throw new UsageError(`--inspect-header${label}: write it as "name: value"`);
  }
  return [name, value];
}

/** Writes the bytes of a request, without a body. */
export function writeInspected({ method, path, headers }: InspectedRequest): Buffer {
  let text = `${method} ${path} HTTP/1.1\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return Buffer.from(`${text}\r\n`, "latin1");
}
