/**
 * Makes the header of the PROXY protocol, which names the client at the beginning of a connection to an upstream. Loaded with
 * the first connection that needs it.
 * @see https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
 */
import type { Socket } from "node:net";
import { encodeText } from "../../src/body/memory.ts";
import type { PoolOptions } from "../../src/options/pooloptions.ts";
import { type Address, parseIPAddress, render } from "../../src/target/address.ts";

/** The first bytes of every header of version 2. */
const SIGNATURE = "0d0a0d0a000d0a515549540a";
/** The byte with version 2 and its command: `LOCAL` for a connection of the proxy itself, `PROXY` for a client's connection. */
const LOCAL = "20";
const PROXY = "21";

/** The addresses and ports of a connection. */
export type Endpoints = Pick<Socket, "localAddress" | "localPort" | "remoteAddress" | "remotePort">;

/**
 * Makes the header of a connection.
 *
 * A client's source port is 0, because the port is not known behind another proxy, and differs between the requests that the
 * connection will carry. The destination is the address and the port of the upstream. The destination address is 0.0.0.0 or
 * `::` if the client's address is of the other IP version, or if the upstream is a Unix socket.
 * @param client the address of the client. Without an IP address, the header says that the connection is the proxy's own
 */
export function makeHeader(
  version: NonNullable<PoolOptions["proxyProtocol"]>,
  client: string | undefined,
  { localAddress, localPort = 0, remoteAddress = "", remotePort = 0 }: Endpoints,
): Uint8Array {
  const isV1 = version === "v1";
  const known = parseIPAddress(client ?? "");
  // Version 1 has no `LOCAL`, so a connection of the proxy itself names its own addresses. A Unix socket has none, so its
  // header says `UNKNOWN` (§2.1).
  const source = known ?? (isV1 ? parseIPAddress(localAddress ?? "") : undefined);
  if (source === undefined) {
    return isV1 ? encodeText("PROXY UNKNOWN\r\n") : fromHex(`${SIGNATURE}${LOCAL}000000`);
  }
  const isIPv4 = isMapped(source);
  const end = parseIPAddress(remoteAddress);
  const isSameVersion = end !== undefined && isMapped(end) === isIPv4;
  const none = parseIPAddress(isIPv4 ? "0.0.0.0" : "::") as Address;
  const addresses = [source, isSameVersion ? end : none];
  const ports = [known === undefined ? localPort : 0, remotePort];
  if (isV1) {
    const texts = addresses.map(({ words }) => render(words, isIPv4 ? "" : ":"));
    return encodeText(`PROXY TCP${isIPv4 ? 4 : 6} ${[...texts, ...ports].join(" ")}\r\n`);
  }
  const words = addresses.flatMap((address) => address.words.slice(isIPv4 ? 6 : 0));
  const block = [...words, ...ports].map((each) => toHex(each, 4)).join("");
  const family = isIPv4 ? "11" : "21";
  return fromHex(`${SIGNATURE}${PROXY}${family}${toHex(block.length / 2, 4)}${block}`);
}

/** Whether an address is IPv4, which `Address` has in its IPv4-mapped form. */
function isMapped({ words }: Address): boolean {
  return words.slice(0, 6).join() === "0,0,0,0,0,65535";
}

function toHex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, "0");
}

function fromHex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) as string[], (pair) => Number.parseInt(pair, 16));
}
