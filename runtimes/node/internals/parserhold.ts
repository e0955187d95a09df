/**
 * Stops Node's parser at a pipelined request, so that the server gets the requests of a connection one after the other. By
 * default, Node emits all requests that it has read, and one read may contain 2,500.
 *
 * - Rests on: a connection has its parser in `socket.parser`. The parser calls its member `onIncoming` with each request whose
 *   head it has parsed. If `onIncoming` returns 21 (`HPE_PAUSED` of llhttp), the parser stops behind the head, and the result
 *   is an error with the code "HPE_PAUSED" and with `bytesParsed`; after `parser.resume()`, the parser continues in the same
 *   message. The result is passed to the member with the number `kOnExecute`; while that member runs, `getCurrentBuffer`
 *   returns the bytes that were read. At first, the parser itself reads from the connection. Once the socket has a `data`
 *   listener, the socket emits the bytes, and Node's own listener passes them to `parser.execute`; Node then has no listener
 *   for `resume` that begins to read, so this class calls `socket._read`. `socket._paused` is set while Node itself has paused
 *   the socket, because too many response bytes wait.
 * - Check: the parser must have these members. An error counts as the stop only if it has the code "HPE_PAUSED".
 * - Otherwise: the requests that have been read wait in the app for their turn, and a connection on which more than
 *   `MAX_WAITING` wait is closed (turns.ts). Any other error is left to Node, which closes the connection.
 * - Test: test/runtimes/node/internals/parserhold.test.ts, "pipelined requests if Node hides a member of the parser".
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { responseOn } from "./pipelining.ts";

/** llhttp's `HPE_PAUSED`: a callback that returns it stops the parser. */
const PAUSED = 21;
/** If this number of unparsed bytes is kept, the proxy stops reading from the connection. */
const MAX_KEPT = 65_536;
/** Above this number, the kept chunks are joined to one: many tiny chunks take much more memory than their bytes. */
const MAX_CHUNKS = 64;

/** A request that the parser has made. Node decides afterwards whether it hands a request with `Upgrade` over as an upgrade. */
type ParsedRequest = IncomingMessage & { readonly upgrade?: boolean | null };
type OnIncoming = (req: ParsedRequest, keepAlive: boolean) => number;
type OnExecute = (result: unknown) => void;
type Execute = (bytes: Buffer) => unknown;

/** The members of Node's parser that are used here. */
interface Parser {
  incoming?: IncomingMessage | null;
  onIncoming: OnIncoming;
  [onExecute: number]: OnExecute;
  execute: Execute;
  resume(): void;
  getCurrentBuffer(): Buffer;
}

/** A client's socket, with two members that Node does not document. */
type ParsedSocket = Socket & { readonly parser?: Parser | null; readonly _paused?: boolean };

const METHODS = ["onIncoming", "execute", "resume", "getCurrentBuffer"] as const;

/**
 * Returns the number of the parser's member that gets the result of parsing; undefined if the parser lacks a required member.
 */
function findOnExecute(parser: Parser | null | undefined): number | undefined {
  if (!parser || METHODS.some((name) => typeof parser[name] !== "function")) return undefined;
  const { kOnExecute } = parser.constructor as { kOnExecute?: number };
  return kOnExecute !== undefined && typeof parser[kOnExecute] === "function"
    ? kOnExecute
    : undefined;
}

function ignore(): void {}

/**
 * The parser of a connection on which a client has pipelined requests. The server gets a request once all responses in
 * front of it have ended.
 *
 * The proxy continues to read the connection until `MAX_KEPT` bytes wait: a socket that is not read does not report that the
 * client has disconnected.
 */
export class ParserHold {
  readonly #socket: ParsedSocket;
  readonly #parser: Parser;
  readonly #onExecute: number;
  /** Called when a request or bytes are held until the connection's current response ends. */
  readonly #wait: () => void;
  readonly #stallTimeout: number;
  /** Node's own functions of the parser, which this class replaces. */
  readonly #ofNode: { onIncoming: OnIncoming; onExecute: OnExecute; execute: Execute };
  /** The request that the server got last. */
  #last: IncomingMessage;
  /** The next request, whose body has not been parsed. */
  #held: { readonly req: IncomingMessage; readonly keepAlive: boolean } | undefined;
  /** The bytes that the parser has not received yet. */
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #isFeeding = false;
  #isInstalled = true;
  /** Runs while this class has paused the socket (`#stopReading`). */
  #timer: NodeJS.Timeout | undefined;

