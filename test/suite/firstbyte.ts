/**
 * Responses whose head is held until the body begins (`fetchway/streams`). The setup has two upstreams, which are one server
 * under two names: requests go to 127.0.0.1 first, and to localhost if that fails.
 */
import { gzipSync } from "node:zlib";
import { expect } from "vitest";
import type { Client, ResponseHead } from "../helpers/client.ts";
import type { Call } from "../helpers/link.ts";
import { until, within } from "../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../helpers/wire.ts";
import type { Tools } from "./_suite.ts";

const STREAM =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const COMMENT = ":\n\n";

function isFirst(call: Call): boolean {
  return call.get("host")?.startsWith("127.0.0.1") === true;
}

/** Makes the first upstream fail by `fail`. The second upstream sends one event, and then the request body as another event. */
function failFirst(t: Tools, fail: (call: Call) => void): void {
  t.upstream.script = async (call) => {
    await call.done;
    if (isFirst(call)) fail(call);
    else call.write(STREAM, chunk(`data: 2\n\ndata: ${call.text}\n\n`), lastChunk);
  };
}

/** The ways in which an event stream can fail before the client has received any byte. */
const FAILURES: Readonly<Record<string, (call: Call) => void>> = {
  "stalls without a byte": (call) => call.write(STREAM),
  "stalls after a comment": (call) => call.write(STREAM, chunk(": wait\n\n")),
  "stalls within its first event": (call) => call.write(STREAM, chunk("data: 1\n")),
  "is empty": (call) => call.write(STREAM, lastChunk),
  "ends without an event": (call) => call.write(STREAM, chunk("event: x\n\n"), lastChunk),
  "breaks without a byte": (call) => void call.link.socket.end(STREAM),
  "breaks within its first event": (call) =>
    void call.link.socket.end(Buffer.concat([Buffer.from(STREAM), chunk("data: 1\n")])),
  "begins with an error": (call) => call.write(STREAM, chunk("event: error\ndata: x\n\n")),
};

/** Reads a body chunk by chunk. */
class Reader {
  text = "";
  readonly #pieces: ReturnType<Client["pieces"]>;

  constructor(client: Client, head: ResponseHead) {
    this.#pieces = client.pieces(head);
  }

  /** Reads until the text satisfies a condition. */
  async read(isEnough: (text: string) => boolean): Promise<void> {
    while (!isEnough(this.text)) {
      const next = await within(this.#pieces.next(), `more than ${JSON.stringify(this.text)}`);
      if (next.done) throw new Error(`the body ended after ${JSON.stringify(this.text)}`);
      this.text += next.value.toString("latin1");
    }
  }
}

/** Opens an event stream that begins with this text. */
async function open(t: Tools, text: string, path = "/"): Promise<[Reader, Call, Client]> {
  const before = t.upstream.calls.length;
  t.upstream.script = (call) => call.write(STREAM, chunk(text));
  const client = await t.connect("awaiting");
  client.send(request("GET", path));
  const reader = new Reader(client, await client.readHead());
  return [reader, await t.upstream.call(before), client];
}

/** Sends a request that is not retried. The upstream sends only the head of an event stream. */
async function openStalled(t: Tools): Promise<[Client, Call]> {
  const before = t.upstream.calls.length;
  t.upstream.script = (call) => call.write(STREAM);
  const client = await t.connect("awaiting");
  client.send(request("OPTIONS", "/"));
  return [client, await t.upstream.call(before)];
}

/** Disconnects two clients, one before and one after its event stream begins. */
async function leave(t: Tools, how: "FIN" | "RST"): Promise<void> {
  // If this process stalls, the time limit may end both requests: then repeat.
  let isAborted = false;
  for (let attempt = 0; !isAborted && attempt < 5; attempt++) {
    await t.upstream.reset();
    // Open `waiting` first: if only the time limit ended requests, `waiting` would end first.
    const [waiting] = await openStalled(t);
    const [client, call] = await openStalled(t);
    client.leave(how);
    isAborted = await Promise.race([
      call.link.closed.then(() => true),
      waiting.readHead().then(() => false),
    ]);
  }
  expect(isAborted).toBe(true);

  const [, begun, reading] = await open(t, "data: 1\n\n");
  reading.leave(how);
  await within(begun.link.closed, "the upstream's connection closed");
  expect(t.upstream.calls).toHaveLength(3);
}

export const firstByte = {
  async "if an event stream fails before its first event, the client gets the stream of another upstream, also for a POST"(
    t: Tools,
  ): Promise<void> {
    for (const [name, fail] of Object.entries(FAILURES)) {
      failFirst(t, fail);
      const answer = await t.ask(request("POST", "/", [], "the body"), "awaiting");
      const events = answer.text.replaceAll(COMMENT, "");
      expect([name, answer.status, answer.cut, events]).toEqual([
        name,
        200,
        false,
        "data: 2\n\ndata: the body\n\n",
      ]);
      const [first, second, ...more] = t.upstream.calls;
      expect([first?.text, second?.text, more.length]).toEqual(["the body", "the body", 0]);
      if (name.startsWith("stalls")) await within(first?.link.closed as Promise<void>, name);
      await t.upstream.reset();
    }
  },

  async "if a body that is no event stream stalls or breaks off before its first byte, the client gets another upstream's"(
    t: Tools,
  ): Promise<void> {
    const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const fail of [
      (call: Call) => call.write(head),
      (call: Call) => void call.link.socket.end(head),
    ]) {
      failFirst(t, fail);
      expect(await t.ask(request("GET", "/"), "awaiting")).toMatchObject({
        status: 200,
        cut: false,
      });
      expect(t.upstream.calls).toHaveLength(2);
      await t.upstream.reset();
    }
  },

