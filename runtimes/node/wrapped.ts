/**
 * Finds out whether other code can see the chunks that pass through Node's objects: code that has wrapped a method,
 * on the object or on any of its prototypes, or listens. It may keep chunks, so that their memory is not ours.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";

/** Methods by name, as they were when this module was loaded: one that is another now has been wrapped. */
type Methods = readonly (readonly [name: string, method: unknown])[];

// A bundle for another runtime may load this file, and has no such modules.
const builtin: typeof process.getBuiltinModule | undefined =
  globalThis.process?.getBuiltinModule?.bind(globalThis.process);

function capture(prototype: object | undefined, names: readonly string[]): Methods {
  return prototype === undefined ? [] : names.map((name) => [name, Reflect.get(prototype, name)]);
}

/** The methods that Node calls with a chunk, from `response.write` down to the system's socket. */
const RESPONSE = capture(builtin?.("node:http").OutgoingMessage.prototype, [
  "write",
  "end",
  "_send",
  "_writeRaw",
]);
const SOCKET = capture(builtin?.("node:net").Socket.prototype, [
  "write",
  "_write",
  "_writev",
  "_writeGeneric",
]);
/** The methods that Node calls with a chunk, from its parser up to a listener. */
const MESSAGE = capture(builtin?.("node:stream").Readable.prototype, [
  "push",
  "read",
  "emit",
  "on",
]);

function areUnwrapped(object: object, methods: Methods): boolean {
  for (const [name, method] of methods) if (Reflect.get(object, name) !== method) return false;
  return methods.length > 0;
}

/** Whether only Node's own code gets what is written to a socket. */
export function isUnwrappedSocket(socket: Socket): boolean {
  return areUnwrapped(socket, SOCKET);
}

/** Whether only Node's own code gets what is written to a response, and it goes straight to a socket of the system's. */
export function isUnwrappedResponse(res: ServerResponse | Http2ServerResponse): boolean {
  // HTTP/2 may still hold the frames of a stream that was reset when it calls back.
  if ("stream" in res || res.socket === null) return false;
  return areUnwrapped(res, RESPONSE) && isUnwrappedSocket(res.socket);
}

/** The listeners of a request beside ours. */
export class Audience {
  readonly #message: IncomingMessage;
  #hasListeners: boolean;

  /** Made before our own listener is added. */
  constructor(message: IncomingMessage) {
    this.#message = message;
    this.#hasListeners = message.listenerCount("data") + message.listenerCount("readable") > 0;
    // A `once` listener is gone before ours runs: it could not be counted then.
    let isOurs = true;
    message.on("newListener", (event) => {
      if (event !== "data" && event !== "readable") return;
      if (!isOurs) this.#hasListeners = true;
      isOurs = false;
    });
  }

  /** Whether Node's parser made the chunk that comes now, and nobody else gets it. */
  get isEmpty(): boolean {
    const message = this.#message;
    // What other code pushes, as test tools without a server do, may still be theirs.
    const { parser } = message.socket as { parser?: { incoming?: unknown } };
    return !this.#hasListeners && parser?.incoming === message && areUnwrapped(message, MESSAGE);
  }
}
