/**
 * Whether other code can see the chunks that pass through Node's objects: code that has wrapped a method, on an object or
 * on one of its prototypes, or that listens. Such code may keep chunks, so their memory must not be used again.
 *
 * - Rests on: Node passes a chunk from `response.write` to the system's socket, and from its parser to a listener, by the
 *   methods that are named here. `socket.parser.incoming` is the message whose body Node's parser reads.
 * - Check: each method must be a function and the same as when this module was loaded, on every use. The parser's message
 *   must be the one whose chunk arrives.
 * - Otherwise: chunks are copied, and their memory is left to the garbage collector.
 * - Test: test/wrapped.node.test.ts, and test/internals.wrapped.node.test.ts for methods and a parser that Node has
 *   renamed.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";

/** Methods by name, as they were when this module was loaded: a method that differs now has been wrapped. */
export type Methods = readonly (readonly [name: string, method: unknown])[];

// Looked up at run time: a bundle for another runtime contains no module of Node's.
const builtin: typeof process.getBuiltinModule | undefined =
  globalThis.process?.getBuiltinModule?.bind(globalThis.process);

/** Takes note of methods of a prototype. */
export function captureMethods(prototype: object | undefined, names: readonly string[]): Methods {
  return prototype === undefined ? [] : names.map((name) => [name, Reflect.get(prototype, name)]);
}

/** The methods that Node calls with a chunk, from `response.write` down to the system's socket. */
const RESPONSE = captureMethods(builtin?.("node:http").OutgoingMessage.prototype, [
  "write",
  "end",
  "_send",
  "_writeRaw",
]);
const SOCKET = captureMethods(builtin?.("node:net").Socket.prototype, [
  "write",
  "_write",
  "_writev",
  "_writeGeneric",
]);
/** The methods that Node calls with a chunk, from its parser up to a listener. */
const MESSAGE = captureMethods(builtin?.("node:stream").Readable.prototype, [
  "push",
  "read",
  "emit",
  "on",
]);

/** Whether an object has the methods that were captured. A method that did not exist may have another name by now. */
export function areUnwrapped(object: object, methods: Methods): boolean {
  for (const [name, method] of methods) {
    if (method === undefined || Reflect.get(object, name) !== method) return false;
  }
  return methods.length > 0;
}

/** Whether only Node's own code sees the chunks that are written to a socket. */
export function isUnwrappedSocket(socket: Socket): boolean {
  return areUnwrapped(socket, SOCKET);
}

/** Whether only Node's own code sees the chunks that are written to a response, down to a socket of the system. */
export function isUnwrappedResponse(res: ServerResponse | Http2ServerResponse): boolean {
  // After a reset of its stream, HTTP/2 calls back while it may still hold frames with the chunk.
  if ("stream" in res || res.socket === null) return false;
  return areUnwrapped(res, RESPONSE) && isUnwrappedSocket(res.socket);
}

/** The listeners on a request other than the proxy's own. */
export class Audience {
  readonly #message: IncomingMessage;
  #hasListeners: boolean;

  /** Must be created before the proxy's own listener is added. */
  constructor(message: IncomingMessage) {
    this.#message = message;
    this.#hasListeners = message.listenerCount("data") + message.listenerCount("readable") > 0;
    // A `once` listener is removed before the proxy's own listener runs, so it cannot be counted then.
    let isOurs = true;
    message.on("newListener", (event) => {
      if (event !== "data" && event !== "readable") return;
      if (!isOurs) this.#hasListeners = true;
      isOurs = false;
    });
  }

  /** Whether the chunk that arrives now comes from Node's parser, and no other code gets it. */
  get isEmpty(): boolean {
    const message = this.#message;
    // Code that pushes chunks itself, such as a test tool without a server, may still use them.
    const { parser } = message.socket as { parser?: { incoming?: unknown } };
    return !this.#hasListeners && parser?.incoming === message && areUnwrapped(message, MESSAGE);
  }
}
