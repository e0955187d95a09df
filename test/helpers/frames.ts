/** Connections from and to the proxy that send raw HTTP/2 frames (RFC 9113 §4.1), also frames that no library would send. */
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

export const DATA = 0;
export const HEADERS = 1;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;
/** The flags of frames. In SETTINGS and PING, the bit of `END_STREAM` means `ACK`. */
export const END_STREAM = 1;
export const ACK = 1;
export const END_HEADERS = 4;

/** Builds a frame. */
export function frame(
  type: number,
  flags: number,
  id: number,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, payload]);
}

/** Encodes a field without indexing, with its name and value as literals (RFC 7541 §6.2.2). */
export function field(name: string, value: string): Buffer {
  const parts = [Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length])];
  return Buffer.concat([...parts, Buffer.from(value, "latin1")]);
}

export function uint32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value, 4 * i);
  return bytes;
}

/** Builds the HEADERS frame of a response. */
export function responseHead(id: number, end = false, ...fields: Buffer[]): Buffer {
  const flags = END_HEADERS | (end ? END_STREAM : 0);
  return frame(HEADERS, flags, id, Buffer.concat([field(":status", "200"), ...fields]));
}

/** Builds the HEADERS and DATA frames of a complete response. */
export function wholeResponse(id: number, body = "whole"): Buffer {
  return Buffer.concat([responseHead(id), frame(DATA, END_STREAM, id, Buffer.from(body))]);
}

/** A frame that the proxy has sent. */
export interface ReceivedFrame {
  type: number;
  flags: number;
  id: number;
  payload: Buffer;
}

/** The bytes with which a client begins a connection (RFC 9113 §3.4). */
export const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** The number of bytes after which a flood ends if the proxy does not stop it. */
export const FLOOD: number = 1024 * 1024 * 1024;

/** A connection from or to the proxy. */
export class RawConnection {
  readonly socket: Socket;
  readonly frames: ReceivedFrame[] = [];
  /** The client's connection preface, which precedes the first frame (RFC 9113 §3.4). */
  preface: string;
  isClosed = false;
  #rest = Buffer.alloc(0);

  /** @param preface the preface, if it is already known; "" to read it from the connection */
  constructor(
    socket: Socket,
    onFrame: (frame: ReceivedFrame, connection: RawConnection) => void = () => {},
    preface = "",
  ) {
    this.preface = preface;
    this.socket = socket;
    socket.on("error", () => {});
    socket.on("close", () => (this.isClosed = true));
    socket.on("data", (bytes: Buffer) => {
      this.#rest = Buffer.concat([this.#rest, bytes]);
      if (this.preface === "") {
        if (this.#rest.length < PREFACE.length) return;
        this.preface = this.#rest.toString("latin1", 0, PREFACE.length);
        this.#rest = this.#rest.subarray(PREFACE.length);
      }
      for (let next; (next = this.#take()) !== undefined;) {
        this.frames.push(next);
        onFrame(next, this);
      }
    });
  }

  /** Whether the proxy has sent a frame of this type. */
  has(type: number): boolean {
    return this.frames.some((each) => each.type === type);
  }

  /** The value of a setting in the first SETTINGS of the proxy (RFC 9113 §6.5.1); undefined if that frame lacks it. */
  setting(wanted: number): number | undefined {
    const payload = this.frames.find(({ type }) => type === SETTINGS)?.payload ?? Buffer.alloc(0);
    for (let at = 0; at < payload.length; at += 6) {
      if (payload.readUInt16BE(at) === wanted) return payload.readUInt32BE(at + 2);
    }
    return undefined;
  }

  /** The stream ids of the HEADERS frames that the proxy has sent. */
  get streams(): number[] {
    return this.frames.filter(({ type }) => type === HEADERS).map(({ id }) => id);
  }

  /** The streams that the proxy has reset, each with the error code. */
  get resets(): [id: number, code: number][] {
    return this.frames
      .filter(({ type }) => type === RST_STREAM)
      .map(({ id, payload }) => [id, payload.readUInt32BE(0)]);
  }

  send(...frames: Buffer[]): void {
    if (!this.isClosed) this.socket.write(Buffer.concat(frames));
  }

  /**
   * Repeats the same bytes until the proxy closes the connection or `most` bytes are sent. @returns the number of bytes sent
   */
  async flood(bytes: Buffer, most: number = FLOOD): Promise<number> {
    let sent = 0;
    while (!this.isClosed && sent < most) {
      sent += bytes.length;
      if (this.socket.write(bytes)) await new Promise((resolve) => setImmediate(resolve));
      else
        await Promise.race([once(this.socket, "drain"), once(this.socket, "close")]).catch(
          () => {},
        );
    }
    return sent;
  }

  #take(): ReceivedFrame | undefined {
    const bytes = this.#rest;
    if (bytes.length < 9) return undefined;
    const end = 9 + bytes.readUIntBE(0, 3);
    if (bytes.length < end) return undefined;
    this.#rest = bytes.subarray(end);
    return {
      type: bytes[3] as number,
      flags: bytes[4] as number,
      id: bytes.readUInt32BE(5) & 0x7fff_ffff,
      payload: bytes.subarray(9, end),
    };
  }
}

/** A function that answers a request. The upstream calls it when the HEADERS of the request have arrived. */
export type RawScript = (connection: RawConnection, id: number) => void;

export class RawUpstream {
  script: RawScript = (connection, id) => connection.send(wholeResponse(id));
  /** Called for each frame of the proxy, after the upstream's own answer to it. */
  onFrame: (frame: ReceivedFrame, connection: RawConnection) => void = () => {};
  /** The SETTINGS frame that the upstream sends first on each connection; undefined to send none, and to acknowledge none. */
  settings: Buffer | undefined = frame(SETTINGS, 0, 0);
  readonly connections: RawConnection[] = [];
  readonly #server: Server = createServer((socket: Socket) => {
    if (this.settings !== undefined) socket.write(this.settings);
    const connection = new RawConnection(socket, (received, from) => {
      const { type, flags, id, payload } = received;
      const isSilent = this.settings === undefined;
      if (type === SETTINGS && flags === 0 && !isSilent) from.send(frame(SETTINGS, ACK, 0));
      if (type === PING && flags === 0) from.send(frame(PING, ACK, 0, payload));
      if (type === HEADERS) this.script(from, id);
      this.onFrame(received, from);
    });
    this.connections.push(connection);
  });

  async listen(port = 0, host = "127.0.0.1"): Promise<string> {
    this.#server.listen(port, host);
    await once(this.#server, "listening");
    return `http://${host}:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The number of requests on all connections. */
  get requests(): number {
    return this.connections.reduce((sum, { streams }) => sum + streams.length, 0);
  }

  close(): void {
    for (const { socket } of this.connections) socket.destroy();
    this.#server.close();
  }
}

/** Builds a SETTINGS frame with SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 §6.5.2). */
export function maxStreams(count: number): Buffer {
  return frame(SETTINGS, 0, 0, Buffer.concat([Buffer.from([0, 3]), uint32(count)]));
}