  async "if the event streams of all upstreams fail, the client gets the error of the last one"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.write(STREAM);
    const late = await t.ask(request("GET", "/"), "awaiting");
    expect([late.status, late.get("proxy-status")]).toEqual([
      504,
      expect.stringContaining("http_response_timeout"),
    ]);
    t.upstream.script = (call) => call.write(STREAM, lastChunk);
    const empty = await t.ask(request("GET", "/"), "awaiting");
    expect([empty.status, empty.get("proxy-status")]).toEqual([
      502,
      expect.stringContaining("http_response_incomplete"),
    ]);
    // An error event that an upstream has sent reaches the client.
    t.upstream.script = (call) => call.write(STREAM, chunk("event: error\ndata: x\n\n"), lastChunk);
    const own = await t.ask(request("GET", "/"), "awaiting");
    expect([own.status, own.text]).toEqual([503, "event: error\ndata: x\n\n"]);
    expect(t.upstream.calls).toHaveLength(6);
  },

  async "an event stream is forwarded unchanged from its first event on, and each later chunk immediately"(
    t: Tools,
  ): Promise<void> {
    const parts = [": a comment\n\n", "data: ", "1\r", "\n\r"];
    t.upstream.script = (call) => call.write(STREAM, ...parts.map(chunk));
    const client = await t.connect("awaiting");
    client.send(request("GET", "/"));
    const head = await client.readHead();
    const reader = new Reader(client, head);
    const [call] = t.upstream.calls as [Call];
    let expected = parts.join("");
    await reader.read((text) => text.length >= expected.length);
    for (const part of ["\nd", "ata: 2", "\n\n"]) {
      call.write(chunk(part));
      expected += part;
      await reader.read((text) => text.replaceAll(COMMENT, "").length >= expected.length);
    }
    expect(reader.text.replaceAll(COMMENT, "")).toBe(expected);
    expect(head.get("content-type")).toBe("text/event-stream");
    expect(t.upstream.calls).toHaveLength(1);
  },

  async "a silent event stream gets comments between its events, and none within an event"(
    t: Tools,
  ): Promise<void> {
    const [between, first] = await open(t, "data: 1\n\n");
    const [inEvent, second] = await open(t, "data: 1\n\ndata: 2\r");
    // The comments in the stream `between` show that the interval has passed several times.
    await between.read((text) => text.endsWith(COMMENT.repeat(4)));
    first.write(chunk("data: 2\n\n"), lastChunk);
    second.write(chunk("\n\r\n"), lastChunk);
    await between.read((text) => text.endsWith("data: 2\n\n"));
    await inEvent.read((text) => text.includes("data: 2\r\n\r\n"));
    expect(between.text).toMatch(/^data: 1\n\n(?::\n\n){4,}data: 2\n\n$/);
    expect(inEvent.text).toMatch(/^data: 1\n\ndata: 2\r\n\r\n(?::\n\n)*$/);
  },

  async "an event stream with a Content-Length gets no comments, with or without a content coding"(
    t: Tools,
  ): Promise<void> {
    const [clock] = await open(t, "data: 1\n\n");
    const events = "data: 1\n\ndata: 2\n\n";
    const fields: Header[] = [["Content-Type", "text/event-stream"]];
    const half = events.length / 2;
    t.upstream.script = async (call) => {
      const isPlain = call.target === "/plain";
      const body = isPlain ? Buffer.from(events) : gzipSync(events);
      const split = isPlain ? half : 5;
      const coding = isPlain ? "" : "Content-Encoding: gzip\r\n";
      call.write(
        `HTTP/1.1 200 OK\r\n${fields.map((each) => each.join(": ")).join("\r\n")}\r\n${coding}`,
        `Content-Length: ${body.length}\r\n\r\n`,
        body.subarray(0, split),
      );
      clock.text = "";
      await clock.read((text) => text.endsWith(COMMENT.repeat(3)));
      call.write(body.subarray(split));
    };
    for (const path of ["/plain", "/coded"]) {
      const answer = await t.ask(request("GET", path, [["Accept-Encoding", "gzip"]]), "awaiting");
      expect([answer.status, answer.cut]).toEqual([200, false]);
      expect(answer.body.includes(COMMENT), path).toBe(false);
    }
  },

  async "a client that disconnects by FIN ends the request, before the stream begins and after it"(
    t: Tools,
  ): Promise<void> {
    await leave(t, "FIN");
  },

  async "a client that disconnects by RST ends the request, before the stream begins and after it"(
    t: Tools,
  ): Promise<void> {
    await leave(t, "RST");
  },

  async "responses without a body, and error responses, are forwarded immediately"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      const status = Number(call.target.slice(1));
      if (call.method === "HEAD") call.write(STREAM);
      else if (status < 400) call.reply(status, [["Content-Type", "text/event-stream"]]);
      else call.write(STREAM.replace("200 OK", `${status} No`), chunk(": no event\n\n"));
    };
    for (const [method, path] of [
      ["HEAD", "/200"],
      ["GET", "/204"],
      ["GET", "/304"],
      ["GET", "/404"],
    ] as const) {
      const client = await t.connect("awaiting");
      client.send(request(method, path));
      const head = await client.readHead();
      expect(head.status).toBe(Number(path.slice(1)));
    }
    await until(() => t.upstream.calls.length === 4, "the requests");
  },
};
