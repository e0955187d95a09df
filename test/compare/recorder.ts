/** Records the bytes on both sides of a proxy: those that the sockets of this process send and receive. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";

/** Bytes that follow each other on one connection in one direction, or the end of a connection. */
export interface Passage {
  /** The direction, such as `client 1 → proxy`: connections are numbered on each side. */
  readonly way: string;
  /** The bytes as text, with escapes. A long text has a gap. */
  readonly bytes: string;
  /** How the sender has ended the connection after these bytes. */
  readonly end?: "closed" | "reset";
}

/** How much is kept: the last `MOST` passages, and of each passage the first `FIRST` and the last `LAST` bytes. */
const MOST = 16;
const [FIRST, LAST] = [420, 80];

type Side = "client" | "upstream";
/** Notes a call of a socket's method, with the first argument of the call. */
type Note = (argument: unknown) => unknown;

class Recorded {
  readonly way: string;
  #first = "";
  #rest = "";
  #length = 0;
  end: Passage["end"];

  constructor(way: string) {
    this.way = way;
  }

  add(bytes: Uint8Array): void {
    const text = Buffer.from(bytes).toString("latin1");
    this.#length += text.length;
    const room = FIRST - this.#first.length;
    this.#first += text.slice(0, room);
    this.#rest = (this.#rest + text.slice(room)).slice(-LAST);
  }

  toPassage(): Passage {
    const left = this.#length - this.#first.length - this.#rest.length;
    const gap = left > 0 ? `… ${left} bytes …` : "";
    const bytes = escape(this.#first) + gap + escape(this.#rest);
    return { way: this.way, bytes, ...(this.end && { end: this.end }) };
  }
}

/** Writes each byte that is not printable as an escape, and begins a new line after each LF. */
function escape(text: string): string {
  const names: Readonly<Record<string, string>> = { "\r": "\\r", "\n": "\\n\n", "\t": "\\t" };
  return text.replaceAll(
    /[^\x20-\x7e]/g,
    (byte) => names[byte] ?? `\\x${byte.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

export class Recorder {
  #recorded: Recorded[] = [];
  readonly #connections: Record<Side, number> = { client: 0, upstream: 0 };
  readonly #onClient: (message: unknown) => void;
  readonly #onServer: (message: unknown) => void;

  /** Begins to record the connections of clients to the port `proxy`, and those of the proxy to the port `upstream`. */
  constructor(proxy: number, upstream: number) {
    this.#onClient = (message) => {
      const { socket } = message as { socket: Socket };
      socket.once("connect", () => {
        if (socket.remotePort === proxy) this.#watch("client", socket);
      });
    };
    this.#onServer = (message) => {
      const { socket } = message as { socket: Socket };
      if (socket.localPort === upstream) this.#watch("upstream", socket);
    };
    subscribe("net.client.socket", this.#onClient);
    subscribe("net.server.socket", this.#onServer);
  }

  stop(): void {
    unsubscribe("net.client.socket", this.#onClient);
    unsubscribe("net.server.socket", this.#onServer);
  }

  clear(): void {
    this.#recorded = [];
    this.#connections.client = this.#connections.upstream = 0;
  }

  /** Returns the last passages. */
  get passages(): Passage[] {
    return this.#recorded.slice(-MOST).map((each) => each.toPassage());
  }

  #watch(side: Side, socket: Socket): void {
    const peer = `${side} ${++this.#connections[side]}`;
    let isOver = false;
    const [sent, received] = [`${peer} → proxy`, `proxy → ${peer}`];
    const hook = (
      name: "push" | "write" | "end" | "destroy" | "resetAndDestroy",
      note: Note,
    ): void => {
      const method = socket[name] as (...args: unknown[]) => unknown;
      Object.assign(socket, {
        [name]: (...args: unknown[]) => {
          note(args[0]);
          return method.apply(socket, args);
        },
      });
    };
    // A listener for `data` would make the socket flow, and a test that does not read would exert no backpressure.
    hook("push", (chunk) => chunk instanceof Uint8Array && this.#at(received).add(chunk));
    hook("write", (chunk) => this.#at(sent).add(Buffer.from(chunk as string, "latin1")));
    const endBy = (end: Passage["end"]): void => {
      if (!isOver) this.#at(sent).end = end;
      isOver = true;
    };
    hook("end", () => endBy("closed"));
    hook("resetAndDestroy", () => endBy("reset"));
    // A socket that has received the end of the other side is destroyed without a call of the test.
    hook("destroy", () => !socket.readableEnded && endBy("closed"));
    socket.on("end", () => (this.#at(received).end = "closed"));
    socket.on("close", (isBroken) => {
      if (isBroken) this.#at(received).end = "reset";
    });
  }

  /** Returns the last passage if it has this direction and no end, or else a new one. */
  #at(way: string): Recorded {
    const last = this.#recorded.at(-1);
    if (last?.way === way && last.end === undefined) return last;
    const next = new Recorded(way);
    this.#recorded.push(next);
    return next;
  }
}
