/** How the HTTP/1.1 client writes request bodies: framing, backpressure, and bodies that are not as long as announced. */
import { describe, expect, test, vi } from "vitest";
import { portableCodec } from "./_codec.ts";
import type { Connection } from "../../../src/http1/connection.ts";
import { BodyWriter, type ChunkMemory } from "../../../src/http1/writebody.ts";
import { writeWhole } from "../../../src/http1/attempt.ts";
import { ProxyError } from "../../../src/error.ts";
import { bytes, fakeRequest, fakeScope, proxyError } from "../../helpers/fakes.ts";

const HEAD = "POST / HTTP/1.1\r\n\r\n";
const badRequest = proxyError("http_request_error", 400);

/** A connection that records the writes, and has room if `hasRoom` is true. */
class FakeConnection {
  readonly writes: string[] = [];
  readonly chunks: Uint8Array[] = [];
  readonly done: ((() => void) | undefined)[] = [];
  isSent = false;
  hasRoom = true;
  readonly codec = portableCodec;
  onDrain = (): void => {};

  write(chunk: Uint8Array, done?: () => void): boolean {
    this.writes.push(Buffer.from(chunk).toString("latin1"));
    this.chunks.push(chunk);
    this.done.push(done);
    return this.hasRoom;
  }

  onceDrained(callback: () => void): void {
    this.onDrain = callback;
  }

  markRequestComplete(): void {
    this.isSent = true;
  }
}

interface Open {
  connection: FakeConnection;
  writer: BodyWriter;
  touch: ReturnType<typeof vi.fn>;
  fail: ReturnType<typeof vi.fn>;
}

function open(length?: number, memory: ChunkMemory = {}): Open {
  const connection = new FakeConnection();
  const scope = fakeScope();
  const touch = vi.spyOn(scope, "touch") as unknown as Open["touch"];
  const fail = vi.fn();
  const real = connection as unknown as Connection;
  const writer = new BodyWriter(real, bytes(HEAD), length, scope, { fail }, memory);
  return { connection, writer, touch, fail };
}

describe("the framing of a request", () => {
  test("a body of unknown length is chunked, and the head and the first chunk are one write", () => {
    const { connection, writer, fail } = open();
    expect(writer.write(bytes("hello, world"))).toBe(true);
    writer.write(bytes("!"));
    expect(writer.isOver).toBe(false);
    expect(connection.isSent).toBe(false);
    writer.end();
    expect(connection.writes).toEqual([`${HEAD}c\r\nhello, world\r\n`, "1\r\n!\r\n", "0\r\n\r\n"]);
    expect(writer.isOver).toBe(true);
    expect(connection.isSent).toBe(true);
    expect(fail).not.toHaveBeenCalled();
  });

  test("a body of known length is sent without added bytes, and the request ends with its last byte", () => {
    const { connection, writer, fail } = open(5);
    writer.write(bytes("he"));
    expect(writer.isOver).toBe(false);
    writer.write(bytes("llo"));
    expect(writer.isOver).toBe(true);
    expect(connection.isSent).toBe(true);
    writer.end();
    expect(connection.writes).toEqual([`${HEAD}he`, "llo"]);
    expect(fail).not.toHaveBeenCalled();
  });

  test("empty chunks are skipped, because they would end the body", () => {
    const { connection, writer, touch } = open();
    const release = vi.fn();
    expect(writer.write(bytes(""), release)).toBe(true);
    expect(connection.writes).toEqual([]);
    expect(release).toHaveBeenCalledOnce();
    expect(touch).not.toHaveBeenCalled();
    writer.end();
    expect(connection.writes).toEqual([`${HEAD}0\r\n\r\n`]);
  });

  test("a long chunk is framed without copying it", () => {
    const { connection, writer } = open();
    const chunk = new Uint8Array(16_385);
    writer.write(chunk);
    expect(connection.writes).toHaveLength(3);
    expect([connection.writes[0], connection.writes[2]]).toEqual([`${HEAD}4001\r\n`, "\r\n"]);
    expect(connection.chunks[1]).toBe(chunk);
  });

  test("a body that is available completely is sent without added bytes, and a short body in one write with the head", () => {
    const request = fakeRequest({ method: "POST", headers: ["X-A", "1"] });
    const head = "POST / HTTP/1.1\r\nHost: up.test:4000\r\nX-A: 1\r\nEnd: 2\r\n\r\n";
    const long = "x".repeat(16_385);
    for (const [body, ...sent] of [
      [undefined, head],
      [bytes(""), head],
      [bytes("abc"), `${head}abc`],
      [bytes(long), head, long],
    ] as const) {
      const connection = new FakeConnection();
      writeWhole(connection as unknown as Connection, request, "End: 2\r\n\r\n", body);
      expect(connection.writes).toEqual(sent);
      expect(connection.isSent).toBe(true);
    }
  });
});

