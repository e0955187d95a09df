/** Over HTTP/2 upstreams, a body that broke off never looks complete, in either direction, on every runtime. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { isWhole, watchEnd } from "../../../../runtimes/sockets/http2/streamend.ts";
import { rfc } from "../../../conformance/rfc.ts";
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  HEADERS,
  PING,
  type RawConnection,
  RawUpstream,
  responseHead,
  RST_STREAM,
  uint32,
  wholeResponse,
} from "../../../helpers/frames.ts";
import { askFor, type Front, runtimes, startFront } from "./_front.ts";
import { until, within } from "../../../helpers/wait.ts";

const half = (id: number, ...fields: Buffer[]): Buffer =>
  Buffer.concat([responseHead(id, false, ...fields), frame(DATA, 0, id, Buffer.from("half"))]);
const reset = (id: number, code: number): Buffer => frame(RST_STREAM, 0, id, uint32(code));

/** How the upstream ends the body of a response after its first half. */
const ends: Record<string, (connection: RawConnection, id: number) => void> = {
  "RST_STREAM with NO_ERROR": (connection, id) => connection.send(reset(id, 0)),
  "RST_STREAM with CANCEL": (connection, id) => connection.send(reset(id, 8)),
  "the connection's end": ({ socket }) => socket.end(),
  "the connection's reset": ({ socket }) => socket.resetAndDestroy(),
};

