/** `onRequestEnd`, which reports the outcome of each request once; trace fields, and copies for a mirror. */
import { once } from "node:events";
import { expect } from "vitest";
import { WebSocket } from "ws";
import type { RequestEnd } from "../../src/options/observationoptions.ts";
import type { Tools } from "./_suite.ts";
import { patience, within } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

type Seen = Omit<RequestEnd, "request"> & { readonly url: string };

/** Reads what the proxy has seen in `onRequestEnd`, until there are `count` requests. */
async function seen(t: Tools, count = 1): Promise<Seen[]> {
  const all: Seen[] = [];
  const deadline = performance.now() + patience;
  while (all.length < count && performance.now() < deadline) {
    const { text } = await t.ask(request("GET", "/seen"), "observed");
    all.push(...(JSON.parse(text) as Seen[]));
  }
  expect(all).toHaveLength(count);
  return all;
}

const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

export const observation = {
  async "serverTiming adds the proxy's measurements after the Server-Timing of the upstream"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(200, [["Server-Timing", "db;dur=5"]], "x");
    const client = await t.connect("timed");
    const timings: string[] = [];
    for (let turn = 0; turn < 2; turn++) {
      client.send(request("GET", "/"));
      timings.push((await client.read()).all("server-timing").join(", "));
    }
    const time = "[0-9]+\\.[0-9]";
    // A runtime's own HTTP client does not report its connections.
    const queue = `(?:, upstream-queue;dur=${time})?`;
    const first = `(${queue}, upstream-connect;dur=${time})?, upstream-first-byte;dur=${time}`;
    expect(timings[0]).toMatch(new RegExp(`^db;dur=5${first}$`));
    // The second request has reused the connection.
    expect(timings[1]).toMatch(new RegExp(`^db;dur=5${queue}, upstream-first-byte;dur=${time}$`));
    const plain = await t.ask(request("GET", "/"));
    expect(plain.all("server-timing")).toEqual(["db;dur=5"]);
  },

  async "the option mirror sends a copy of a request with its body to the target of the option"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(
      request("POST", "/a%2Fb?c", [["X-Id", "7"]], "the body"),
      "mirrored",
    );
    expect([answer.status, answer.text]).toEqual([200, "the body"]);
    for (const index of [0, 1]) {
      const call = await t.upstream.call(index);
      await call.done;
      const got = [call.method, call.target, call.get("x-id"), call.text];
      expect(got).toEqual(["POST", "/a%2Fb?c", "7", "the body"]);
    }
  },

  async "traceparent, tracestate and baggage pass unchanged, and none is added"(
    t: Tools,
  ): Promise<void> {
    const context: Header[] = [
      ["traceparent", TRACEPARENT],
      ["tracestate", "a=1,b=2"],
      ["baggage", "user=alice;p=1, k=v"],
    ];
    for (const setup of ["default", "timed"] as const) {
      await t.ask(request("GET", "/", context), setup);
      const call = t.upstream.calls.at(-1);
      for (const [name, value] of context) expect(call?.all(name)).toEqual([value]);
    }
    await t.ask(request("GET", "/"));
    const call = t.upstream.calls.at(-1);
    for (const [name] of context) expect(call?.all(name)).toEqual([]);
  },

  async "startTrace starts a trace where the client sends no valid traceparent"(
    t: Tools,
  ): Promise<void> {
    const invalid = [
      undefined,
      "",
      "garbage",
      TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0".repeat(32)),
      TRACEPARENT.replace("00f067aa0ba902b7", "0".repeat(16)),
      TRACEPARENT.toUpperCase(),
      TRACEPARENT.replace("00-", "ff-"),
      `${TRACEPARENT}-more`,
      `${TRACEPARENT}, ${TRACEPARENT}`,
    ];
    const started = new Set<string>();
    for (const value of invalid) {
      const sent: Header[] = value === undefined ? [] : [["traceparent", value]];
      await t.ask(
        request("GET", "/", [...sent, ["tracestate", "a=1"], ["baggage", "k=v"]]),
        "timed",
      );
      const call = t.upstream.calls.at(-1);
      expect(call?.all("traceparent")).toEqual([
        expect.stringMatching(/^00-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-01$/),
      ]);
      started.add(call?.get("traceparent") ?? "");
      expect(call?.all("tracestate")).toEqual([]);
      expect(call?.all("baggage")).toEqual(["k=v"]);
    }
    expect(started.size).toBe(invalid.length);
    // A later version of `traceparent` may append fields.
    const later = `${TRACEPARENT.replace("00-", "cc-")}-more`;
    await t.ask(request("GET", "/", [["traceparent", later]]), "timed");
    expect(t.upstream.calls.at(-1)?.all("traceparent")).toEqual([later]);
  },

  async "onRequestEnd reports the request, the response and the duration"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reply(203, [], "answer");
    const client = await t.connect("observed");
    for (let turn = 0; turn < 2; turn++) {
      client.send(request("GET", "/a?b=c"));
      expect((await client.read()).text).toBe("answer");
    }
    const [first, second] = (await seen(t, 2)) as [Seen, Seen];
    expect(first).toMatchObject({
      method: "GET",
      path: "/a?b=c",
      route: "/observed/:id",
      authority: "proxy.test",
      upstream: t.upstream.url,
      status: 203,
      attempts: 1,
      bytesIn: 0,
    });
    expect(first.url).toBe("http://proxy.test/a?b=c");
    expect(first.error).toBe(undefined);
    expect(Math.abs(Date.now() - first.startedAt)).toBeLessThan(600_000);
    const { firstByte = NaN, total } = first.timings;
    expect(firstByte).toBeGreaterThan(0);
    expect(total).toBeGreaterThanOrEqual(firstByte);
    // A runtime's own HTTP client does not report its connections.
    expect([undefined, true]).toContain(second.reused);
    if (second.reused === true) expect(first.timings.connect).toBeGreaterThan(0);
  },

  async "onRequestEnd counts the bytes of both bodies"(t: Tools): Promise<void> {
    const client = await t.connect("observed");
    client.send(
      request("POST", "/", [["Transfer-Encoding", "chunked"]]),
      chunk("x".repeat(70_000)),
    );
    await t.upstream.call();
    client.send(chunk("y"), lastChunk);
    expect((await client.read("POST")).length).toBe(70_001);
    expect(await seen(t)).toMatchObject([{ method: "POST", bytesIn: 70_001, bytesOut: 70_001 }]);
  },

  async "onRequestEnd reports why there was no response"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reset();
    expect((await t.ask(request("POST", "/", [], "x"), "observed")).status).toBe(502);
    expect((await t.ask(request("GET", "/refused"), "observed")).status).toBe(502);
    expect(await seen(t, 2)).toMatchObject([
      { status: 502, error: "connection_terminated", attempts: 1 },
      {
        status: 502,
        error: expect.stringMatching(/^connection_(?:refused|terminated)$/) as string,
      },
    ]);
  },

  async "onRequestEnd reports a response that broke off"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let client = await t.connect("observed");
    client.send(request("GET", "/upstream"));
    await client.readHead();
    (await t.upstream.call()).link.socket.end();
    await client.rest();
    expect(await seen(t)).toMatchObject([
      { path: "/upstream", status: 200, error: "http_response_incomplete", bytesOut: 3 },
    ]);

    client = await t.connect("observed");
    client.send(request("GET", "/client"));
    await client.readHead();
    client.leave("RST");
    expect(await seen(t)).toMatchObject([{ path: "/client", status: 200, attempts: 1 }]);
  },

  async "the tracing channel fetchway.request publishes the start and the end of each exchange"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.target === "/traced/b" ? call.reset() : call.reply(203, [], "answer");
    const command = async (path: string): Promise<unknown> =>
      JSON.parse((await t.ask(request("GET", path), "observed")).text);
    expect(await command("/trace/start"), "the runtime has such a channel").toBe(true);
    const seenOf = async (method: string, path: string): Promise<string[]> => {
      const body = method === "POST" ? "x" : undefined;
      await t.ask(request(method, path, [], body), "observed");
      const deadline = performance.now() + patience;
      for (;;) {
        const all = (await command("/trace/seen")) as string[];
        const own = all.filter((line) => line.includes(path));
        const isOver = own.some((line) => line.startsWith("asyncEnd"));
        // `start` is published before the response. If `start` is missing here, the channel does not report this request.
        const isUnseen = !own.some((line) => line.startsWith("start"));
        if (isOver || isUnseen || performance.now() > deadline) return own;
      }
    };
    const a = "GET proxy.test/traced/a";
    const b = "POST proxy.test/traced/b";
    // `onRequest` runs in the asynchronous context that the subscriber has bound to `start`.
    const first = await seenOf("GET", "/traced/a");
    expect(first).toEqual(expect.arrayContaining(["onRequest /traced/a", `end ${a}`]));
    expect(first.filter((line) => !/^(?:onRequest|end) /.test(line))).toEqual([
      `start ${a}`,
      `asyncStart ${a} 203 complete`,
      `asyncEnd ${a} 203 complete`,
    ]);
    const second = await seenOf("POST", "/traced/b");
    expect(second.filter((line) => !/^(?:onRequest|end) /.test(line))).toEqual([
      `start ${b}`,
      `error ${b} 502 connection_terminated`,
      `asyncStart ${b} 502 connection_terminated`,
      `asyncEnd ${b} 502 connection_terminated`,
    ]);
    await command("/trace/stop");
    await t.ask(request("GET", "/traced/c"), "observed");
    expect(await command("/trace/stop")).toEqual(["onRequest undefined"]);
  },

  async "onRequestEnd reports a WebSocket when it is closed"(t: Tools): Promise<void> {
    t.upstream.script = async (call) => {
      const socket = await accept(call);
      socket.on("message", (data) => socket.send(data));
    };
    const socket = new WebSocket(`ws://127.0.0.1:${t.host.port("observed")}/chat`);
    await within(once(socket, "open"), "the WebSocket's opening");
    socket.send("hello");
    await within(once(socket, "message"), "the answer");
    expect(JSON.parse((await t.ask(request("GET", "/seen"), "observed")).text)).toEqual([]);
    socket.close();
    const [event] = (await seen(t)) as [Seen];
    expect(event).toMatchObject({ path: "/chat", status: 101, protocol: "websocket" });
    expect(event.bytesIn).toBeGreaterThan(5);
    expect(event.bytesOut).toBeGreaterThan(5);
  },

  async "onRequestEnd reports the error of a WebSocket whose upstream breaks off the connection"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = async (call) => void (await accept(call));
    const socket = new WebSocket(`ws://127.0.0.1:${t.host.port("observed")}/chat`);
    socket.on("error", () => {});
    await within(once(socket, "open"), "the WebSocket's opening");
    (await t.upstream.call()).reset();
    // The errors of tunnels are those of the socket.
    expect(await seen(t)).toMatchObject([{ status: 101, error: "ECONNRESET" }]);
  },
};