describe("a flush", () => {
  test("a flush sends the request head before any part of the body, and only once", () => {
    const { connection, writer } = open(1);
    writer.flush();
    writer.flush();
    expect(connection.writes).toEqual([HEAD]);
    writer.write(bytes("a"));
    expect(connection.writes).toEqual([HEAD, "a"]);
    writer.flush();
    expect(connection.writes).toHaveLength(2);
  });
});

describe("a body that does not end as announced", () => {
  test("a body that is too long fails the request, and the chunk that exceeds the length is not written", () => {
    for (const chunks of [["abcdef"], ["abc", "def"], ["abcde", "f"]]) {
      const { connection, writer, fail } = open(5);
      for (const chunk of chunks) writer.write(bytes(chunk));
      expect(fail).toHaveBeenCalledExactlyOnceWith(badRequest);
      expect(connection.writes.join("")).toBe(
        chunks.length === 1 ? "" : HEAD + (chunks[0] as string),
      );
    }
  });

  test("a body that is too short fails the request", () => {
    const { connection, writer, fail } = open(5);
    writer.write(bytes("abc"));
    writer.end();
    expect(fail).toHaveBeenCalledExactlyOnceWith(badRequest);
    expect(connection.isSent).toBe(false);
    expect(writer.isOver).toBe(false);
  });

  test.each([undefined, 5])(
    "a body that breaks off fails the request, and nothing more is written (Content-Length: %s)",
    (length) => {
      const { connection, writer, fail } = open(length);
      writer.write(bytes("abc"));
      const before = connection.writes.length;
      const cause = new Error("gone");
      writer.fail(cause);
      expect(fail).toHaveBeenCalledExactlyOnceWith(badRequest);
      expect(fail.mock.lastCall?.[0]).toMatchObject({ cause });
      expect(connection.writes).toHaveLength(before);
      expect(connection.isSent).toBe(false);
    },
  );

  test("a body that fails with a ProxyError fails the request with that error", () => {
    const { writer, fail } = open();
    const error = new ProxyError("http_request_error", { status: 413 });
    writer.fail(error);
    expect(fail).toHaveBeenCalledExactlyOnceWith(error);
  });

  test("a body that fails after its last announced byte counts as complete", () => {
    const { writer, fail } = open(3);
    writer.write(bytes("abc"));
    writer.fail(new Error("gone"));
    expect(fail).not.toHaveBeenCalled();
  });
});

describe("backpressure", () => {
  test.each([
    ["a short chunk", 1, undefined],
    ["a long chunk", 20_000, undefined],
    ["a chunk of a known length", 20_000, 40_000],
  ])("%s: the writer reports backpressure until the connection drains", async (_, size, length) => {
    const { connection, writer } = open(length);
    connection.hasRoom = false;
    expect(writer.write(new Uint8Array(size))).toBe(false);
    const onDrain = vi.fn();
    writer.onDrain(onDrain);
    await new Promise((resolve) => setImmediate(resolve));
    expect(onDrain).not.toHaveBeenCalled();
    connection.onDrain();
    await vi.waitFor(() => expect(onDrain).toHaveBeenCalledOnce());
  });

  test("each written chunk restarts the time limit of the exchange", () => {
    const { writer, touch } = open();
    writer.write(bytes("a"));
    writer.write(bytes("b"));
    expect(touch).toHaveBeenCalledTimes(2);
  });
});

describe("a chunk's memory", () => {
  test("is `returned` if the transport has `mayRelease`, and `borrowed` otherwise", () => {
    expect(open().writer.memory).toBe("borrowed");
    expect(open(undefined, { mayRelease: () => false }).writer.memory).toBe("returned");
  });

  test.each([
    ["copied into one write", 5],
    ["written as it is", 20_000],
  ])(
    "is released after sending, with an error if the transport may not release it: %s",
    (_, size) => {
      for (const may of [true, false]) {
        const mayRelease = vi.fn(() => may);
        const { connection, writer } = open(undefined, { mayRelease });
        const release = vi.fn();
        writer.write(new Uint8Array(size), release);
        expect(mayRelease).toHaveBeenCalledExactlyOnceWith(connection);
        expect(release).not.toHaveBeenCalled();
        for (const done of connection.done) done?.();
        expect(release).toHaveBeenCalledOnce();
        if (!may) expect(release.mock.lastCall).toEqual([expect.any(Error)]);
        else expect(release.mock.lastCall).toEqual([]);
      }
    },
  );
});

test("chunks written after the end are not sent, because they would be the next request on the connection", () => {
  const { connection, writer } = open();
  writer.write(bytes("abc"));
  writer.end();
  const { length } = connection.writes;
  const release = vi.fn();
  expect(writer.write(bytes("GET / HTTP/1.1\r\n\r\n"), release)).toBe(true);
  expect(connection.writes.length).toBe(length);
  expect(release).toHaveBeenCalledOnce();
});
