import { atOnce } from "../options/misuse.ts";

/** Whether somebody at this address is believed; `undefined` where the address is not known. */
export type Trust = (address: string | undefined) => boolean;

/** An IP address; IPv4 ones are mapped into IPv6, so that both spellings are one (RFC 4291 §2.5.5.2). */
interface Address {
  /** Eight numbers of 16 bits. */
  readonly words: readonly number[];
  /** The interface that a link-local address belongs to; `""` for none (RFC 4007 §11). */
  readonly zone: string;
}

/** Addresses that begin with the same bits. */
interface Range extends Address {
  readonly bits: number;
}

const NAMED: ReadonlyMap<string, readonly string[]> = new Map([
  ["loopback", ["127.0.0.0/8", "::1"]],
  ["linklocal", ["169.254.0.0/16", "fe80::/10"]],
  ["uniquelocal", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]],
]);

/**
 * Compiles `trustProxy`, checked before by `checkRange`. Undefined trusts nobody.
 *
 * Except for `true`, only what is an IP address can be trusted: not an unknown one, nor a name.
 */
export function compileTrust(
  trust: boolean | readonly string[] | ((address: string) => boolean),
): Trust | undefined {
  if (typeof trust === "boolean") return trust ? () => true : undefined;
  if (typeof trust === "function") {
    return (text) => {
      if (text === undefined || parseAddress(text) === undefined) return false;
      return atOnce(trust(text.replace(/^::ffff:(?=\d+\.)/i, "")), "trustProxy");
    };
  }
  const ranges = trust.flatMap(rangesOf);
  return (text) => {
    const address = text === undefined ? undefined : parseAddress(text);
    return address !== undefined && ranges.some((range) => isIn(address, range));
  };
}

/**
 * The ranges of entries that have been checked. An app that writes its options as a literal at the call passes the same
 * entries with each request.
 */
const checked = new Map<string, readonly Range[]>();
/** The number of entries above which all are forgotten, in case they are made of requests. */
const MOST_CHECKED = 100;

/** Returns the ranges that an entry of `trustProxy` stands for; none for an entry that is wrong. */
function rangesOf(entry: string): readonly Range[] {
  const texts = NAMED.get(entry) ?? [entry];
  return checked.get(entry) ?? texts.flatMap((text) => parseRange(text) ?? []);
}

/** Checks an entry of `trustProxy`: an address, a CIDR range or a name of ranges. */
export function checkRange(entry: unknown): string | undefined {
  const text = typeof entry === "string" ? entry : "";
  if (checked.has(text)) return undefined;
  const wrong = NAMED.has(text) ? undefined : checkAddresses(entry, text);
  if (wrong !== undefined) return wrong;
  if (checked.size >= MOST_CHECKED) checked.clear();
  checked.set(text, rangesOf(text));
  return undefined;
}

function checkAddresses(entry: unknown, text: string): string | undefined {
  const range = parseRange(text);
  if (range === undefined) return `${JSON.stringify(entry)} is no address or CIDR range`;
  const words = range.words.map((word, i) => word & ~(0xffff >> clamp(range.bits - 16 * i)));
  if (words.every((word, i) => word === range.words[i])) return undefined;
  // It may be meant as one address, written with the length of its network, or as the whole network.
  const [address, length] = text.split("/") as [string, string];
  return `"${text}" is no range: use "${render(words, address)}/${length}", or "${address}" for that address alone`;
}

function clamp(bits: number): number {
  return Math.min(Math.max(bits, 0), 16);
}

/** Spells an address as another is. */
function render(words: readonly number[], like: string): string {
  if (!like.includes(":")) {
    const [high, low] = words.slice(6) as [number, number];
    return [high >> 8, high & 255, low >> 8, low & 255].join(".");
  }
  const { hostname } = new URL(`http://[${words.map((word) => word.toString(16)).join(":")}]`);
  return hostname.slice(1, -1) + (/%.*/.exec(like)?.[0] ?? "");
}

function isIn(address: Address, range: Range): boolean {
  if (range.zone !== "" && range.zone !== address.zone) return false;
  for (let i = 0, bits = range.bits; bits > 0; i++, bits -= 16) {
    const differing = (address.words[i] as number) ^ (range.words[i] as number);
    if (differing >> Math.max(16 - bits, 0) !== 0) return false;
  }
  return true;
}

function parseRange(text: string): Range | undefined {
  const [, base = "", length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = parseAddress(base);
  if (address === undefined) return undefined;
  const unused = base.includes(":") ? 0 : 96;
  const bits = length === undefined ? 128 : unused + Number(length);
  return bits > 128 ? undefined : { ...address, bits };
}

/** Strict, as inet_pton is: what others could read as another address is none (`010.0.0.1`). */
function parseAddress(text: string): Address | undefined {
  const [, plain = "", zone = ""] = /^([\da-f.:]+)(?:%([^\s%/]+))?$/i.exec(text) ?? [];
  const words = plain.includes(":") ? parseIPv6(plain) : zone === "" ? parseIPv4(plain) : undefined;
  return words && { words, zone };
}

function parseIPv4(text: string): number[] | undefined {
  const parts = text.split(".");
  if (parts.length !== 4) return undefined;
  const [a, b, c, d] = parts.map((part) =>
    /^(?:0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256 ? Number(part) : Number.NaN,
  ) as [number, number, number, number];
  return Number.isNaN(a + b + c + d)
    ? undefined
    : [0, 0, 0, 0, 0, 0xffff, (a << 8) | b, (c << 8) | d];
}

function parseIPv6(text: string): number[] | undefined {
  const [left = "", right, more] = text.split("::");
  const head = parseWords(left);
  const tail = right === undefined ? [] : parseWords(right);
  if (head === undefined || tail === undefined || more !== undefined) return undefined;
  // `::` stands for one word of zeros or more, and only an address's end may be in IPv4's form.
  const zeros = 8 - head.length - tail.length;
  if (right === undefined ? zeros !== 0 : zeros < 1 || left.includes(".")) return undefined;
  return [...head, ...Array<number>(zeros).fill(0), ...tail];
}

function parseWords(text: string): number[] | undefined {
  if (text === "") return [];
  const groups = text.split(":");
  const dotted = groups.at(-1)?.includes(".") ? parseIPv4(groups.pop() as string) : [];
  if (dotted === undefined || !groups.every((group) => /^[\da-f]{1,4}$/i.test(group))) {
    return undefined;
  }
  return [...groups.map((group) => Number.parseInt(group, 16)), ...dotted.slice(6)];
}
