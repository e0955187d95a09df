/** IP addresses, and ranges of them. */
import { quoteInput } from "../misuse.ts";
import { RecentMap } from "../recentmap.ts";

/** An IP address. */
export interface Address {
  /** Eight numbers of 16 bits. An IPv4 address is mapped into IPv6, so that both spellings are equal (RFC 4291 §2.5.5.2). */
  readonly words: readonly number[];
  /** The network interface of a link-local address; `""` for none (RFC 4007 §11). */
  readonly zone: string;
}

/** The addresses that begin with the same bits. */
interface Range extends Address {
  /** For each word, the bits that all addresses have in common. */
  readonly masks: readonly number[];
}

const NAMED: ReadonlyMap<string, readonly string[]> = new Map([
  ["loopback", ["127.0.0.0/8", "::1"]],
  ["linklocal", ["169.254.0.0/16", "fe80::/10"]],
  ["uniquelocal", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]],
]);

/**
 * A cache of the ranges of checked entries, such as those of `trustProxy`: an app that passes a new options object with each
 * call repeats the same entries. Its size is limited, because an app may also make entries from requests.
 */
const checked = new RecentMap<string, readonly Range[]>(100);

/**
 * Compiles entries that `checkRange` has checked.
 * @returns a function that says whether a text is an IP address in one of the ranges
 */
export function compileRanges(entries: readonly string[]): (text: string) => boolean {
  const ranges = entries.flatMap(rangesOf);
  return (text) => {
    const address = parseIPAddress(text);
    if (address === undefined) return false;
    for (let i = 0; i < ranges.length; i++) if (isIn(address, ranges[i] as Range)) return true;
    return false;
  };
}

/** Returns the ranges that an entry means; an empty list for a wrong entry. */
function rangesOf(entry: string): readonly Range[] {
  const texts = NAMED.get(entry) ?? [entry];
  return checked.get(entry) ?? texts.flatMap((text) => parseRange(text) ?? []);
}

/**
 * Returns what is wrong with an entry of a list of ranges, and undefined for an address, a CIDR range or a name of
 * ranges.
 */
export function checkRange(entry: unknown): string | undefined {
  const text = typeof entry === "string" ? entry : "";
  if (checked.get(text) !== undefined) return undefined;
  const wrong = NAMED.has(text) ? undefined : checkAddresses(entry, text);
  if (wrong !== undefined) return wrong;
  checked.set(text, rangesOf(text));
  return undefined;
}

function checkAddresses(entry: unknown, text: string): string | undefined {
  const range = parseRange(text);
  if (range === undefined) return `${quoteInput(entry)} is not an address or a CIDR range`;
  const first = range.words.map((word, i) => word & (range.masks[i] as number));
  if (first.join() === range.words.join()) return undefined;
  // The entry may mean the one address, or the whole network: let the caller choose.
  const [address, length] = text.split("/") as [string, string];
  return `"${text}" is not a range: use "${render(first, address)}/${length}", or "${address}" for that address alone`;
}

/** Formats an address in the form of the text `like`: as IPv4, or as IPv6 with the zone of `like`. */
export function render(words: readonly number[], like: string): string {
  if (!like.includes(":")) return words.slice(6).flatMap(toBytes).join(".");
  const text = words.map(toHex).join(":");
  return new URL(`http://[${text}]`).hostname.slice(1, -1) + like.replace(/[^%]*/, "");
}

function isIn({ words, zone }: Address, range: Range): boolean {
  if (range.zone !== "" && range.zone !== zone) return false;
  for (let i = 0; i < 8; i++) {
    const differing = (words[i] as number) ^ (range.words[i] as number);
    if ((differing & (range.masks[i] as number)) !== 0) return false;
  }
  return true;
}

