import { getHeader } from "../fields/headers.ts";
import { takeAll } from "../fields/take.ts";
import type { HeaderList } from "../transport.ts";
import { trimOws } from "../fields/whitespace.ts";

/** What this proxy knows of the connection a request came on. */
export interface ClientFacts {
  /** IP address of the peer; undefined where the server under the handler does not tell. */
  readonly address: string | undefined;
  readonly secure: boolean;
  /** `Host` as the client sent it. */
  readonly host: string | undefined;
  /** What this proxy calls itself. */
  readonly by?: string | undefined;
}

/** Which fields tell the upstream about the client. */
export type ForwardedStyle = "x-forwarded" | "forwarded" | "none";

/**
 * Appends what this proxy knows of the client to the forwarding fields.
 *
 * @param inbound whether `headers` may hold such fields already, because the peer is trusted or
 * they are forwarded by option: they are continued then, and otherwise begun anew
 * @see https://www.rfc-editor.org/rfc/rfc7239
 */
export function addForwarded(
  headers: HeaderList,
  style: ForwardedStyle,
  inbound: boolean,
  client: ClientFacts,
): void {
  if (style === "none") return;
  const proto = client.secure ? "https" : "http";
  const address = client.address && withoutZone(client.address);
  if (style === "forwarded") {
    append(headers, "Forwarded", toElement(client, address, proto), inbound);
    return;
  }
  if (address !== undefined) append(headers, "X-Forwarded-For", address, inbound);
  const asked = setUnlessThere(headers, "X-Forwarded-Proto", proto, inbound);
  if (client.host === undefined) return;
  const host = setUnlessThere(headers, "X-Forwarded-Host", client.host, inbound);
  const port = /:(\d+)$/.exec(host)?.[1] ?? (asked === "https" ? "443" : "80");
  setUnlessThere(headers, "X-Forwarded-Port", port, inbound);
}

/** The name of an interface of this machine is nobody else's business (RFC 4007 §11.2). */
function withoutZone(address: string): string {
  const end = address.indexOf("%");
  return end < 0 ? address : address.slice(0, end);
}

/** Adds `value` to the end of a list field; all of its lines become one. */
function append(headers: HeaderList, name: string, value: string, inbound: boolean): void {
  headers.push(name, inbound ? [...takeAll(headers, name.toLowerCase()), value].join(", ") : value);
}

/**
 * The first proxy that the client reached knows best what it asked for.
 * @returns what is said now: of a list, the first value
 */
function setUnlessThere(
  headers: HeaderList,
  name: string,
  value: string,
  inbound: boolean,
): string {
  const there = inbound ? getHeader(headers, name.toLowerCase()) : undefined;
  if (there !== undefined) return trimOws(there.split(",", 1)[0] as string);
  headers.push(name, value);
  return value;
}

function toElement({ by, host }: ClientFacts, address = "unknown", proto: string): string {
  // An IPv6 address is bracketed, and what is no token is quoted (RFC 7239 §6).
  const node = isIPv6(address) ? `"[${address}]"` : quote(address);
  // A name that is no address is obfuscated (RFC 7239 §6.3).
  const self = by === undefined ? "" : `;by=_${by}`;
  return `for=${node}${self}${host === undefined ? "" : `;host=${quote(host)}`};proto=${proto}`;
}

function isIPv6(address: string): boolean {
  return address.includes(":") && /^[\da-f:.]+$/i.test(address);
}

function quote(value: string): string {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`;
}
