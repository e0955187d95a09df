/**
 * The load of the WebSocket benchmark: a process of its own that holds sockets open and sends messages through one proxy.
 * It sends ready-made frames on raw sockets and counts the bytes that return, so that it costs less than a proxy.
 *
 * Its parent starts it with `LoadSettings` as JSON. It opens the sockets, checks that each of several messages returns byte
 * by byte, and says `ready`. Each `run` then makes it send for some seconds, and `check` checks again.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { SOCKET_PATH, toFrame } from "./frames.ts";

export interface LoadSettings {
  readonly port: number;
  readonly sockets: number;
  /** The number of bytes of a message. */
  readonly size: number;
  /** The number of messages that are on their way on each socket. */
  readonly window: number;
}

/** What the parent sends. */
export type LoadCommand = { readonly run: number } | "check";

/** What the parent receives. */
export type LoadEvent =
  /** The sockets are open, and every byte has returned. */
  | "ready"
  /** All messages on their way have returned. */
  | "idle"
  /** The messages that have returned so far, at the beginning and at the end of a run, and the time in ms. */
  | { readonly messages: number; readonly now: number }
  | { readonly failed: string };

/** Messages that are checked on each socket, each of another content. */
const CHECKS = 3;
/** The number of sockets that connect, or are checked, at the same time. */
const AT_ONCE = 50;
/** Milliseconds of load before the beginning of a run is told. */
const RAMP = 50;
const READ_SIZE = 256 * 1024;

const settings = JSON.parse(process.argv[2] ?? "") as LoadSettings;
const { port, sockets, size, window } = settings;

/** Bytes of which each message is a part. */
const content = makeContent(size + CHECKS * sockets);

function makeContent(length: number): Buffer {
  let state = 1;
  return Buffer.from(
    Uint8Array.from({ length }, () => (state = Math.imul(state, 0x2c1b3c6d) + 0x3039) >>> 24),
  );
}

/** Returns a message. No two of one run are equal. */
function makeMessage(socket: number, number: number): Buffer {
  const from = socket * CHECKS + number;
  return content.subarray(from, from + size);
}

const frame = toFrame(makeMessage(0, 0), true);
/** As many frames as can be due at once, so that they leave in one write. */
const frames = Buffer.concat(Array.from({ length: window }, () => frame));
/** The size of a message as it returns: without a masking key. */
const returned = toFrame(makeMessage(0, 0), false).length;

/** Whether messages that return are sent again. */
let isRunning = false;
let messages = 0;
/** The number of messages that are on their way. */
let underWay = 0;
let onIdle = (): void => {};

/** All sockets read into the same memory, because the bytes are only compared and counted. */
const memory = Buffer.alloc(READ_SIZE);

class Client {
  readonly #socket: Socket;
  readonly #index: number;
  /** Takes what has arrived, instead of counting it. */
  #take: ((bytes: Buffer) => void) | undefined;
  /** The number of bytes of an incomplete message. */
  #partial = 0;

  constructor(index: number) {
    this.#index = index;
    const onread = {
      buffer: memory,
      callback: (length: number): boolean => {
        if (this.#take !== undefined) this.#take(memory.subarray(0, length));
        else this.#count(length);
        return true;
      },
    };
    this.#socket = connect({ port, host: "127.0.0.1", noDelay: true, onread });
    this.#socket
      .on("error", fail)
      .on("end", () => fail(new Error("the proxy has closed a socket")));
  }

  async open(): Promise<void> {
    await once(this.#socket, "connect");
    const key = createHash("md5").update(`${this.#index}`).digest("base64");
    const lines = [
      `GET ${SOCKET_PATH} HTTP/1.1`,
      `Host: 127.0.0.1:${port}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      `Sec-WebSocket-Key: ${key}`,
    ];
    this.#socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    const head = (await this.#receive((_, last) => last.includes("\r\n\r\n"))).toString("latin1");
    if (!head.startsWith("HTTP/1.1 101 ")) throw new Error(head.split("\r\n", 1)[0]);
    if (!head.endsWith("\r\n\r\n")) throw new Error("bytes behind the 101");
  }

  /** Checks that messages return byte by byte. */
  async check(): Promise<void> {
    const sent = Array.from({ length: CHECKS }, (_, number) => makeMessage(this.#index, number));
    const expected = Buffer.concat(sent.map((message) => toFrame(message, false)));
    this.#socket.write(Buffer.concat(sent.map((message) => toFrame(message, true))));
    const received = await this.#receive((length) => length >= expected.length);
    if (!received.equals(expected)) {
      throw new Error(`${CHECKS} messages of ${size} bytes have not returned as they were sent`);
    }
  }

  /** Collects what arrives until it is complete. */
  #receive(isComplete: (length: number, last: Buffer) => boolean): Promise<Buffer> {
    const parts: Buffer[] = [];
    let length = 0;
    return new Promise((resolve) => {
      this.#take = (bytes) => {
        // The memory is read into again.
        parts.push(Buffer.from(bytes));
        length += bytes.length;
        if (!isComplete(length, bytes)) return;
        this.#take = undefined;
        resolve(Buffer.concat(parts));
      };
    });
  }

  begin(): void {
    underWay += window;
    this.#socket.write(frames);
  }

  #count(length: number): void {
    const total = this.#partial + length;
    if (total < returned) {
      this.#partial = total;
      return;
    }
    const complete = Math.floor(total / returned);
    this.#partial = total - complete * returned;
    messages += complete;
    if (isRunning) {
      this.#socket.write(
        complete === window ? frames : frames.subarray(0, complete * frame.length),
      );
      return;
    }
    underWay -= complete;
    if (underWay === 0) onIdle();
  }
}

function tell(event: LoadEvent): void {
  process.send?.(event);
}

function fail(error: Error): void {
  tell({ failed: error.message });
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

const clients: Client[] = [];

async function open(): Promise<void> {
  while (clients.length < sockets) {
    const some = Array.from(
      { length: Math.min(AT_ONCE, sockets - clients.length) },
      (_, i) => new Client(clients.length + i),
    );
    await Promise.all(some.map((client) => client.open()));
    clients.push(...some);
  }
}

async function check(): Promise<void> {
  // No two messages are equal, so that a message on a wrong socket is noticed.
  for (let at = 0; at < clients.length; at += AT_ONCE) {
    await Promise.all(clients.slice(at, at + AT_ONCE).map((client) => client.check()));
  }
}

async function run(seconds: number): Promise<void> {
  isRunning = true;
  const idle = new Promise<void>((resolve) => (onIdle = resolve));
  for (const client of clients) client.begin();
  await sleep(RAMP);
  tell({ messages, now: performance.now() });
  await sleep(1000 * seconds);
  tell({ messages, now: performance.now() });
  isRunning = false;
  await idle;
  tell("idle");
}

process.on("message", (command: LoadCommand) => {
  const work = command === "check" ? check().then(() => tell("ready")) : run(command.run);
  work.catch(fail);
});
process.on("disconnect", () => process.exit());
open()
  .then(check)
  .then(() => tell("ready"), fail);
