import { atOnce } from "../options/misuse.ts";

/** Tells whether an address is trusted; the address is undefined if it is not known. */
export type Trust = (address: string | undefined) => boolean;

/** An IP address. An IPv4 address is mapped into IPv6, so that both spellings are equal (RFC 4291 §2.5.5.2). */
interface Address {
  /** The address as eight numbers of 16 bits. */
  readonly words: readonly number[];
  /** The network interface of a link-local address; `""` for none (RFC 4007 §11). */
  readonly zone: string;
}

/** The addresses that begin with the same bits. */
interface Range extends Address {
  readonly bits: number;
}

const NAMED: ReadonlyMap<string, readonly string[]> = new Map([
  ["loopback", ["127.0.0.0/8", "::1"]],
  ["linklocal", ["169.254.0.0/16", "fe80::/10"]],
  ["uniquelocal", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]],
]);

/**
 * Compiles `trustProxy`. `checkRange` must have checked its ranges before.
 *
 * Except with `true`, only an IP address can be trusted: an unknown address or a name cannot.
 * @returns undefined if no peer is trusted
 */
export function compileTrust(
  trust: boolean | readonly string[] | ((address: string) => boolean),
): Trust | undefined {
  if (typeof trust === "boolean") return trust ? () => true : undefined;
  if (typeof trust === "function") {
    return (text) => {
      if (text === undefined || parseIPAddress(text) === undefined) return false;
      return atOnce(trust(unmapAddress(text)), "trustProxy");
    };
  }
  const ranges = trust.flatMap((entry) => NAMED.get(entry) ?? entry).map(parseRange);
  return (text) => {
    const address = text === undefined ? undefined : parseIPAddress(text);
    return (
      address !== undefined && ranges.some((range) => range !== undefined && isIn(address, range))
    );
  };
}

/** Says what is wrong with an entry of `trustProxy`: an address, a CIDR range or the name of a group of ranges. */
export function checkRange(entry: unknown): string | undefined {
  const text = typeof entry === "string" ? entry : "";
  if (NAMED.has(text)) return undefined;
  const range = parseRange(text);
  if (range === undefined) return `${JSON.stringify(entry)} is no address or CIDR range`;
  const words = range.words.map((word, i) => word & ~(0xffff >> clamp(range.bits - 16 * i)));
  if (words.every((word, i) => word === range.words[i])) return undefined;
  // The entry may mean the one address, or the whole network: let the caller choose.
  const [address, length] = text.split("/") as [string, string];
  return `"${text}" is no range: use "${render(words, address)}/${length}", or "${address}" for that address alone`;
}

function clamp(bits: number): number {
  return Math.min(Math.max(bits, 0), 16);
}

/** Writes an address in the same form as another: as IPv4 or IPv6, with its zone. */
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
  const address = parseIPAddress(base);
  if (address === undefined) return undefined;
  const unused = base.includes(":") ? 0 : 96;
  const bits = length === undefined ? 128 : unused + Number(length);
  return bits > 128 ? undefined : { ...address, bits };
}

/**
 * Parses an IP address as strictly as `inet_pton`: it refuses a text such as `010.0.0.1`, which other parsers read as
 * another address.
 */
function parseIPAddress(text: string): Address | undefined {
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
  // `::` stands for one or more words of zeros. Only the end of an address may have the form of IPv4.
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

/** Returns an IP address. An IPv4 address in IPv6 form (`::ffff:192.0.2.7`), as dual-stack sockets show it, becomes IPv4. */
export function unmapAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}
