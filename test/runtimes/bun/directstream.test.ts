/**
 * Bodies that are still arriving, on Bun: the direct stream that the proxy returns behaves like any other stream when an app
 * uses it, and the proxy returns no direct stream on versions of Bun whose direct streams are not reliable.
 */
import { once } from "node:events";
import { gunzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Client, connect } from "../../helpers/client.ts";
import { flushed, mebibyte } from "../../helpers/large.ts";
import type { Call } from "../../helpers/link.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { settled, until, within } from "../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

/**
 * Starts a server with one route for each way in which an app handles the proxy's response. It prints the types of the
 * underlying sources of all streams.
 * @param isOld whether direct streams do not call `cancel`, as before Bun 1.4.3
 */
function startApp(isOld: boolean): Program {
  const code = `
    import { proxyFetch } from ${JSON.stringify(new URL("../../../runtimes/bun.ts", import.meta.url).href)};
    globalThis.ReadableStream = class extends ReadableStream {
      constructor(source, strategy) {
        super(${isOld} && source?.type === "direct" ? { ...source, cancel: undefined } : source, strategy);
        console.log("stream=" + source?.type);
      }
    };
    const ways = {
      asIs: (response) => response,
      rebuilt: (response) => new Response(response.body, response),
      cloned: async (response) => {
        response.clone().text().then((text) => console.log("copy=" + text), (reason) => console.log("copy failed: " + reason));
        return response;
      },
      split: (response) => {
        const [one, other] = response.body.tee();
        new Response(other).text().then((text) => console.log("copy=" + text), (reason) => console.log("copy failed: " + reason));
        return new Response(one, response);
      },
      piped: (response) => new Response(response.body.pipeThrough(new TransformStream()), response),
      compressed: (response) => new Response(response.body.pipeThrough(new CompressionStream("gzip")), response),
      read: async (response) => new Response(await response.text()),
      iterated: (response) => new Response(async function* () { yield* response.body; }, response),
      cancelled: async (response) => {
        await response.body.cancel();
        return new Response("cancelled");
      },
    };
    const server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const response = await proxyFetch(request, ${JSON.stringify(upstream.url)});
        console.log("answered=" + request.url);
        return ways[new URL(request.url).pathname.slice(1)](response);
      },
      error: () => new Response("failed", { status: 500 }),
    });
    console.log("port=" + server.port);
  `;
  return startProgram("bun", ["-e", code]);
}

const streamed = ["asIs", "rebuilt", "cloned", "split", "piped", "compressed", "iterated"];
const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";

describe.each([
  ["this version of Bun", false, "direct"],
  ["a version whose direct streams do not call cancel", true, "undefined"],
])("on %s", (_, isOld, type) => {
  let program: Program;
  beforeAll(() => {
    program = startApp(isOld);
  });
  afterAll(() => program[Symbol.asyncDispose]());

  async function open(way: string): Promise<[Client, Call]> {
    upstream.script = (call) => call.write(head, chunk("one "));
    const client = await connect(Number((await program.printed(/port=(\d+)/))[1]));
    client.send(request("GET", `/${way}`));
    return [client, await upstream.call()];
  }

  test(`a body that is still arriving is a stream of the type ${type}`, async () => {
    const before = program.output().length;
    const [client, call] = await open("asIs");
    const answer = await client.readHead();
    call.write(lastChunk);
    await client.readBody(answer);
    await until(() => program.output().slice(before).includes(`stream=${type}`), "the stream");
  });

  test.each([...streamed, "read"])(
    "%s: a body that is still arriving reaches the client completely",
    async (way) => {
      const [client, call] = await open(way);
      const next = way === "read" ? undefined : await client.readHead();
      call.write(chunk("two "));
      call.write(chunk("three"), lastChunk);
      const answer = next === undefined ? await client.read() : await client.readBody(next);
      const text = way === "compressed" ? gunzipSync(answer.body).toString() : answer.text;
      expect({ text, cut: answer.cut }).toEqual({ text: "one two three", cut: false });
      // Another request on the connection works, so the server has sent no byte after the end of the body.
      upstream.script = (each) => each.reply(200, [], "after");
      client.send(request("GET", "/asIs"));
      expect(await client.read()).toMatchObject({ status: 200, text: "after" });
      if (way === "cloned" || way === "split") await program.printed(/copy=one two three/);
    },
  );

  test.each(streamed)("%s: a body that breaks off never looks complete", async (way) => {
    const [client, call] = await open(way);
    const answer = await client.readHead();
    call.reset();
    expect((await client.readBody(answer)).cut).toBe(true);
    if (way === "cloned" || way === "split") await program.printed(/copy failed: undefined/);
  });

  test("a body that breaks off before its first chunk never looks complete", async () => {
    upstream.script = (call) => call.write(head);
    const client = await connect(Number((await program.printed(/port=(\d+)/))[1]));
    client.send(request("GET", "/asIs"));
    const call = await upstream.call();
    await within(once(client.socket, "readable"), "a part of the response head");
    call.reset();
    // Bun sends the end of the head with the first chunk.
    expect((await client.rest()).toString("latin1")).not.toContain("\r\n\r\n");
  });

  test("an app that reads the body of a truncated response gets an error", async () => {
    const [client, call] = await open("read?torn");
    // If the reset arrived before Bun has read the response head, the app would get a 502 instead.
    await program.printed(/answered=\S*read\?torn\n/);
    call.reset();
    expect(await client.read()).toMatchObject({ status: 500, text: "failed" });
  });

  test.each(streamed)("%s: the upstream request ends when the client disconnects", async (way) => {
    const [client, call] = await open(way);
    await client.readHead();
    client.leave("FIN");
    await within(call.link.closed, "the end of the upstream connection");
  });

  test("the upstream request is closed when the app cancels the body", async () => {
    const [client, call] = await open("cancelled");
    expect(await client.read()).toMatchObject({ status: 200, text: "cancelled" });
    await within(call.link.closed, "the end of the upstream connection");
  });

  // Leave out clones: a clone takes all chunks, and keeps them for the slow client.
  const passedOn = streamed.filter((way) => way !== "cloned" && way !== "split");
  test.each(passedOn)("%s: the upstream waits for a slow client", async (way) => {
    const [client, call] = await open(way);
    const { socket, closed } = call.link;
    // Bun and the system keep a part of the body in buffers: on a busy machine, 40 MiB were seen.
    const size = (way === "asIs" ? 128 : 256) * mebibyte;
    void call.pour(size, { chunked: true });
    const sent = await settled(() => flushed(socket));
    expect(sent).toBeLessThan(size / 2);
    if (way === "asIs") {
      // The rest arrives as soon as the client reads.
      expect(await client.read()).toMatchObject({ length: size + 4, cut: false });
      return;
    }
    client.leave("RST");
    await within(closed, "the end of the upstream connection");
  });
});
