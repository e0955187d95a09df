/**
 * Whether other code can see the chunks that pass through Node's objects. Such code has wrapped a method of an object or
 * of one of its prototypes, or has added a listener. It may keep chunks, so their memory must not be used again.
 *
 * - Rests on: a chunk goes from `response.write` to the operating system, and from Node's parser to a listener, only
 *   through the methods that this module names. `socket.parser.incoming` is the message whose body Node's parser reads.
 * - Check: at every use, each of these methods must exist, and be the same function as when this module was loaded, which
 *   was Node's own (`ownmethod.ts`). The message in `socket.parser.incoming` must be the one whose chunk arrives.
 * - Otherwise: chunks are copied, and their memory is left to the garbage collector.
 * - Test: test/wrapped.node.test.ts, and test/internals.wrapped.node.test.ts, which renames the methods and the parser as
 *   another version of Node could.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { isOwnMethod } from "./ownmethod.ts";

/** Methods by name, as they were when this module was loaded: a method that differs now has been wrapped. */
export type Methods = readonly (readonly [name: string, method: unknown])[];

// Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them.
const builtin: typeof process.getBuiltinModule | undefined =
  globalThis.process?.getBuiltinModule?.bind(globalThis.process);

/** Returns methods of a prototype by name, as they are now. */
export function captureMethods(prototype: object | undefined, names: readonly string[]): Methods {
  return prototype === undefined ? [] : names.map((name) => [name, Reflect.get(prototype, name)]);
}

/** Whether all of the captured methods are Node's own. */
const areOwn: WeakMap<Methods, boolean> = new WeakMap();

/** Finds out at the first use whether captured methods are Node's own: it takes some 0.1 ms for each of them. */
function checkOwn(methods: Methods): boolean {
  const isOwn = methods.length > 0 && methods.every(([, method]) => isOwnMethod(method));
  areOwn.set(methods, isOwn);
  return isOwn;
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
/** The methods that Node calls with a chunk that it has read from the system's socket, up to a listener. */
const SOCKET_READS = captureMethods(builtin?.("node:net").Socket.prototype, ["push", "emit"]);
/** The methods that Node calls with a chunk, from its parser up to a listener. */
const MESSAGE = captureMethods(builtin?.("node:stream").Readable.prototype, [
  "push",
  "read",
  "emit",
  "on",
]);

/**
 * Whether an object still has the captured methods, so that no code has wrapped one. If a method did not exist, the answer
 * is no: this version of Node may have given it another name.
 */
export function areUnwrapped(object: object, methods: Methods): boolean {
  for (const [name, method] of methods) {
    if (method === undefined || Reflect.get(object, name) !== method) return false;
  }
  return areOwn.get(methods) ?? checkOwn(methods);
}

/** Whether only Node's own code sees the chunks that are written to a socket. */
export function isUnwrappedSocket(socket: Socket): boolean {
  return areUnwrapped(socket, SOCKET);
}

/** Whether only Node's own code, and listeners, see the chunks that a socket reads. */
export function isUnwrappedReader(socket: Socket): boolean {
  return areUnwrapped(socket, SOCKET_READS);
}

/** Whether only Node's own code sees the chunks that are written to a response, down to the system's socket. */
export function isUnwrappedResponse(res: ServerResponse | Http2ServerResponse): boolean {
  // HTTP/2 is excluded: after a reset of its stream, Node calls the callback of `write` while it may still hold frames
  // with the chunk. A pipelined response has no socket until it is the first, so there is nothing to check yet.
  if ("stream" in res || res.socket === null) return false;
  return areUnwrapped(res, RESPONSE) && isUnwrappedSocket(res.socket);
}

/** Tells whether code other than the proxy listens for the chunks of a request. */
export class Audience {
  readonly #message: IncomingMessage;
  #hasListeners: boolean;

  /** Must be created before the proxy's own listener is added. */
  constructor(message: IncomingMessage) {
    this.#message = message;
    this.#hasListeners = message.listenerCount("data") + message.listenerCount("readable") > 0;
    // Record each listener when it is added: when a chunk reaches the proxy's own listener, a `once` listener has been
    // removed already, so that counting the listeners would miss it.
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
    // A chunk that does not come from the parser was pushed by other code, such as a test tool, which may still use it.
    const { parser } = message.socket as { parser?: { incoming?: unknown } };
    return !this.#hasListeners && parser?.incoming === message && areUnwrapped(message, MESSAGE);
  }
}
