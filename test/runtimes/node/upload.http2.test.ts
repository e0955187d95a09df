/**
 * Requests over HTTP/2 that the client resets, and malformed requests. Most tests write raw frames, because no client
 * library would send these requests.
 */
import { once } from "node:events";
import {
  connect as connectHttp2,
  createServer as createHttp2,
  type Http2Server,
  type ServerHttp2Stream,
} from "node:http2";
import { connect as connectTcp } from "node:net";
import { text as readText } from "node:stream/consumers";
import { toNodeHandler } from "srvx/node";
import { describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { useApps } from "../../helpers/apps.ts";
import { rfc } from "../../conformance/rfc.ts";
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  GOAWAY,
  HEADERS,
  PREFACE,
  RawConnection,
  RST_STREAM,
  SETTINGS,
  uint32,
} from "../../helpers/frames.ts";
import type { Call } from "../../helpers/link.ts";
import { pause, until } from "../../helpers/wait.ts";

const apps = useApps();
const { upstream } = apps;

const HALF = "x".repeat(3000);

const KINDS = ["node:http2", "srvx"] as const;

async function serve(
  kind: (typeof KINDS)[number],
  options: ProxyOptions = {},
): Promise<Http2Server> {
  const proxy = createProxy({ ...options, target: upstream.url });
  const handler =
    kind === "srvx" ? toNodeHandler((web) => proxy.fetch(web)) : (proxy.nodeHandler as unknown);
  const server = createHttp2({}, handler as never);
  await apps.listen(server);
  return server;
}

/** Returns the HEADERS frame of a POST, with further fields. */
function postHead(...fields: Buffer[]): Buffer {
  const block = [
    field(":method", "POST"),
    field(":scheme", "http"),
    field(":authority", "proxy.test"),
    field(":path", "/"),
    ...fields,
  ];
  return frame(HEADERS, END_HEADERS, 1, Buffer.concat(block));
}

describe.each(KINDS)("HTTP/2, %s: malformed requests", (kind) => {
  /** Sends frames of stream 1, and waits until the server resets it, or closes the connection. */
  async function send(...frames: Buffer[]): Promise<void> {
    const { port } = (await serve(kind)).address() as { port: number };
    const socket = connectTcp(port, "127.0.0.1");
    const connection = new RawConnection(socket, undefined, "none");
    await once(socket, "connect");
    socket.write(PREFACE);
    connection.send(frame(SETTINGS, 0, 0), ...frames);
    await until(
      () => connection.has(RST_STREAM) || connection.has(GOAWAY) || connection.isClosed,
      "the stream's reset",
    );
    socket.destroy();
  }

  test.each([
    ["shorter", "10"],
    ["longer", "2"],
  ])("an upload that is %s than its Content-Length never looks complete", async (_, length) => {
    rfc("9113-8.1.1-length", "9113-8.1.1-malformed");
    const data = frame(DATA, END_STREAM, 1, Buffer.from("half"));
    await send(postHead(field("content-length", length)), data);
    await until(() => upstream.calls.every(({ state }) => state !== "reading"), "the upload's end");
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
  });

  test("CVE-2026-33555: a Content-Length on a request that ends with its head is not forwarded", async () => {
    rfc("9113-8.1.1-length");
    const head = postHead(field("content-length", "10"));
    head[4] = END_HEADERS | END_STREAM;
    await send(head);
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
    expect(upstream.calls.filter(({ framing }) => framing.kind !== "none")).toEqual([]);
  });

  test.each([
    ["a Connection field", field("connection", "close")],
    ["a name in upper case", field("X-Upper", "1")],
    ["a pseudo-header field of responses", field(":status", "200")],
    ["a second path", field(":path", "/other")],
  ])("a request with %s is not forwarded", async (_, bytes) => {
    rfc("9113-8.1.1-malformed");
    await send(postHead(bytes), frame(DATA, END_STREAM, 1));
    expect(upstream.calls).toEqual([]);
  });
});

test.each(KINDS)(
  "CVE-2026-71324: HTTP/2, %s: CONNECT is refused, and its data is not taken for a request",
  async (kind) => {
    const { port } = (await serve(kind)).address() as { port: number };
    const socket = connectTcp(port, "127.0.0.1");
    const connection = new RawConnection(socket, undefined, "none");
    await once(socket, "connect");
    socket.write(PREFACE);
    const target = [field(":method", "CONNECT"), field(":authority", upstream.authority)];
    const data = "GET /smuggled HTTP/1.1\r\nHost: internal\r\n\r\n";
    connection.send(
      frame(SETTINGS, 0, 0),
      frame(HEADERS, END_HEADERS, 1, Buffer.concat(target)),
      frame(DATA, 0, 1, Buffer.from(data)),
    );
    const answered = (): boolean =>
      connection.has(HEADERS) || connection.has(RST_STREAM) || connection.isClosed;
    await until(answered, "the refusal");
    connection.send(frame(DATA, END_STREAM, 1, Buffer.from(data)));
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    for (const path of ["/1", "/2", "/3"]) {
      upstream.script = (call) => call.reply(200, [], call.target);
      expect(await readText(session.request({ ":path": path }))).toBe(path);
    }
    expect(upstream.calls.map((call) => call.target)).toEqual(["/1", "/2", "/3"]);
    // The status is not 2xx: 0x88, 0x89 and 0x8a stand for `:status` 200, 204 and 206 (RFC 7541 §6.1).
    const head = connection.frames.find(({ type }) => type === HEADERS)?.payload ?? Buffer.alloc(1);
    expect([0x88, 0x89, 0x8a]).not.toContain(head[0]);
    session.destroy();
    socket.destroy();
  },
);

