/** On Deno, the memory of a large response's chunks is freed if, and only if, Deno's server alone has read them. */
import { expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";

/** A program on Deno that serves or reads a large body in several ways. The body keeps its chunks. */
const program = (ways: string): string => `
import { toFreedStream } from ${JSON.stringify(new URL("../../../runtimes/deno/internals/freedstream.ts", import.meta.url).href)};

const CHUNK = 100_000;
const COUNT = 40;

/** The bytes of a chunk show its place, so that a chunk that is missing or was overwritten is noticed. */
function makeChunk(index) {
  return new Uint8Array(CHUNK).fill(index + 1);
}

class Body {
  length = CHUNK * COUNT;
  buffered = 0;
  chunks = [];
  isCancelled = false;
  constructor(failsAt) {
    this.failsAt = failsAt;
  }
  async pipeTo(sink) {
    for (let i = 0; i < COUNT && !this.isCancelled; i++) {
      if (i === this.failsAt) return sink.fail(new Error("broken off"));
      const chunk = makeChunk(i);
      this.chunks.push(chunk);
      if (!sink.write(chunk)) await new Promise((resolve) => sink.onDrain(resolve));
      // Some chunks arrive together, others later.
      if (i % 3 === 0) await new Promise((resolve) => setTimeout(resolve));
    }
    if (!this.isCancelled) sink.end();
  }
  cancel() {
    this.isCancelled = true;
  }
  stream() {
    return "as it is";
  }
  get freed() {
    return this.chunks.filter(({ buffer }) => buffer.detached).length;
  }
}

function isWhole(bytes) {
  if (bytes.length !== CHUNK * COUNT) return false;
  return bytes.every((byte, index) => byte === Math.floor(index / CHUNK) + 1);
}

async function join(chunks) {
  const all = [];
  for await (const chunk of chunks) all.push(chunk);
  return new Uint8Array(await new Blob(all).arrayBuffer());
}

let body, respond;
const server = Deno.serve({ port: 0, onListen() {}, onError: () => new Response() }, async () => {
  body = new Body();
  const response = respond(toFreedStream(body));
  // As in the proxy, the stream has started before the server reads it.
  await new Promise((resolve) => setTimeout(resolve));
  return response;
});
const url = "http://127.0.0.1:" + server.addr.port;
const results = {};

/** Serves the body with a handler, and reads it whole. */
async function serve(name, handler, readsLate = false) {
  respond = handler;
  const response = await fetch(url);
  if (readsLate) await new Promise((resolve) => setTimeout(resolve, 100));
  const bytes = await response.bytes();
  results[name] = { isWhole: isWhole(bytes), freed: body.freed };
}

/** Reads the body on Deno without a server. */
async function read(name, take) {
  const body = new Body();
  results[name] = { isWhole: isWhole(await take(toFreedStream(body))), freed: body.freed };
}
${ways}
console.log(JSON.stringify(results));
Deno.exit();
`;

async function run(ways: string): Promise<unknown> {
  await using running = startProgram("deno", ["eval", program(ways)]);
  const [line] = await running.printed(/\{.*\}/);
  return JSON.parse(line);
}

test("the memory of each chunk that only Deno's server reads is freed, even if the client reads late", async () => {
  const results = await run(`
    await serve("served", (stream) => new Response(stream));
    await serve("served late", (stream) => new Response(stream), true);
    await serve("served in another response", (stream) => new Response(new Response(stream).body));
  `);
  expect(results).toEqual({
    served: { isWhole: true, freed: 40 },
    "served late": { isWhole: true, freed: 40 },
    "served in another response": { isWhole: true, freed: 40 },
  });
});

test("chunks that any code other than Deno's server reads keep their memory", async () => {
  const results = await run(`
    await read("text", async (stream) => new TextEncoder().encode(await new Response(stream).text()));
    await read("bytes", (stream) => new Response(stream).bytes());
    await read("loop", (stream) => join(stream));
    await read("reader", async (stream) => {
      const reader = stream.getReader();
      const chunks = [];
      for (let read; !(read = await reader.read()).done; ) chunks.push(read.value);
      return join(chunks);
    });
    await read("pipe", (stream) => join(stream.pipeThrough(new TransformStream())));
    await read("tee", async (stream) => {
      const [first, second] = stream.tee();
      const [bytes] = await Promise.all([join(first), join(second)]);
      return bytes;
    });
    await serve("transformed", (stream) => new Response(stream.pipeThrough(new TransformStream())));
    await serve("tee, one branch served", (stream) => {
      const [first, second] = stream.tee();
      void join(second);
      return new Response(first);
    });
    await serve("clone", (stream) => {
      const response = new Response(stream);
      void response.clone().bytes();
      return response;
    });
    await serve("passed on", (stream) => {
      const reader = stream.getReader();
      const pull = async (controller) => {
        const { value, done } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      };
      return new Response(new ReadableStream({ pull }, { highWaterMark: 0 }));
    });
  `);
  const left = { isWhole: true, freed: 0 };
  const names = ["text", "bytes", "loop", "reader", "pipe", "tee"];
  const served = ["transformed", "tee, one branch served", "clone", "passed on"];
  expect(results).toEqual(Object.fromEntries([...names, ...served].map((name) => [name, left])));
});

test("chunks keep their memory if the app has frozen Error", async () => {
  const results = await run(`
    Object.freeze(Error);
    await serve("frozen", (stream) => new Response(stream));
  `);
  expect(results).toEqual({ frozen: { isWhole: true, freed: 0 } });
});

test("chunks keep their memory if an app's own stream class has functions with the same names as Deno's class", async () => {
  const results = await run(`
    globalThis.ReadableStream = class {
      constructor(source) {
        this.source = source;
        this.chunks = [];
        source.start({
          enqueue: (chunk) => this.chunks.push(chunk),
          close: () => (this.isClosed = true),
        });
      }
    };
    function readableStreamDefaultReaderRead(stream) {
      stream.source.pull();
      return new Promise((resolve) => setTimeout(resolve));
    }
    await read("own class", async function readableStreamReadFn(stream) {
      while (!stream.isClosed) await readableStreamDefaultReaderRead(stream);
      return join(stream.chunks);
    });
  `);
  expect(results).toEqual({ "own class": { isWhole: true, freed: 0 } });
});

test("an app's own settings of stack traces stay as they were", async () => {
  const results = await run(`
    let calls = 0;
    const prepare = () => void calls++;
    Error.prepareStackTrace = prepare;
    Error.stackTraceLimit = 3;
    await serve("served", (stream) => new Response(stream));
    results.isKept = Error.prepareStackTrace === prepare && Error.stackTraceLimit === 3;
    results.calls = calls;
  `);
  expect(results).toEqual({ served: { isWhole: true, freed: 40 }, isKept: true, calls: 0 });
});

test("the response is truncated when its body fails, and the body is cancelled when the client disconnects", async () => {
  const results = await run(`
    respond = () => {
      body = new Body(20);
      return new Response(toFreedStream(body));
    };
    results.failed = await fetch(url).then((response) => response.bytes()).then(() => "whole", () => "broken off");
    respond = (stream) => new Response(stream);
    const response = await fetch(url);
    await response.body.cancel();
    while (!body.isCancelled) await new Promise((resolve) => setTimeout(resolve, 5));
    results.cancelled = body.chunks.length < COUNT;
    const small = new Body();
    small.length = 1000;
    const unknown = new Body();
    unknown.length = undefined;
    results.asItIs = [small, unknown].map(toFreedStream);
  `);
  expect(results).toEqual({
    failed: "broken off",
    cancelled: true,
    asItIs: ["as it is", "as it is"],
  });
});