describe.each(runtimes)("on %s", (runtime) => {
  let front: Front;
  let upstream: RawUpstream;
  let url: string;
  beforeAll(async () => {
    front = await startFront(runtime, { http2: true }, {});
  });
  afterAll(() => front.close());
  afterEach(() => upstream.close());

  async function start(script: RawUpstream["script"]): Promise<void> {
    upstream = new RawUpstream();
    upstream.script = script;
    url = await upstream.listen();
  }

  /** Reads the response to a GET. @returns its body; undefined if it was cut off, or refused */
  async function read(): Promise<string | undefined> {
    const client = await front.connect();
    client.send(askFor(url));
    try {
      const { status, text, cut } = await client.read();
      return cut || status !== 200 ? undefined : text;
    } catch {
      return undefined;
    }
  }

  test.each(Object.entries(ends))(
    "a response that %s cuts off never looks complete",
    async (_, end) => {
      await start((connection, id) => {
        connection.send(half(id));
        end(connection, id);
      });
      for (let i = 0; i < 5; i++) expect(await read()).toBe(undefined);
    },
  );

  test.each(Object.entries(ends))(
    "a response that %s cuts off after the client has its head never looks complete",
    async (_, end) => {
      await start((connection, id) => connection.send(half(id)));
      const client = await front.connect();
      client.send(askFor(url));
      const pieces = client.pieces(await client.readHead());
      const first = await within(pieces.next(), "the first half");
      expect(first.value).toEqual(Buffer.from("half"));
      end(upstream.connections[0] as RawConnection, 1);
      const last = await within(pieces.next(), "the end");
      expect(last).toMatchObject({ done: true, value: { cut: true } });
    },
  );

  test("a response that is shorter or longer than its Content-Length never looks complete", async () => {
    rfc("9113-8.1.1-length", "9113-8.1.1-malformed");
    for (const length of ["10", "2"]) {
      await start((connection, id) => {
        const head = responseHead(id, false, field("content-length", length));
        connection.send(head, frame(DATA, END_STREAM, id, Buffer.from("half")));
      });
      expect(await read()).toBe(undefined);
      upstream.close();
    }
  });

  test("a response counts as complete if its stream is reset with NO_ERROR after the last frame", async () => {
    await start((connection, id) => connection.send(wholeResponse(id), reset(id, 0)));
    for (let i = 0; i < 5; i++) expect(await read()).toBe("whole");
  });

  test("RFC 9113 §8.1: a response is complete although the upstream stops the upload with NO_ERROR", async () => {
    rfc("9113-8.1-early-response");
    await start((connection, id) => connection.send(wholeResponse(id), reset(id, 0)));
    for (let i = 0; i < 5; i++) {
      const client = await front.connect();
      client.send(askFor(url, "POST", ["Transfer-Encoding: chunked"]), "4\r\nhalf\r\n");
      expect(await client.read()).toMatchObject({ status: 200, text: "whole", cut: false });
    }
  });

  test("a slow client gets the whole of a complete response, and a truncated response never looks complete", async () => {
    const chunk = Buffer.alloc(16_000, "x");
    for (const isComplete of [true, false]) {
      await start((connection, id) => {
        connection.send(responseHead(id));
        for (let i = 0; i < 4; i++) connection.send(frame(DATA, 0, id, chunk));
        connection.send(isComplete ? frame(DATA, END_STREAM, id, chunk) : reset(id, 0));
        connection.send(frame(PING, 0, 0, Buffer.alloc(8)));
      });
      const client = await front.connect();
      client.socket.pause();
      client.send(askFor(url));
      // When the PING is answered, the frames in front of it have been read.
      await until(() => upstream.connections[0]?.has(PING) === true, "the answer to the PING");
      const answer = await client.read().catch(() => undefined);
      if (isComplete) expect([answer?.length, answer?.cut]).toEqual([80_000, false]);
      // On a busy machine, the reset may arrive together with the response headers. The client then gets 502.
      else expect([true, "502"]).toContain(answer?.status === 502 ? "502" : (answer?.cut ?? true));
      upstream.close();
    }
  });

  const ended = (): boolean =>
    upstream.connections.some(({ frames }) =>
      frames.some(({ type, flags }) => (type === DATA || type === HEADERS) && flags & END_STREAM),
    );
  const isReset = (): boolean =>
    upstream.connections.some(({ resets, isClosed }) => resets.length > 0 || isClosed);

  test("an upload never looks complete if the client disconnects", async () => {
    await start(() => {});
    const client = await front.connect();
    client.send(askFor(url, "POST", ["Content-Length: 10"]), "half");
    await until(
      () => upstream.connections[0]?.frames.some(({ type }) => type === DATA) === true,
      "half the upload",
    );
    client.leave("RST");
    await until(isReset, "the stream to be reset");
    expect(ended()).toBe(false);
  });

  test("an upload that is stopped because the response is complete never looks complete", async () => {
    await start((connection, id) => connection.send(wholeResponse(id)));
    const client = await front.connect();
    client.send(askFor(url, "POST", ["Transfer-Encoding: chunked"]), "4\r\nhalf\r\n");
    expect((await client.readHead()).status).toBe(200);
    await until(isReset, "the stream to be reset");
    expect(ended()).toBe(false);
  });

  test("if a response ends with trailers during an upload, the upload is reset, and never looks complete", async () => {
    await start((connection, id) =>
      connection.send(
        responseHead(id),
        // The end of the response arrives in the trailers.
        frame(HEADERS, END_HEADERS | END_STREAM, id, field("x-name", "v")),
      ),
    );
    const client = await front.connect();
    client.send(askFor(url, "POST", ["Transfer-Encoding: chunked"]), "4\r\nhalf\r\n");
    await client.readHead();
    await until(isReset, "the stream to be reset");
    expect(ended()).toBe(false);
  });
});

test("if `push` is never called, a stream that is closed at its `end` counts as cut off, and an open one as complete", () => {
  for (const closed of [true, false]) {
    const stream = { push: () => true, closed, destroyed: false };
    watchEnd(stream as never);
    expect(isWhole(stream as never)).toBe(!closed);
  }
});

test("a stream that was destroyed does not count as complete", () => {
  const stream = { push: () => true, closed: false, destroyed: true };
  watchEnd(stream as never);
  (stream.push as (chunk: unknown) => boolean)(null);
  expect(isWhole(stream as never)).toBe(false);
});