  /**
   * Stops the parser of a connection at each pipelined request from now on.
   * @param req a waiting request of the connection
   * @param stallTimeout milliseconds without a write until the connection is closed, once `#stopReading` was called
   * @returns undefined if this version of Node does not show the parser
   */
  static install(
    req: IncomingMessage,
    wait: () => void,
    stallTimeout: number,
  ): ParserHold | undefined {
    const socket: ParsedSocket = req.socket;
    const onExecute = findOnExecute(socket.parser);
    if (onExecute === undefined) return undefined;
    return new ParserHold(socket, onExecute, req, wait, stallTimeout);
  }

  private constructor(
    socket: ParsedSocket,
    onExecute: number,
    req: IncomingMessage,
    wait: () => void,
    stallTimeout: number,
  ) {
    const parser = socket.parser as Parser;
    this.#socket = socket;
    this.#parser = parser;
    this.#onExecute = onExecute;
    this.#wait = wait;
    this.#stallTimeout = stallTimeout;
    this.#last = parser.incoming ?? req;
    const { onIncoming, execute } = parser;
    this.#ofNode = { onIncoming, onExecute: parser[onExecute] as OnExecute, execute };
    parser.onIncoming = this.#onHead;
    parser[onExecute] = this.#onParsed;
    parser.execute = this.#take;
    socket.on("data", ignore).on("resume", this.#onResume).on("close", this.#remove);
    this.#readOn();
  }

  /** Whether the connection still has the parser. An upgrade takes the parser away. */
  get isInstalled(): boolean {
    return this.#isInstalled;
  }

  /** Whether a request or bytes wait for the end of the connection's current response. */
  get isHolding(): boolean {
    return this.#held !== undefined || this.#kept.length > 0;
  }

  /** Hands over the held request and bytes whose turn has come. */
  advance(): void {
    this.#handOver();
    if (this.isHolding) this.#wait();
  }

  #handOver(): void {
    if (!this.#mayGoOn()) return;
    const held = this.#held;
    if (held !== undefined) {
      if (responseOn(this.#socket)) return;
      this.#held = undefined;
      this.#last = held.req;
      this.#ofNode.onIncoming.call(this.#parser, held.req, held.keepAlive);
    }
    if (this.#timer !== undefined) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#socket.resume();
    }
    while (this.#kept.length > 0 && this.#held === undefined && this.#mayGoOn()) {
      const chunk = this.#kept.shift() as Buffer;
      this.#keptBytes -= chunk.byteLength;
      this.#isFeeding = true;
      try {
        this.#socket.emit("data", chunk);
      } finally {
        this.#isFeeding = false;
      }
    }
  }

  /**
   * Whether the parser may continue: every request has its response, or the current response belongs to the last request, whose
   * body is incomplete.
   */
  #mayGoOn(): boolean {
    const { destroyed, _paused } = this.#socket;
    if (!this.#isInstalled || destroyed || _paused === true) return false;
    const current = responseOn(this.#socket);
    const { rawHeaders, complete } = this.#last;
    return !current || (current.req.rawHeaders === rawHeaders && !complete);
  }

  /** Replaces `parser.onIncoming`. */
  readonly #onHead: OnIncoming = (req, keepAlive) => {
    // Never hold an upgrade: the server must decide about it before the parser continues. Its answer waits for the earlier
    // responses.
    if (!req.upgrade && responseOn(this.#socket)) {
      this.#held = { req, keepAlive };
      this.#wait();
      return PAUSED;
    }
    this.#last = req;
    const result = this.#ofNode.onIncoming.call(this.#parser, req, keepAlive);
    if (req.upgrade) this.#remove();
    return result;
  };

  /** Replaces the member `kOnExecute`. Node calls it with the result of parsing bytes that the parser itself has read. */
  readonly #onParsed: OnExecute = (result) => {
    const left = this.#settle(result);
    this.#ofNode.onExecute.call(this.#parser, left);
    this.#readOn();
  };

  /** Replaces `parser.execute`. Node calls it with the bytes that the socket emits. */
  readonly #take = (bytes: Buffer): unknown => {
    if (!this.#isFeeding && (this.isHolding || !this.#mayGoOn())) {
      this.#keep(bytes);
      return bytes.byteLength;
    }
    return this.#settle(this.#execute(bytes), bytes);
  };

  #execute(bytes: Buffer): unknown {
    return this.#ofNode.execute.call(this.#parser, bytes);
  }

  /**
   * Keeps the bytes behind the head at which the parser has stopped, and returns the result as if all had been parsed.
   * @param given the bytes, unless the parser has read them itself
   */
  #settle(result: unknown, given?: Buffer): unknown {
    if (this.#held === undefined) return result;
    const { code, bytesParsed = 0 } = result as { code?: unknown; bytesParsed?: number };
    if (code !== "HPE_PAUSED") return result;
    const bytes = given ?? this.#parser.getCurrentBuffer();
    const rest = bytes.subarray(bytesParsed);
    if (rest.byteLength > 0) this.#kept.unshift(rest);
    this.#keptBytes += rest.byteLength;
    // Let the parser finish a request without a body: Node's time limit for a whole request must not count the wait.
    this.#parser.resume();
    this.#execute(bytes.subarray(bytes.byteLength));
    return bytes.byteLength;
  }

  #keep(bytes: Buffer): void {
    // The timer shows that this class has paused the socket, so other code has resumed it: pause it again.
    if (this.#timer !== undefined) {
      this.#socket.pause();
      this.#socket.unshift(bytes);
      return;
    }
    this.#kept.push(bytes);
    this.#keptBytes += bytes.byteLength;
    if (this.#kept.length > MAX_CHUNKS) this.#kept = [Buffer.concat(this.#kept)];
    if (this.#keptBytes >= MAX_KEPT) this.#stopReading();
    this.#wait();
  }

  /** Continues to read the connection, although the body of a waiting request has filled that request's buffer. */
  #readOn(): void {
    if (this.#timer !== undefined || this.#mayGoOn() || this.#socket._paused === true) return;
    this.#socket.resume();
    this.#socket._read(0);
  }

  /**
   * Stops reading. The proxy then notices a disconnect only when a write fails, so it closes the connection if for some time,
   * nothing is written and nothing waits to be written.
   */
  #stopReading(): void {
    const socket = this.#socket;
    socket.pause();
    let written = socket.bytesWritten;
    this.#timer = setInterval(() => {
      const { bytesWritten, writableLength } = socket;
      if (bytesWritten === written && writableLength === 0) socket.destroy();
      written = bytesWritten;
    }, this.#stallTimeout).unref();
  }

  readonly #onResume = (): void => {
    // Node's parser has stopped the reading without informing the stream, so that `resume` alone reads nothing.
    if (this.#timer === undefined) this.#socket._read(0);
    this.advance();
  };

  /** Restores the parser, because Node may reuse it for another connection. */
  readonly #remove = (): void => {
    if (!this.#isInstalled) return;
    this.#isInstalled = false;
    clearInterval(this.#timer);
    const socket = this.#socket;
    const parser = this.#parser;
    socket.off("data", ignore).off("resume", this.#onResume).off("close", this.#remove);
    Reflect.deleteProperty(parser, "execute");
    if (parser.onIncoming === this.#onHead) parser.onIncoming = this.#ofNode.onIncoming;
    if (parser[this.#onExecute] === this.#onParsed) {
      parser[this.#onExecute] = this.#ofNode.onExecute;
    }
    this.#held = undefined;
    if (this.#kept.length > 0 && !socket.destroyed) {
      socket.pause();
      socket.unshift(Buffer.concat(this.#kept));
    }
    this.#kept = [];
  };
}
