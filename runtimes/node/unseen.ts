/**
 * What passes through Node's objects may be used again only if nobody else sees it: who listens, or has put
 * himself before a method, on the object or on its prototype, may keep what he sees.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

type Builtins = Pick<typeof import("node:http"), "OutgoingMessage"> &
  Pick<typeof import("node:net"), "Socket"> &
  Pick<typeof import("node:stream"), "Duplex" | "Readable">;

let builtins: Builtins | undefined;

/** Taken when first asked for: the entry names no module of Node's. */
function builtIn(): Builtins {
  return (builtins ??= {
    ...process.getBuiltinModule("node:http"),
    ...process.getBuiltinModule("node:net"),
    ...process.getBuiltinModule("node:stream"),
  });
}

/** Whether what a response writes goes straight to a socket of the system's. Of HTTP/2 that is not known. */
export function writesUnseen(res: ServerResponse): boolean {
  const { Duplex, OutgoingMessage, Socket } = builtIn();
  const { write, end, socket } = res;
  const { prototype } = OutgoingMessage;
  return (
    write === prototype.write &&
    end === prototype.end &&
    socket instanceof Socket &&
    socket.write === Duplex.prototype.write &&
    socket._write === Socket.prototype._write
  );
}

/** Who else gets the chunks of a message that we listen to. */
export class Audience {
  readonly #message: IncomingMessage;
  #hasListeners = false;

  /** @param hadListeners whether there were others before us */
  constructor(message: IncomingMessage, hadListeners: boolean) {
    this.#message = message;
    this.#hasListeners = hadListeners;
    // Counted as they come: one who listens once has gone before the next in the row could see him.
    message.on("newListener", (event) => {
      if (event === "data" || event === "readable") this.#hasListeners = true;
    });
  }

  /** Whether Node's parser made a chunk that comes now, and nobody else gets it. */
  get isEmpty(): boolean {
    if (this.#hasListeners) return false;
    const { emit, push, read, socket } = this.#message;
    const { prototype } = builtIn().Readable;
    // What others push, as those who test without a server do, may still be theirs.
    const { parser } = socket as { parser?: { incoming?: unknown } };
    const isParsed = parser?.incoming === this.#message;
    return (
      isParsed && emit === prototype.emit && push === prototype.push && read === prototype.read
    );
  }
}
