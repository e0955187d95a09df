/**
 * What passes through Node's objects may be used again only if nobody else sees it: who listens, or has put
 * himself before a method, on the object or on its prototype, may keep what he sees.
 */
import type { IncomingMessage, OutgoingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import type { TLSSocket } from "node:tls";

/** Where methods are found that nobody has touched. */
interface Untouched {
  readonly outgoing: OutgoingMessage;
  readonly socket: Socket;
  readonly duplex: Duplex;
  readonly readable: Readable;
}

let found: Untouched | undefined;

/** Found when first asked for: the entry names no module of Node's. */
function untouched(): Untouched {
  if (found !== undefined) return found;
  const { OutgoingMessage } = process.getBuiltinModule("node:http");
  const { Socket } = process.getBuiltinModule("node:net");
  const { Duplex, Readable } = process.getBuiltinModule("node:stream");
  found = {
    outgoing: OutgoingMessage.prototype as OutgoingMessage,
    socket: Socket.prototype,
    duplex: Duplex.prototype,
    readable: Readable.prototype,
  };
  return found;
}

/** Whether what a response writes goes straight to a socket of the system's. */
export function writesUnseen(res: ServerResponse | Http2ServerResponse): boolean {
  if ("stream" in res) return writesUnseenInHttp2(res);
  const { outgoing, socket, duplex } = untouched();
  return (
    res.write === outgoing.write &&
    res.end === outgoing.end &&
    // Any other Duplex may say that it has written what it has yet to read.
    res.socket?._write === socket._write &&
    res.socket.write === duplex.write
  );
}

/** TLS copies what it is given; without, frames of a stream that was reset may still be on their way. */
function writesUnseenInHttp2(res: Http2ServerResponse): boolean {
  // Who has no such server does not load it.
  const { prototype } = process.getBuiltinModule("node:http2").Http2ServerResponse;
  const { stream, socket } = res as Partial<Http2ServerResponse>;
  return (
    res.write === prototype.write &&
    res.end === prototype.end &&
    (socket as TLSSocket | undefined)?.encrypted === true &&
    stream?.write === untouched().duplex.write
  );
}

/** Who else gets the chunks of a message that we listen to. */
export class Audience {
  readonly #message: IncomingMessage;
  #hasListeners: boolean;

  /** @param hadListeners whether there were others before us */
  constructor(message: IncomingMessage, hadListeners: boolean) {
    this.#message = message;
    this.#hasListeners = hadListeners;
    // Seen as they come: one who listens once has gone before the next in the row could count him.
    message.on("newListener", (event) => {
      if (event === "data" || event === "readable") this.#hasListeners = true;
    });
  }

  /** Whether Node's parser made a chunk that comes now, and nobody else gets it. */
  get isEmpty(): boolean {
    const message = this.#message;
    const { readable } = untouched();
    // What others push, as those who test without a server do, may still be theirs.
    const { parser } = message.socket as { parser?: { incoming?: unknown } };
    return (
      !this.#hasListeners &&
      parser?.incoming === message &&
      message.emit === readable.emit &&
      message.push === readable.push &&
      message.read === readable.read
    );
  }
}