describe.each(KINDS)("HTTP/2, %s: request bodies", (kind) => {
  /** Sends frames of stream 1 in one write; returns the request that the upstream gets. */
  async function send(...frames: Buffer[]): Promise<Call> {
    const { port } = (await serve(kind)).address() as { port: number };
    const socket = connectTcp(port, "127.0.0.1").resume();
    socket.on("error", () => {});
    await once(socket, "connect");
    socket.write(Buffer.concat([Buffer.from(PREFACE), frame(SETTINGS, 0, 0), ...frames]));
    await until(() => upstream.calls[0]?.state === "complete", "the request");
    socket.destroy();
    return upstream.calls[0] as Call;
  }

  test("a body that arrives with the head is sent with its Content-Length", async () => {
    const call = await send(
      postHead(),
      frame(DATA, 0, 1, Buffer.from("sm")),
      frame(DATA, END_STREAM, 1, Buffer.from("all")),
    );
    expect(call.get("transfer-encoding")).toBeUndefined();
    expect(call.get("content-length")).toBe("5");
    expect(call.body).toEqual(Buffer.from("small"));
  });

  test("a body of several large frames is sent whole", async () => {
    const chunk = Buffer.alloc(16_000, "x");
    const call = await send(
      postHead(),
      ...[0, 0, 0, END_STREAM].map((flags) => frame(DATA, flags, 1, chunk)),
    );
    expect(call.body?.length).toBe(64_000);
  });
});

describe.each(KINDS)("HTTP/2, %s: early responses to uploads", (kind) => {
  const refuse = async (): Promise<Response> => {
    await pause(1);
    return new Response("no", { status: 401 });
  };
  test.each([
    ["a response of bodyLimit", { bodyLimit: 10 }, 413],
    ["a response of onRequest", { onRequest: refuse }, 401],
    ["an early response of the upstream", {}, 403],
  ])("the stream of an upload is closed after %s", async (_, options, status) => {
    rfc("9113-8.1-early-response");
    upstream.script = (call) => call.reply(403, [["Connection", "close"]], "no");
    const server = await serve(kind, options);
    const streams = new Set<ServerHttp2Stream>();
    server.on("stream", (stream: ServerHttp2Stream) => {
      streams.add(stream);
      stream.on("error", () => {}).on("close", () => streams.delete(stream));
    });
    const { port } = server.address() as { port: number };
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    for (let i = 0; i < 30; i++) {
      const stream = session.request({
        ":method": "POST",
        ":path": "/",
        "content-length": 300_000,
      });
      const responding = once(stream, "response");
      // The rest of the body never comes.
      stream.write(Buffer.alloc(120_000));
      const [fields] = (await responding) as [{ ":status": number }];
      expect(fields[":status"]).toBe(status);
      expect(await readText(stream)).toMatch(status === 413 ? /./ : /^no$/);
    }
    await until(() => streams.size === 0, "the end of the streams");
    session.destroy();
  });
});

describe.each(KINDS)("HTTP/2, %s: the ends of uploads", (kind) => {
  test.each([
    ["NO_ERROR", 0],
    ["CANCEL", 8],
  ])("an upload that the client resets with %s never looks complete", async (_, code) => {
    const server = await serve(kind);
    const { port } = server.address() as { port: number };
    const data = frame(DATA, 0, 1, Buffer.from(HALF));
    const reset = frame(RST_STREAM, 0, 1, uint32(code));
    for (let round = 0; round < 30; round++) {
      const socket = connectTcp(port, "127.0.0.1").resume();
      socket.on("error", () => {});
      await once(socket, "connect");
      socket.write(PREFACE);
      socket.write(frame(SETTINGS, 0, 0));
      if (round % 3 === 0) socket.write(Buffer.concat([postHead(), data, reset]));
      else {
        socket.write(Buffer.concat([postHead(), data]));
        await pause(round % 10);
        socket.write(round % 3 === 1 ? reset : Buffer.concat([data, reset]));
      }
      await pause(10);
      socket.destroy();
    }
    await until(() => upstream.calls.every(({ state }) => state !== "reading"), "all uploads' end");
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
    expect(upstream.calls.length).toBeGreaterThan(0);
  });

  test("an upload that the client ends arrives completely", async () => {
    const server = await serve(kind);
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
    const stream = session.request({ ":method": "POST", ":path": "/" });
    stream.write(HALF);
    await pause(20);
    stream.end(HALF);
    await once(stream.resume(), "end");
    session.destroy();
    expect(upstream.calls.map(({ text, state }) => [text, state])).toEqual([
      [HALF + HALF, "complete"],
    ]);
  });
});
