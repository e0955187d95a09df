/**
 * Finds out whether other code can see the chunks that pass through Node's objects. Such code has wrapped a method of an object
 * or of one of its prototypes, or has added a listener. It may keep chunks, so their memory must not be freed.
 *
 * - Rests on: a chunk goes from `response.write` to the operating system, from the operating system to a listener of a socket,
 *   and from Node's parser to a listener, only through the methods that this module names. A socket passes its chunks to
 *   `socket._handle`. `socket.parser.incoming` is the message whose body Node's parser reads.
 * - Check: at the first use, each of these methods must be Node's own function (`ownmethod.ts`); at every later use, it must be
 *   the same function. The methods of `socket._handle` must be native: tools such as mitm make sockets with handles in
 *   JavaScript, which pass the chunk itself to other code. The message in `socket.parser.incoming` must be the one whose chunk
 *   arrives.
 * - Otherwise: the memory of chunks is left to the garbage collector. If other code sees the chunks that arrive from an
 *   upstream, they are copied.
 * - Test: test/runtimes/node/wrapped.test.ts, and test/runtimes/node/internals/wrapped.test.ts, which renames the methods and
 *   the parser as another version of Node could.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { isOwnMethod } from "./ownmethod.ts";

// Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them.
const builtin: typeof process.getBuiltinModule | undefined =
  globalThis.process?.getBuiltinModule?.bind(globalThis.process);

/** The methods of one of Node's classes through which chunks pass. */
export class ChunkMethods {
  readonly #names: readonly string[];
  readonly #findPrototype: () => object | undefined;
  /** The methods by name, as they were at the first use; none if one of them was not Node's own. */
  #own: readonly (readonly [name: string, method: unknown])[] | undefined;

  /**
   * @param findPrototype is called at the first use, because loading `node:http` takes longer than loading Fetchway. By then,
   *   the server has loaded it.
   */
  constructor(names: readonly string[], findPrototype: () => object | undefined) {
    this.#names = names;
    this.#findPrototype = findPrototype;
  }

  /**
   * Whether an object still has Node's own methods, so that no code has wrapped one. If a method does not exist, the answer
   * is no: this version of Node may have given it another name.
   */
  areUnwrapped(object: object): boolean {
    const own = (this.#own ??= this.#captureOwn());
    for (const [name, method] of own) if (Reflect.get(object, name) !== method) return false;
    return own.length > 0;
  }

  #captureOwn(): readonly (readonly [string, unknown])[] {
    const prototype = this.#findPrototype();
    if (prototype === undefined) return [];
    const methods = this.#names.map((name) => [name, Reflect.get(prototype, name)] as const);
    return methods.every(([, method]) => isOwnMethod(method)) ? methods : [];
  }
}

/** The methods that Node calls with a chunk, from `response.write` down to the system's socket. */
const RESPONSE = new ChunkMethods(
  ["write", "end", "_send", "_writeRaw"],
  () => builtin?.("node:http").OutgoingMessage.prototype,
);
const SOCKET = new ChunkMethods(
  ["write", "_write", "_writev", "_writeGeneric"],
  () => builtin?.("node:net").Socket.prototype,
);
/**
 * The methods through which a stream passes a chunk to its `data` listeners, and `on`: code that has wrapped `on` may have
 * wrapped the listener itself, and so gets the chunks of the proxy's listener.
 */
const LISTENED = ["push", "read", "emit", "on"];
/** The methods of a socket whose names are in `LISTENED`. */
const SOCKET_LISTENED = new ChunkMethods(LISTENED, () => builtin?.("node:net").Socket.prototype);
/** The methods of a request whose names are in `LISTENED`. Node's parser passes the body to the request. */
const MESSAGE = new ChunkMethods(LISTENED, () => builtin?.("node:stream").Readable.prototype);
/** The methods of a socket's handle that Node calls with chunks. */
const HANDLE = ["writeBuffer", "writev"] as const;

/** Whether only Node's own code sees the chunks that are written to a socket. */
export function isUnwrappedSocket(socket: Socket): boolean {
  return SOCKET.areUnwrapped(socket) && hasNativeHandle(socket);
}

/** For each method of a handle that was checked, whether it is native. */
const areNative: WeakMap<object, boolean> = new WeakMap();

/** Whether Node's native code takes the chunks that are written to a socket. */
function hasNativeHandle(socket: Socket): boolean {
  const { _handle: handle } = socket as { _handle?: Partial<Record<string, object>> | null };
  if (!handle) return false;
  for (const name of HANDLE) {
    const method = handle[name];
    if (method === undefined || !(areNative.get(method) ?? checkNative(name, method))) return false;
  }
  return true;
}

/**
 * Finds out whether a method of a handle is native. The source of a bound function contains `[native code]` as well,
 * but no name.
 */
function checkNative(name: string, method: object): boolean {
  const isNative =
    typeof method === "function" &&
    Function.prototype.toString.call(method) === `function ${name}() { [native code] }`;
  areNative.set(method, isNative);
  return isNative;
}

/** Whether only Node's own code sees the chunks that are written to a response, down to the system's socket. */
export function isUnwrappedResponse(res: ServerResponse | Http2ServerResponse): boolean {
  // HTTP/2 is excluded: after a reset of its stream, Node calls the callback of `write` while it may still hold frames
  // with the chunk. A pipelined response has no socket until it is the first, so there is nothing to check yet.
  if ("stream" in res || res.socket === null) return false;
  return RESPONSE.areUnwrapped(res) && isUnwrappedSocket(res.socket);
}

/** Records whether code other than the proxy listens for the chunks of a stream. */
class OtherListeners {
  /** Whether other code has such listeners now, or has had some. */
  exist: boolean;

  /** Must be called before the proxy adds its own listener, which would otherwise count as another. */
  constructor(stream: Readable) {
    this.exist = stream.listenerCount("data") + stream.listenerCount("readable") > 0;
    // Record each listener when it is added: when a chunk reaches the proxy's own listener, a `once` listener has been
    // removed already, so that counting the listeners would miss it.
    let isOurs = true;
    stream.on("newListener", (event) => {
      if (event !== "data" && event !== "readable") return;
      if (!isOurs) this.exist = true;
      isOurs = false;
    });
  }
}

/** Shows whether code other than the proxy sees the chunks of a request. */
export class Audience {
  readonly #message: IncomingMessage;
  readonly #others: OtherListeners;

  /** Must be called before the proxy adds its own listener (see `OtherListeners`). */
  constructor(message: IncomingMessage) {
    this.#message = message;
    this.#others = new OtherListeners(message);
  }

  /** Whether the chunk that arrives now comes from Node's parser, and no other code gets it. */
  get isEmpty(): boolean {
    const message = this.#message;
    // A chunk that does not come from the parser was pushed by other code, such as a test tool, which may still use it.
    const { parser } = message.socket as { parser?: { incoming?: unknown } };
    return !this.#others.exist && parser?.incoming === message && MESSAGE.areUnwrapped(message);
  }
}

/**
 * Watches a socket that emits `data`. Must be called before the proxy adds its own listener.
 * @returns a function that says whether code other than the proxy sees the chunk that is arriving
 */
export function watchReads(socket: Socket): () => boolean {
  const others = new OtherListeners(socket);
  return () => others.exist || !SOCKET_LISTENED.areUnwrapped(socket);
}
