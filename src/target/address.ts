/** IP addresses, and ranges of them. */
import { quoteInput } from "../misuse.ts";
import { RecentMap } from "../recentmap.ts";

/** An IP address. An IPv4 address is mapped into IPv6, so that both spellings are equal (RFC 4291 §2.5.5.2). */
export interface Address {
  /** The 128 bits of the address. */
  readonly bits: bigint;
  /** The network interface of a link-local address; `""` for none (RFC 4007 §11). */
  readonly zone: string;
}

/** The addresses that begin with the same bits. */
interface Range extends Address {
  /** The number of bits at the end that may differ. */
  readonly open: bigint;
  /**
   * The first IPv4 address in the range, and the one after the last, as numbers, which cost less than big integers;
   * undefined if the range has none.
   */
  readonly ipv4: readonly [first: number, end: number] | undefined;
}

/** The bits of the IPv4 address 0.0.0.0, mapped into IPv6. */
export const IPV4 = 0xffff_0000_0000n;

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
    const ipv4 = parseIPv4(unmapAddress(text));
    if (ipv4 !== undefined) return ranges.some((range) => isIPv4In(ipv4, range));
    const address = parseIPAddress(text);
    return address !== undefined && ranges.some((range) => isIn(address, range));
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
  const first = (range.bits >> range.open) << range.open;
  if (first === range.bits) return undefined;
  // The entry may mean the one address, or the whole network: let the caller choose.
  const [address, length] = text.split("/") as [string, string];
  return `"${text}" is not a range: use "${render(first, address)}/${length}", or "${address}" for that address alone`;
}

/** Formats an address in the form of the text `like`: as IPv4, or as IPv6 with the zone of `like`. `URL` formats both. */
export function render(bits: bigint, like: string): string {
  if (!like.includes(":")) return new URL(`http://${bits & 0xffff_ffffn}`).hostname;
  const words = bits.toString(16).padStart(32, "0").match(/.{4}/g) as string[];
  return new URL(`http://[${words.join(":")}]`).hostname.slice(1, -1) + like.replace(/[^%]*/, "");
}

function isIPv4In(address: number, { ipv4 }: Range): boolean {
  return ipv4 !== undefined && address >= ipv4[0] && address < ipv4[1];
}

function isIn(address: Address, range: Range): boolean {
  if (range.zone !== "" && range.zone !== address.zone) return false;
  return (address.bits ^ range.bits) >> range.open === 0n;
}

function parseRange(text: string): Range | undefined {
  const [, base = "", length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = parseIPAddress(base);
  const size = base.includes(":") ? 128 : 32;
  const open = size - Number(length ?? size);
  if (address === undefined || open < 0) return undefined;
  const range = { ...address, open: BigInt(open) };
  return { ...range, ipv4: findIPv4(range) };
}

/** Returns the IPv4 addresses in a range; undefined for none. */
function findIPv4({ bits, zone, open }: Omit<Range, "ipv4">): Range["ipv4"] {
  const isApart = zone !== "" || (bits ^ IPV4) >> (open > 32n ? open : 32n) !== 0n;
  if (isApart) return undefined;
  if (open >= 32n) return [0, 2 ** 32];
  const first = Number(((bits - IPV4) >> open) << open);
  return [first, first + 2 ** Number(open)];
}

/**
 * Parses an IP address as strictly as `inet_pton`. It refuses a text such as `010.0.0.1`, which other parsers read as
 * another address.
 */
export function parseIPAddress(text: string): Address | undefined {
  if (!text.includes(":")) {
    const ipv4 = parseIPv4(text);
    return ipv4 === undefined ? undefined : { bits: IPV4 + BigInt(ipv4), zone: "" };
  }
  const [, plain = "", zone = ""] = /^([\da-f.:]+)(?:%([^\s%/]+))?$/i.exec(text) ?? [];
  // The URL parser has the same rules for an address in brackets, and formats the address without dots.
  const url = URL.parse(`http://[${plain}]`);
  if (url === null) return undefined;
  // `::` replaces words that are zero.
  const [head = "", tail = ""] = url.hostname.slice(1, -1).split("::").map(toDigits);
  return { bits: BigInt(`0x${head}${tail.padStart(32 - head.length, "0")}`), zone };
}

/** Whether a name is for this machine: `localhost`, and all names below it (RFC 6761 §6.3). */
export function isLocalName(hostname: string): boolean {
  return /(?:^|\.)localhost\.?$/.test(hostname);
}

/** Whether a text is an IP address, which may have a zone. */
export function isIPAddress(text: unknown): text is string {
  return typeof text === "string" && parseIPAddress(text) !== undefined;
}

/** Returns the number of an IPv4 address such as `192.0.2.7`; undefined for any other text. It allocates no memory. */
function parseIPv4(text: string): number | undefined {
  let address = 0;
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
      address = address * 256 + byte;
      byte = -1;
      dots++;
    }
  }
  return byte >= 0 && dots === 3 ? address * 256 + byte : undefined;
}

/** Returns the hexadecimal words of an address without colons, each with four digits: `0db80001` for `db8:1`. */
function toDigits(words: string): string {
  return words
    .split(":")
    .map((word) => word.padStart(4, "0"))
    .join("");
}

/**
 * Returns the network from which one client can choose its addresses: a single IPv4 address, or an IPv6 network of 64 bits,
 * the smallest that a subscriber gets (RFC 6177). Any other text is returned unchanged.
 */
export function networkOf(address: string): string {
  const text = unmapAddress(address);
  const bits = text.includes(":") ? parseIPAddress(text)?.bits : undefined;
  return bits === undefined ? text : `${(bits >> 64n).toString(16)}/64`;
}

/**
 * Converts an IPv4 address in IPv6 form (`::ffff:192.0.2.7`), as dual-stack sockets report it, to IPv4. Any other text
 * is returned unchanged.
 */
export function unmapAddress(address: string): string {
  return address.startsWith("::") ? address.replace(/^::ffff:(?=\d+\.)/i, "") : address;
}
