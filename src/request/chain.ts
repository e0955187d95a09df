import type { HeaderList } from "../transport.ts";
import type { Trust } from "./trust.ts";
import { trimOws } from "../fields/whitespace.ts";

/**
 * Cuts what a trusted peer says of the client down to what trusted proxies wrote.
 *
 * Each proxy appends the address of its peer. So the chain is walked from the right as long as it names
 * trusted addresses: the first other address is the client, and the client wrote what stands left of it.
 * A list in `X-Forwarded-Proto`, `-Host` or `-Port` does not tell which proxy wrote which value. So it
 * stays whole only where `X-Forwarded-For` names trusted addresses alone. Otherwise its last value stays,
 * also without `X-Forwarded-For`: then only the peer itself is known to have written one.
 * A malformed `Forwarded` is dropped as a whole, as are `_` aliases.
 * @see https://www.rfc-editor.org/rfc/rfc7239#section-8.1
 */
export function cutChain(headers: HeaderList, trusts: Trust): HeaderList {
  const left: HeaderList = [];
  const lines: string[] = [];
  const forwarded: string[] = [];
  const asked: [name: string, value: string][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    const lower = name.toLowerCase();
    if (lower === "x-forwarded-for") lines.push(value);
    else if (lower === "forwarded") forwarded.push(value);
    else if (/^x-forwarded-(?:proto|host|port)$/.test(lower)) asked.push([name, value]);
    else if (!isAlias(lower)) left.push(name, value);
  }
  const addresses = listOf(lines.join(","));
  const client = findClient(addresses, trusts);
  if (addresses.length > 0) left.push("X-Forwarded-For", addresses.slice(client ?? 0).join(", "));
  const isAllTrusted = addresses.length > 0 && client === undefined;
  left.push(...(isAllTrusted ? asked : lastValues(asked)).flat());

  const elements = parseForwarded(forwarded.join(","));
  const nodes = elements.map((element) => element.node);
  const kept = elements.slice(findClient(nodes, trusts) ?? 0);
  if (kept.length > 0) left.push("Forwarded", kept.map(({ text }) => text).join(", "));
  return left;
}

/** `X_Forwarded_For`, which CGI-like upstreams cannot tell from `X-Forwarded-For` (CVE-2026-30851). */
function isAlias(lower: string): boolean {
  return lower.includes("_") && lower.replaceAll("_", "-").startsWith("x-forwarded-");
}

function listOf(value: string): string[] {
  return value
    .split(",")
    .map(trimOws)
    .filter((each) => each !== "");
}

function lastValues(fields: [name: string, value: string][]): [name: string, value: string][] {
  const last = new Map<string, [string, string]>();
  for (const [name, list] of fields) {
    const value = listOf(list).at(-1);
    if (value !== undefined) last.set(name.toLowerCase(), [name, value]);
  }
  return [...last.values()];
}

/** Where the first from the right stands who is not trusted; undefined if all are. */
function findClient(nodes: (string | undefined)[], trusts: Trust): number | undefined {
  const index = nodes.findLastIndex((node) => !trusts(node && addressOf(node)));
  return index < 0 ? undefined : index;
}

/** A node without its port: `1.2.3.4:5678`, `[::1]:_hidden` (RFC 7239 §6). */
function addressOf(node: string): string {
  const [, v6, v4] = /^(?:\[([^\]]*)\]|([\d.]+))(?::[\w.-]+)?$/.exec(node) ?? [];
  return v6 ?? v4 ?? node;
}

/** What one proxy said in `Forwarded`. */
interface Element {
  readonly text: string;
  /** The value of `for`. */
  readonly node: string | undefined;
}

const TOKEN = "[!#$%&'*+.^`|~\\w-]+";
/** A parameter, or none, and what ends it. No two parts of it can begin alike: it takes linear time. */
const PARAMETER = new RegExp(
  `[ \\t]*(?:(${TOKEN})=(?:(${TOKEN})|"((?:[^"\\\\]|\\\\.)*)")[ \\t]*)?([;,]|$)`,
  "y",
);

/** The elements of a `Forwarded` list (RFC 7239 §4); none if any of it is malformed. */
function parseForwarded(list: string): Element[] {
  const elements: Element[] = [];
  let names = new Map<string, string>();
  for (let start = 0, at = 0; at <= list.length;) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(list);
    if (match === null) return [];
    const [whole, name, token, quoted, end] = match;
    at += whole.length;
    if (name !== undefined) {
      const lower = name.toLowerCase();
      // Two mean two opinions, and readers differ in which they take.
      if (names.has(lower)) return [];
      names.set(lower, token ?? (quoted as string).replaceAll(/\\(.)/g, "$1"));
    }
    if (end === ";") continue;
    const text = trimOws(list.slice(start, at - (end as string).length));
    if (names.size > 0) elements.push({ text, node: names.get("for") });
    names = new Map();
    start = at;
    if (end === "") break;
  }
  return elements;
}
