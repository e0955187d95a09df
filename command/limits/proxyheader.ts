/**
 * Reads the header of the PROXY protocol (versions 1 and 2), with which a trusted proxy begins each connection to this server.
 * The header names the client, whose address then counts as the address of the connection.
 * @see https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
 */
import { STATUS_CODES } from "node:http";
import { isIPv4, isIPv6, type Server, type Socket, SocketAddress } from "node:net";
import { type Trust, unmapAddress } from "#fetchway/requests";
import { LOOPBACK } from "../serve/loopback.ts";
import { type Report, toEnd } from "./ownanswers.ts";

/** The maximum length of a header of version 1 in bytes, including CRLF (§2.1). */
const MAX_LINE = 107;
/**
 * The first bytes of a header of version 2. Every header of version 1 is longer, so this many bytes can be read before the
 * version is known.
 */
const SIGNATURE = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");
const V1 = "PROXY ";
/** A header of version 1, which is one line. Any text after `UNKNOWN` is ignored. */
const LINE = /^PROXY (?:UNKNOWN(?: .*)?|TCP([46]) (\S+) (\S+) (\S+) (\S+))\r\n$/;
const PORT = /^(?:0|[1-9]\d{0,4})$/;

/**
 * A parser that yields the number of bytes that it needs next. It returns the address of the client, or undefined if the header
 * names no client; the connection then keeps its own address.
 */
type Parser = Generator<number, string | undefined, Buffer>;

/** @throws Error whose message names the fault of the header */
export function* parseHeader(): Parser {
  const start = yield SIGNATURE.length;
  if (start.equals(SIGNATURE)) return yield* parseV2();
  if (start.toString("latin1").startsWith(V1)) return yield* parseV1(start.toString("latin1"));
  throw new Error("the connection does not begin with a header");
}

/** Parses a header of version 1. It reads single bytes, because bytes after the end of the line belong to the request. */
function* parseV1(start: string): Parser {
  let line = start;
  while (!line.endsWith("\n") && line.length < MAX_LINE) {
    line += (yield 1).toString("latin1");
  }
  const [whole, family, source = "", destination = "", ...ports] = LINE.exec(line) ?? [];
  if (whole === undefined) throw new Error("its line is malformed");
  if (family === undefined) return undefined;
  const isAddress = family === "4" ? isIPv4 : isPlainIPv6;
  const isRight =
    [source, destination].every(isAddress) &&
    ports.every((port) => PORT.test(port) && Number(port) <= 65_535);
  if (!isRight) throw new Error("its line has a wrong address or port");
  return canonical(source);
}

function isPlainIPv6(text: string): boolean {
  return isIPv6(text) && !text.includes("%");
}

/** Parses the rest of a header of version 2, after the signature (§2.2). */
function* parseV2(): Parser {
  const [command = 0, kind = 0, high = 0, low = 0] = yield 4;
  const length = high * 256 + low;
  const [family, protocol] = [kind >> 4, kind & 15];
  if (command !== 0x20 && command !== 0x21) throw new Error("its version or command is unknown");
  if (family > 3 || protocol > 2) throw new Error("its address family is unknown");
  const block = length === 0 ? Buffer.alloc(0) : yield length;
  // The connection is the proxy's own (`LOCAL`), its protocol or family is unspecified, or its client uses a Unix socket.
  if (command === 0x20 || protocol === 0 || family === 0 || family === 3) return undefined;
  const size = family === 1 ? 4 : 16;
  if (length < 2 * size + 4) throw new Error("it is shorter than its addresses");
  if (size === 4) return block.subarray(0, 4).join(".");
  return canonical((block.toString("hex", 0, 16).match(/.{4}/g) as string[]).join(":"));
}

/** Returns the canonical form of an IP address. An IPv4-mapped IPv6 address becomes an IPv4 address. */
function canonical(address: string): string {
  if (isIPv4(address)) return address;
  return unmapAddress(new SocketAddress({ address, family: "ipv6" }).address);
}

/** How a server reads headers of the PROXY protocol. */
export interface HeaderSettings {
  /** Returns whether a peer is trusted. The connections of trusted peers must begin with a header, all others must not. */
  readonly trusts: Trust;
  /** The time limit for the whole header in milliseconds; 0 for no limit. */
  readonly headersTimeout: number;
  /** Called for each connection that is refused because its header is missing, late or malformed. */
  readonly report: Report;
  /** Called with a connection and the address of the client that its header names. */
  readonly nameClient: (socket: Socket, address: string) => void;
}

/**
 * Makes a server read a header at the beginning of each connection of a trusted peer. The listeners that the server now has
 * for `connection` are called once the header has been read; listeners that are added later are called before that.
 */
export function expectHeaders(server: Server, settings: HeaderSettings): void {
  const listeners = server.listeners("connection");
  server.removeAllListeners("connection");
  const known: WeakSet<Socket> = new WeakSet();
  server.on("connection", (socket: Socket) => {
    const accept = (): void => {
      for (const listener of listeners) listener.call(server, socket);
    };
    // `upgradechoice.ts` may give a connection to the server a second time, without another header.
    if (known.has(socket)) return accept();
    known.add(socket);
    // The clients of a Unix domain socket count as clients of the loopback interface.
    if (!settings.trusts(socket.remoteAddress ?? LOOPBACK)) return accept();
    readHeader(socket, "setSecureContext" in server, settings, accept);
  });
}

/**
 * Reads the header of a connection, and no byte after it.
 * @param accept called after the header, unless `nameClient` has destroyed the socket
 */
function readHeader(
  socket: Socket,
  isSecure: boolean,
  { headersTimeout, report, nameClient }: HeaderSettings,
  accept: () => void,
): void {
  const parser = parseHeader();
  let needed = parser.next().value as number;
  let length = 0;
  const read = (): void => {
    try {
      for (let bytes; (bytes = socket.read(needed) as Buffer | null) !== null;) {
        // `read` returns fewer bytes only at the end of the connection. The listener for `end` then closes it.
        if (bytes.length < needed) return;
        length += bytes.length;
        const { done, value } = parser.next(bytes);
        if (done) return end(value);
        needed = value;
      }
    } catch (error) {
      refuse(400, (error as Error).message);
    }
  };
  const destroy = (): void => void socket.destroy();
  const stop = (): void => {
    clearTimeout(timer);
    socket.off("readable", read).off("end", destroy).off("error", destroy).off("close", stop);
  };
  const end = (address: string | undefined): void => {
    stop();
    if (address !== undefined) nameClient(socket, address);
    beginCount(socket, length);
    if (!socket.destroyed) accept();
  };
  const refuse = (status: number, cause: string): void => {
    stop();
    report(toEnd({ address: socket.remoteAddress }, status, `PROXY protocol: ${cause}`));
    // A client that expects TLS cannot read a response without TLS.
    if (!isSecure) {
      socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
    }
    socket.on("error", destroy).destroySoon();
  };
  const late = (): void => refuse(408, `no complete header within ${headersTimeout} ms`);
  const timer = headersTimeout > 0 ? setTimeout(late, headersTimeout) : undefined;
  socket.on("readable", read).on("end", destroy).on("error", destroy).on("close", stop);
}

/**
 * Makes `bytesRead` of a socket count only the bytes after its header, because `priorknowledge.ts` finds the position of the
 * HTTP/2 preface by it.
 */
function beginCount(socket: Socket, length: number): void {
  const get = (): number =>
    (Reflect.get(Object.getPrototypeOf(socket) as object, "bytesRead", socket) as number) - length;
  Object.defineProperty(socket, "bytesRead", { get, configurable: true });
}
