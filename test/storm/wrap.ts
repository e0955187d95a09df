/**
 * Acts as other code in the proxy's process. Hosts on Node preload it. It wraps methods of prototypes as
 * APMs and body loggers do. It keeps some of the chunks that it sees, with a copy of each, and prints to stderr which chunks
 * have changed. The field `X-Intrusion` names what else it does to a request and its response.
 *
 *     node --import wrap.ts?seed=1        # before the proxy is loaded
 *     node --import wrap.ts?seed=1&late   # after
 */
import { subscribe } from "node:diagnostics_channel";
import { EventEmitter } from "node:events";
import { type IncomingMessage, OutgoingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { Duplex, Readable, Writable } from "node:stream";
import { Dice } from "./dice.ts";
import type { Intrusion } from "./plan.ts";

const { searchParams } = new URL(import.meta.url);
const dice = new Dice(Number(searchParams.get("seed")), 0);

interface Kept {
  chunk: Uint8Array;
  copy: Buffer;
  where: string;
}

/** The number of chunks that are kept at a time, and the size in bytes of the largest. */
const KEPT = 400;
const LARGEST = 131_072;
/** The number of lines that may still be printed: further ones would add nothing new. */
let lines = 5;
const kept: (Kept | undefined)[] = Array.from({ length: KEPT });
let next = 0;

function complain(what: string): void {
  if (lines-- > 0) process.stderr.write(`${what}\n`);
}

/** Reports a chunk that has changed, and drops it. */
function check(at: number): void {
  const entry = kept[at];
  if (entry === undefined) return;
  const { chunk, copy, where } = entry;
  if (chunk.byteLength === copy.length && copy.equals(chunk)) return;
  kept[at] = undefined;
  complain(
    chunk.byteLength === 0
      ? `a chunk of ${copy.length} bytes that ${where} saw has been detached`
      : `a chunk of ${copy.length} bytes that ${where} saw has changed`,
  );
}

function checkAll(): void {
  for (let at = 0; at < KEPT; at++) check(at);
}

function keep(value: unknown, where: string): void {
  if (!(value instanceof Uint8Array) || value.length === 0 || value.length > LARGEST) return;
  if (!dice.chance(25)) return;
  const entry = { chunk: value, copy: Buffer.from(value), where };
  next = (next + 1) % KEPT;
  check(next);
  kept[next] = entry;
}

type Method = (this: unknown, ...args: unknown[]) => unknown;

/**
 * Wraps a method.
 * @param see called with the method's arguments and its result
 */
function wrap(
  prototype: object,
  name: string,
  see: (args: unknown[], result: unknown, where: string) => unknown,
): void {
  const original = (prototype as Record<string, Method>)[name] as Method;
  const where = `${prototype.constructor.name}.prototype.${name}`;
  Object.assign(prototype, {
    [name](this: unknown, ...args: unknown[]) {
      const result = original.apply(this, args);
      see(args, result, where);
      return result;
    },
  });
}

const first = (args: unknown[], _: unknown, where: string): void => keep(args[0], where);
const result = (_: unknown[], value: unknown, where: string): void => keep(value, where);
const emitted = ([event, value]: unknown[], _: unknown, where: string): void => {
  if (event === "data") keep(value, where);
};

/** Matches a block of a response body. No code but the proxy puts response bodies into web streams. */
const RESPONSE_BLOCK = /s[0-9a-f]{8}\./;
/** The ArrayBuffers of the chunks of response bodies in web streams. No two chunks may share one. */
const buffers = new WeakSet<ArrayBufferLike>();
const read = async (_: unknown[], reading: unknown, where: string): Promise<void> => {
  const { value } = await (reading as Promise<{ value?: unknown }>).catch(() => ({ value: null }));
  if (!(value instanceof Uint8Array)) return;
  if (RESPONSE_BLOCK.test(Buffer.from(value.subarray(0, 32)).toString("latin1"))) {
    if (buffers.has(value.buffer)) complain(`two chunks that ${where} gave share a buffer`);
    buffers.add(value.buffer);
  }
  keep(value, where);
};

type Wrapper = [prototype: object, methods: string[], see: typeof first | typeof read];
const wrappers: Wrapper[] = [
  [OutgoingMessage.prototype, ["write", "end"], first],
  [ServerResponse.prototype, ["write", "end"], first],
  [Socket.prototype, ["write", "end", "_write"], first],
  [Duplex.prototype, ["write", "end"], first],
  [Writable.prototype, ["write", "end"], first],
  [Readable.prototype, ["push", "unshift"], first],
  [Readable.prototype, ["read"], result],
  [EventEmitter.prototype, ["emit"], emitted],
  [Socket.prototype, ["emit"], emitted],
  [ReadableStreamDefaultReader.prototype, ["read"], read],
];

/**
 * Installs some of the wrappers. If all were installed, the proxy would always detect one of them, which would hide a
 * missing check for another.
 */
function wrapSome(): void {
  for (const [prototype, methods, see] of wrappers) {
    if (dice.chance(30)) for (const name of methods) wrap(prototype, name, see);
  }
}

/** The function of each intrusion. Some act later, while the proxy is handling the request. */
const intrusions: { [kind in Intrusion]: (req: IncomingMessage, res: ServerResponse) => void } = {
  "data before": listenTo,
  "data in a microtask": (req) =>
    queueMicrotask(() => req.on("data", (data) => keep(data, "data"))),
  "data later": (req) => setImmediate(() => req.on("data", (data) => keep(data, "data"))),
  "readable later": (req) =>
    setImmediate(() =>
      req.on("readable", () => {
        while (req.read() !== null);
      }),
    ),
  "resume later": (req) => setImmediate(() => req.resume()),
  "read later": (req) => setImmediate(() => keep(req.read(), "read")),
  "response watched": (_, res) =>
    ["drain", "finish", "close", "pipe"].forEach((event) => res.on(event, () => {})),
  "response wrapped"(_, res) {
    for (const name of ["write", "end"] as const) {
      const original = res[name] as Method;
      Object.assign(res, {
        [name](...args: unknown[]) {
          keep(args[0], `the response's own ${name}`);
          return original.apply(res, args);
        },
      });
    }
  },
};

/** Adds listeners before the proxy reads the request's body. They must get the whole body, or no "end" event. */
function listenTo(req: IncomingMessage): void {
  let length = 0;
  const size = Number(req.headers["x-size"]);
  req.on("data", (data: Buffer) => {
    length += data.length;
    keep(data, "data");
  });
  req.on("end", () => {
    if (length !== size) complain(`a data listener got \`end\` after ${length} of ${size} bytes`);
  });
}

subscribe("http.server.request.start", (message) => {
  const { request, response } = message as { request: IncomingMessage; response: ServerResponse };
  const kind = request.headers["x-intrusion"] as Intrusion | undefined;
  if (kind !== undefined) intrusions[kind](request, response);
});

if (searchParams.has("late")) setImmediate(() => setImmediate(wrapSome));
else wrapSome();
setInterval(checkAll, 300).unref();
process.on("SIGTERM", () => {
  checkAll();
  process.exit(0);
});
