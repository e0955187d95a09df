import { type HeaderList, foldName, getHeaders, removeHeader, trimOws } from "../fields/headers.ts";
import { REQUEST_ASSERTIONS } from "../fields/hopbyhop.ts";
import type { Trust } from "./trust.ts";

/** The fields with the scheme, the host and the port that the client has requested. */
const REQUESTED = /^x-forwarded-(?:proto|host|port)$/i;

/**
 * Drops those values of a request's forwarding fields that no trusted proxy has written, in place. The caller must have
 * checked that the peer that sent the request is trusted.
 *
 * Each proxy appends the address of its peer. So the function reads the addresses from right to left: the first address
 * that is not trusted is the client, and the client itself may have written all values to the left of it.
 *
 * A list in `X-Forwarded-Proto`, `-Host` or `-Port` does not say which proxy wrote which value. It stays whole only if all
 * addresses in `X-Forwarded-For` are trusted. Otherwise, and also without `X-Forwarded-For`, only its last value stays,
 * because the peer has written that one.
 *
 * A malformed `Forwarded` is dropped as a whole. So are aliases such as `X_Forwarded_For`, which a trusted peer may
 * pass on without recognizing them.
 * @see https://www.rfc-editor.org/rfc/rfc7239#section-8.1
 */
export function dropUntrusted(headers: HeaderList, trusts: Trust): void {
  const addresses = splitList(removeHeader(headers, "x-forwarded-for"));
  const client = findClient(addresses, trusts);
  const isAllTrusted = addresses.length > 0 && client === undefined;
  const elements = parseForwarded(removeHeader(headers, "forwarded"));
  /** The forwarding fields that stay, with the values that stay. */
  const kept: HeaderList = [];
  if (addresses.length > 0) kept.push("X-Forwarded-For", addresses.slice(client).join(", "));
  let end = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    if (REQUESTED.test(name)) {
      const last = isAllTrusted ? value : splitList(value).at(-1);
      if (last === undefined) continue;
      if (!isAllTrusted) removeHeader(kept, name);
      kept.push(name, last);
    } else if (!isAlias(name)) {
      headers[end++] = name;
      headers[end++] = value;
    }
  }
  if (elements.length > 0) {
    const nodes = elements.map(({ node }) => node);
    const texts = elements.slice(findClient(nodes, trusts)).map(({ text }) => text);
    kept.push("Forwarded", texts.join(", "));
  }
  for (const each of kept) headers[end++] = each;
  headers.length = end;
}

/**
 * Returns the client's address from the forwarding fields of a request that a trusted proxy has sent: the last address that
 * is not trusted, or the first one if all are trusted; undefined if the fields contain none. `X-Forwarded-For` takes
 * precedence over `Forwarded`.
 */
export function findAddress(headers: HeaderList, trusts: Trust): string | undefined {
  const addresses = splitList(getHeaders(headers, "x-forwarded-for").join());
  const nodes =
    addresses.length > 0
      ? addresses
      : parseForwarded(getHeaders(headers, "forwarded").join()).map(({ node }) => node);
  const node = nodes[findClient(nodes, trusts) ?? 0];
  return node && withoutPort(node);
}

/** Whether a name is like `X_Forwarded_For`, which some upstreams take for `X-Forwarded-For` (CVE-2026-30851). */
function isAlias(name: string): boolean {
  return REQUEST_ASSERTIONS.has(name) && foldName(name) !== name.toLowerCase();
}

function splitList(value = ""): string[] {
  if (value === "") return [];
  // Most lists have one member, which `split` and `filter` would copy twice.
  const members = value.includes(",") ? value.split(",").map(trimOws) : [trimOws(value)];
  return members.includes("") ? members.filter((each) => each !== "") : members;
}

/** Returns the index of the last node that is not trusted; undefined if all are trusted. */
function findClient(nodes: (string | undefined)[], trusts: Trust): number | undefined {
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i];
    if (!trusts(node && withoutPort(node))) return i;
  }
  return undefined;
}

/** Returns the address of a node such as `1.2.3.4:5678` or `[::1]:_hidden` (RFC 7239 §6). */
function withoutPort(node: string): string {
  // Nearly every node is an address alone.
  if (!node.startsWith("[") && !(node.includes(":") && node.includes("."))) return node;
  const [, v6, v4] = /^(?:\[([^\]]*)\]|([\d.]+))(?::[\w.-]+)?$/.exec(node) ?? [];
  return v6 ?? v4 ?? node;
}

/** An element of `Forwarded`, which one proxy has written. */
interface Element {
  readonly text: string;
  /** The value of the parameter `for`. */
  readonly node: string | undefined;
}

const TOKEN_PATTERN = "[!#$%&'*+.^`|~\\w-]+";
/**
 * Matches at most one parameter, and the separator after it. The match takes linear time, because at each position, the next
 * character decides which part of the pattern applies.
 */
const PARAMETER = new RegExp(
  `[ \\t]*(?:(${TOKEN_PATTERN})=(?:(${TOKEN_PATTERN})|"((?:[^"\\\\]|\\\\.)*)")[ \\t]*)?([;,]|$)`,
  "y",
);

/** Parses a `Forwarded` list (RFC 7239 §4). Returns no elements if any of them is malformed. */
function parseForwarded(list = ""): Element[] {
  const elements: Element[] = [];
  if (list === "") return elements;
  let names = new Map<string, string>();
  for (let start = 0, at = 0; at <= list.length;) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(list);
    if (match === null) return [];
    const [whole, name, token, quoted, end] = match;
    at += whole.length;
    if (name !== undefined) {
      const lower = name.toLowerCase();
      // Refuse a repeated parameter, because some readers use its first value, and others its last.
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
