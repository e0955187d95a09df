/**
 * The header of the PROXY protocol, versions 1 and 2, with which a trusted proxy in front begins each connection. From then on,
 * the connection has the address of the client that the header names.
 * @see https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
 */
import { STATUS_CODES } from "node:http";
import { isIPv4, isIPv6, type Server, type Socket, SocketAddress } from "node:net";
import { type Trust, unmapAddress } from "#fetchway/requests";
import { LOOPBACK } from "../serve/loopback.ts";
import { type Report, toEnd } from "./ownanswers.ts";

/** The maximum length of a header of version 1 in bytes, including CRLF (§2.1). */
const MAX_LINE = 107;
/** The first bytes of a header of version 2. The shortest header of version 1 is longer as well. */
const SIGNATURE = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");
const V1 = "PROXY ";
/** A line of version 1. What follows `UNKNOWN` has no meaning. */
const LINE = /^PROXY (?:UNKNOWN(?: .*)?|TCP([46]) (\S+) (\S+) (\S+) (\S+))\r\n$/;
const PORT = /^(?:0|[1-9]\d{0,4})$/;

/**
 * Yields the number of bytes that it needs next, and returns the address of the client; undefined if the header names none, so
 * that the connection keeps its own.
 */
type Parser = Generator<number, string | undefined, Buffer>;

/** @throws Error that says what is wrong with the header */
export function* parseHeader(): Parser {
  const start = yield SIGNATURE.length;
  if (start.equals(SIGNATURE)) return yield* parseV2();
  if (start.toString("latin1").startsWith(V1)) return yield* parseV1(start.toString("latin1"));
  throw new Error("the connection does not begin with a header");
}

/** Parses a line. It reads single bytes, because the length of the line is not known, and what follows is not the header's. */
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

/** Parses what follows the signature (§2.2). */
function* parseV2(): Parser {
  const [command = 0, kind = 0, high = 0, low = 0] = yield 4;
  const length = high * 256 + low;
  const [family, protocol] = [kind >> 4, kind & 15];
  if (command !== 0x20 && command !== 0x21) throw new Error("its version or command is unknown");
  if (family > 3 || protocol > 2) throw new Error("its address family is unknown");
  const block = length === 0 ? Buffer.alloc(0) : yield length;
  // A connection of the proxy itself, or one whose client has no IP address. What follows the addresses is not needed.
  if (command === 0x20 || protocol === 0 || family === 0 || family === 3) return undefined;
  const size = family === 1 ? 4 : 16;
  if (length < 2 * size + 4) throw new Error("it is shorter than its addresses");
  if (size === 4) return block.subarray(0, 4).join(".");
  return canonical((block.toString("hex", 0, 16).match(/.{4}/g) as string[]).join(":"));
}

/** Returns the usual spelling of an address; that of an IPv4 address for one in IPv6 form. */
function canonical(address: string): string {
  if (isIPv4(address)) return address;
  return unmapAddress(new SocketAddress({ address, family: "ipv6" }).address);
}

/** How a server receives headers. */
export interface HeaderSettings {
  /** Returns whether the connections of a peer begin with a header. Those of others do not. */
  readonly trusts: Trust;
  /** The milliseconds for a header to arrive; 0 for no limit. */
  readonly headersTimeout: number;
  /** Receives connections whose header is missing or malformed. */
  readonly report: Report;
  /** Takes the address of the client that the header of a connection names. */
  readonly nameClient: (socket: Socket, address: string) => void;
}

/**
 * Makes a server read a header at the beginning of each connection of a trusted peer. The listeners for connections that the
 * server has so far get a connection after its header; listeners that are added later get it before.
 */
export function expectHeaders(server: Server, settings: HeaderSettings): void {
  const listeners = server.listeners("connection");
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) => {
    const accept = (): void => {
      for (const listener of listeners) listener.call(server, socket);
    };
    // The clients of a Unix domain socket count as clients of the loopback interface.
    if (!settings.trusts(socket.remoteAddress ?? LOOPBACK)) return accept();
    readHeader(socket, "setSecureContext" in server, settings, accept);
  });
}

/**
 * Reads the header of a connection, and no byte after it.
 * @param accept is called after a header, unless the connection is over the limits for the client's address
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
        // At the end of the connection, `read` returns the bytes that are left, and `end` follows.
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

/** Makes a socket count the bytes that it has read from the end of its header on. */
function beginCount(socket: Socket, length: number): void {
  const get = (): number =>
    (Reflect.get(Object.getPrototypeOf(socket) as object, "bytesRead", socket) as number) - length;
  Object.defineProperty(socket, "bytesRead", { get, configurable: true });
}
