/** Attempts of requests on one connection of the HTTP/1.1 client, over a fake socket. */
import { expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { ProxyError } from "../../../src/error.ts";
import { Attempt } from "../../../src/http1/attempt.ts";
import { portableCodec } from "./_codec.ts";
import { Connection } from "../../../src/http1/connection.ts";
import type { OriginPool } from "../../../src/http1/originpool.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import { fakeRequest, fakeScope, type Given, streamed, textOf } from "../../helpers/fakes.ts";
import { FakeSocket } from "./_sockets.ts";

const ok = "HTTP/1.1 200 OK\r\n";

class Bench {
  readonly socket = new FakeSocket();
  readonly connection: Connection;
  freed = 0;
  silences = 0;

  constructor() {
    this.connection = new Connection({ keepAlive: true, timeout: 100 }, portableCodec, {
      onOpen: () => {},
      onSwitch: () => {},
      onFree: () => void this.freed++,
      onSilence: () => void this.silences++,
      onClose: () => {},
    });
    this.connection.open(this.socket);
  }

  send(
    method = "GET",
    body: Given<UpstreamRequest>["body"] = null,
    contentLength?: number,
  ): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const hop = fakeRequest({ method, body, contentLength });
      const attempt = new Attempt(hop, fakeScope(), resolve, reject);
      attempt.begin({ assign: () => this.connection.take(attempt) } as unknown as OriginPool);
    });
  }

  feed(text: string): void {
    this.socket.receive(text);
  }

  get state(): string {
    if (this.freed > 0) return `freed ${this.freed}`;
    return this.connection.destroyed ? "destroyed" : "in use";
  }
}

test("a connection is idle after the response and takes the next request", async () => {
  const bench = new Bench();
  for (let count = 1; count <= 3; count++) {
    const reply = bench.send();
    bench.feed(`${ok}Content-Length: 5\r\n\r\nhe`);
    expect(bench.freed).toBe(count - 1);
    bench.feed("llo");
    expect(bench.freed).toBe(count);
    expect(await textOf(await reply)).toBe("hello");
  }
  expect(bench.socket.sent.match(/GET \/ HTTP\/1.1\r\n/g)).toHaveLength(3);
});

test("a reader that does not read pauses the upstream, unless the response has arrived completely", async () => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 100000\r\n\r\n${"x".repeat(70_000)}`);
  const stream = streamed(await reply);
  expect(bench.socket.isPaused).toBe(true);
  // These bytes represent data that the socket had read before it was paused.
  bench.feed("x".repeat(30_000));
  // The complete response must resume the socket, because the next request on it would otherwise get no response.
  expect(bench.socket.isPaused).toBe(false);
  expect(bench.state).toBe("freed 1");
  expect(await new Response(stream).text()).toHaveLength(100_000);
});

test("a reader that continues to read resumes the upstream", async () => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 100000\r\n\r\n${"x".repeat(70_000)}`);
  const reader = streamed(await reply).getReader();
  expect(bench.socket.isPaused).toBe(true);
  await reader.read();
  await expect.poll(() => bench.socket.isPaused).toBe(false);
});

test.each([
  ["bytes behind the response", `${ok}Content-Length: 5\r\n\r\nhello${ok}`],
  ["Connection: close", `${ok}Connection: close\r\nContent-Length: 5\r\n\r\nhello`],
])("a connection is not reused after %s", async (_, text) => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(text);
  expect(bench.state).toBe("destroyed");
  expect(await textOf(await reply)).toBe("hello");
});