function parseRange(text: string): Range | undefined {
  const [, base = "", length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = parseIPAddress(base);
  const size = base.includes(":") ? 128 : 32;
  const open = size - Number(length ?? size);
  if (address === undefined || open < 0) return undefined;
  const masks = address.words.map(
    (_, i) => 0xffff & (0xffff << Math.min(16, Math.max(0, open - 16 * (7 - i)))),
  );
  return { ...address, masks };
}

/**
 * Parses an IP address, with or without a zone, as strictly as `inet_pton`: it refuses a text such as `010.0.0.1`, which
 * other parsers read as another address.
 */
export function parseIPAddress(text: string): Address | undefined {
  const zoneAt = text.indexOf("%");
  const zone = zoneAt < 0 ? "" : text.slice(zoneAt + 1);
  if (zoneAt >= 0 && /[\s%/]|^$/.test(zone)) return undefined;
  const plain = zoneAt < 0 ? text : text.slice(0, zoneAt);
  const ipv4 = parseIPv4(text);
  const words =
    ipv4 === undefined ? parseIPv6(plain) : [0, 0, 0, 0, 0, 0xffff, ipv4 >>> 16, ipv4 & 0xffff];
  return words && { words, zone };
}

/** Whether a name is for this machine: `localhost`, and all names below it (RFC 6761 §6.3). */
export function isLocalName(hostname: string): boolean {
  return /(?:^|\.)localhost\.?$/.test(hostname);
}

/** Whether a text is an IP address, which may have a zone. */
export function isIPAddress(text: unknown): text is string {
  return typeof text === "string" && parseIPAddress(text) !== undefined;
}

/** Returns the 32 bits of an IPv4 address such as `192.0.2.7`; undefined for any other text. */
function parseIPv4(text: string): number | undefined {
  let before = 0;
  let byte = -1;
  let dots = 0;
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit >= 0 && digit <= 9) {
      // A zero in front of other digits makes some parsers read an octal number.
      if (byte === 0) return undefined;
      byte = byte < 0 ? digit : byte * 10 + digit;
      if (byte > 255) return undefined;
    } else {
      if (text[i] !== "." || byte < 0) return undefined;
      before = before * 256 + byte;
      byte = -1;
      dots++;
    }
  }
  return byte < 0 || dots !== 3 ? undefined : before * 256 + byte;
}

/** Returns the words of an IPv6 address without a zone; undefined for any other text. */
function parseIPv6(text: string): number[] | undefined {
  const words = [0, 0, 0, 0, 0, 0, 0, 0];
  let count = 0;
  /** The number of words before `::`; -1 without `::`. */
  let gap = -1;
  let word = 0;
  // Skip the first colon, so that `::` at the beginning is an empty word, as elsewhere.
  let start = text.startsWith("::") ? 1 : 0;
  for (let i = start; i <= text.length; i++) {
    const code = text.charCodeAt(i);
    const letter = (code | 0x20) - 0x57;
    const digit = code <= 0x39 ? code - 0x30 : letter >= 10 && letter <= 15 ? letter : -1;
    if (digit >= 0) {
      if (i === start + 4) return undefined;
      word = word * 16 + digit;
    } else if (text[i] === ".") {
      const ipv4 = parseIPv4(text.slice(start));
      if (ipv4 === undefined || count > 6) return undefined;
      words[count++] = ipv4 >>> 16;
      words[count++] = ipv4 & 0xffff;
      break;
    } else {
      const isEnd = i === text.length;
      if ((!isEnd && text[i] !== ":") || i === 0) return undefined;
      if (i > start) {
        if (count === 8) return undefined;
        words[count++] = word;
        word = 0;
      } else if (isEnd ? gap !== count : gap >= 0) return undefined;
      else gap = count;
      start = i + 1;
    }
  }
  if (gap < 0) return count === 8 ? words : undefined;
  const after = 8 - (count - gap);
  return count === 8 ? undefined : words.copyWithin(after, gap, count).fill(0, gap, after);
}

function toBytes(word: number): number[] {
  return [word >> 8, word & 255];
}

function toHex(word: number): string {
  return word.toString(16);
}

/**
 * Returns the network from which one client can choose its addresses: a single IPv4 address, or an IPv6 network of 64 bits,
 * the smallest that a subscriber gets (RFC 6177). Any other text is returned unchanged.
 */
export function networkOf(address: string): string {
  const text = unmapAddress(address);
  const words = text.includes(":") ? parseIPAddress(text)?.words : undefined;
  return words === undefined ? text : `${words.slice(0, 4).map(toHex).join(":")}/64`;
}

/**
 * Converts an IPv4 address in IPv6 form (`::ffff:192.0.2.7`), as dual-stack sockets report it, to IPv4. Any other text
 * is returned unchanged.
 */
export function unmapAddress(address: string): string {
  return address.startsWith("::") ? address.replace(/^::ffff:(?=\d+\.)/i, "") : address;
}