test("unsolicited bytes after a response close the connection", async () => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 0\r\n\r\n`);
  await reply;
  bench.feed(`${ok}Content-Length: 0\r\n\r\n`);
  expect(bench.connection.destroyed).toBe(true);
});

test("a response that ends before the request body is sent closes the connection, and the rest of the body is not sent", async () => {
  const bench = new Bench();
  const cancelled = Promise.withResolvers<void>();
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start: (each) => void (controller = each),
    cancel: () => cancelled.resolve(),
  });
  const reply = bench.send("POST", body);
  controller?.enqueue(new Uint8Array([0x61]));
  await expect.poll(() => bench.socket.sent).toContain("\r\n\r\n1\r\na\r\n");
  bench.feed(`${ok}Content-Length: 5\r\n\r\nearly`);
  expect(bench.state).toBe("destroyed");
  expect(await textOf(await reply)).toBe("early");
  controller?.enqueue(new Uint8Array([0x62]));
  await cancelled.promise;
  expect(bench.socket.sent).not.toContain("b\r\n");
});

test.each([
  [["abc"], 5, "abc"],
  [["abc", "defg"], 5, "abc"],
  [["abcdefg"], 5, ""],
])(
  "a request with the body %j, announced with %i bytes, is aborted",
  async (pieces, length, sent) => {
    for (const type of ["bytes", undefined] as const) {
      const bench = new Bench();
      const body = new ReadableStream<Uint8Array>({
        type,
        start(controller) {
          for (const piece of pieces) controller.enqueue(Uint8Array.from(Buffer.from(piece)));
          controller.close();
        },
      } as UnderlyingDefaultSource<Uint8Array>);
      const sending = bench.send("POST", new StreamBody(body, length), length);
      expect(await failure(sending)).toMatchObject({ status: 400 });
      expect(bench.state).toBe("destroyed");
      // From a byte stream, only the announced number of bytes is read. These bytes are sent before the excess is
      // noticed.
      const whole = type === "bytes" && pieces.join("").length > length;
      expect(bench.socket.sent.split("\r\n\r\n")[1] ?? "").toBe(whole ? "abcde" : sent);
    }
  },
);

test("cancelling a response body that has arrived completely keeps the connection", async () => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 5\r\n\r\nhello`);
  await streamed(await reply).cancel();
  expect(bench.connection.destroyed).toBe(false);
  const next = bench.send();
  bench.feed(`${ok}Content-Length: 5\r\n\r\nhello`);
  expect(await textOf(await next)).toBe("hello");
});

test("cancelling a response body that is still arriving closes the connection", async () => {
  rfc("9112-9.3-read-response");
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 5\r\n\r\nhe`);
  await streamed(await reply).cancel();
  expect(bench.state).toBe("destroyed");
});

async function failure(work: Promise<unknown>): Promise<ProxyError> {
  return work.then(
    () => new ProxyError("proxy_internal_error", { message: "it did not fail" }),
    (error: unknown) => error as ProxyError,
  );
}

test.each([
  [1, "", "connection_terminated", false],
  [2, "", "connection_terminated", true],
  [2, "H", "connection_terminated", false],
  [2, "HTTP/1.1 100 Continue\r\n\r\n", "connection_terminated", false],
])(
  "a connection that closes during its request %i, after the response bytes %j, fails that request with %s, stale: %s",
  async (count, text, code, stale) => {
    const bench = new Bench();
    if (count > 1) {
      const first = bench.send();
      bench.feed(`${ok}Content-Length: 0\r\n\r\n`);
      await first;
    }
    const reply = bench.send();
    if (text !== "") bench.feed(text);
    bench.socket.destroy();
    expect(await failure(reply)).toMatchObject({ code, stale });
  },
);

test("a connection that closes within a response body fails the body, whether it is read before or after the close", async () => {
  for (const before of [true, false]) {
    const bench = new Bench();
    const reply = bench.send();
    bench.feed(`${ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`);
    const { body } = await reply;
    const text = before ? failure(new Response(body?.stream()).text()) : undefined;
    bench.socket.halfClose();
    if (!before) expect(() => body?.whole()).toThrow(ProxyError);
    const error = await (text ?? failure(new Response(body?.stream()).text()));
    expect(error.code).toBe("http_response_incomplete");
  }
});

test("a request that cannot be sent leaves the connection unchanged", async () => {
  const bench = new Bench();
  expect(await failure(bench.send("CONNECT"))).toMatchObject({ status: 501 });
  expect({ sent: bench.socket.sent, state: bench.state }).toEqual({ sent: "", state: "in use" });
});

test("after a blocked event loop, pending reads run before the idle timeout fires", async () => {
  const bench = new Bench();
  const reply = bench.send();
  bench.feed(`${ok}Content-Length: 5\r\n\r\nhe`);
  bench.socket.beSilent();
  bench.feed("l");
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(bench.silences).toBe(0);
  bench.socket.beSilent();
  await expect.poll(() => bench.silences).toBe(1);
  bench.feed("lo");
  expect(await textOf(await reply)).toBe("hello");
});
