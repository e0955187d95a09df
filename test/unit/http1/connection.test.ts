/** Backpressure, memory, end and timeout of a connection over a fake socket. attempt.test.ts tests the requests on it. */
import { describe, expect, test } from "vitest";
import { ConnectionBench } from "./_http1.ts";
import { settled } from "./_sockets.ts";

const ok = "HTTP/1.1 200 OK\r\n";

describe("backpressure of a connection", () => {
  test("a writer that waits for the drain continues when the socket drains", async () => {
    const bench = new ConnectionBench();
    bench.socket.hasRoom = false;
    expect(bench.write("x")).toBe(false);
    const waits = [await bench.isDrained(), await bench.isDrained()];
    expect(waits.map((isDrained) => isDrained())).toEqual([false, false]);
    bench.socket.drain();
    await settled();
    expect(waits.map((isDrained) => isDrained())).toEqual([true, true]);
  });

  test("a writer that waits for the drain stops waiting when the socket is closed", async () => {
    const bench = new ConnectionBench();
    bench.socket.hasRoom = false;
    bench.write("x");
    const before = await bench.isDrained();
    bench.socket.destroy();
    await settled();
    const after = await bench.isDrained();
    expect([before(), after()]).toEqual([true, true]);
  });

  test("a connection whose response arrives before its socket drains is not reused", () => {
    for (const hasRoom of [true, false]) {
      const bench = new ConnectionBench();
      bench.socket.hasRoom = hasRoom;
      bench.write("x");
      bench.connection.markRequestComplete();
      bench.socket.receive(`${ok}Content-Length: 0\r\n\r\n`);
      expect(bench.owner.freed).toBe(hasRoom ? 1 : 0);
      expect(bench.socket.destroyed).toBe(!hasRoom);
    }
  });
});

describe("memory", () => {
  const responses = `${ok}Content-Length: 5\r\n\r\nhello`;

  test("the last chunk of a read keeps the read's memory if that memory holds nothing else and the socket permits it", () => {
    const read = Buffer.from(responses, "latin1");
    for (const [isAlone, mayKeep] of [[true], [false], [true, false]] as const) {
      const bench = new ConnectionBench();
      const buffer = new ArrayBuffer(read.byteLength + (isAlone ? 0 : 1));
      const bytes = new Uint8Array(buffer, 0, read.byteLength);
      bytes.set(read);
      bench.socket.receiveBytes(bytes, mayKeep);
      expect(bench.job.text).toBe("hello");
      const [chunk] = bench.job.chunks;
      const isKept = isAlone && mayKeep !== false;
      expect(chunk?.buffer === buffer).toBe(isKept);
      // A copied chunk has an ArrayBuffer of exactly its own length.
      expect(chunk?.buffer.byteLength === 5).toBe(!isKept);
    }
  });

  test("a chunk that is a small part of a large read is copied", () => {
    for (const last of [20_000, 120_000]) {
      const bench = new ConnectionBench();
      const first = 140_000 - last;
      const sizes = [first, last].map((size) => `${size.toString(16)}\r\n${"x".repeat(size)}`);
      bench.socket.receive(`${ok}Transfer-Encoding: chunked\r\n\r\n${sizes.join("\r\n")}`);
      expect(bench.job.chunks.map(({ length }) => length)).toEqual([first, last]);
      expect(bench.job.chunks[1]?.buffer.byteLength === last).toBe(last === 20_000);
    }
  });

  test("of several chunks in one read, only the last one keeps the memory of the read", () => {
    const bench = new ConnectionBench();
    const text = `${ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde`;
    bench.socket.receiveBytes(new TextEncoder().encode(text));
    const [first, last] = bench.job.chunks.map(({ buffer }) => buffer);
    expect(first?.byteLength).toBe(3);
    expect(last?.byteLength).toBeGreaterThan(3);
  });
});

describe("the end of the connection", () => {
  test.each([
    [true, { ended: 1, errors: 0 }],
    [false, { ended: 0, errors: 1 }],
  ])(
    "a body that ends with the connection is complete only if the close is orderly: %s",
    async (endsInOrder, seen) => {
      const bench = new ConnectionBench();
      bench.socket.allowHalfOpen = true;
      bench.socket.endsInOrder = endsInOrder;
      bench.socket.receive(`${ok}\r\nhello`);
      bench.socket.halfClose();
      expect({ ended: bench.job.ended, errors: Math.min(bench.job.errors.length, 1) }).toEqual(
        seen,
      );
      expect(bench.socket.destroyed).toBe(true);
      await settled();
      expect(bench.owner.closed).toBe(1);
    },
  );

  test("the end of the connection within a body of known length is an error", async () => {
    for (const allowHalfOpen of [true, false]) {
      const bench = new ConnectionBench();
      bench.socket.allowHalfOpen = allowHalfOpen;
      bench.socket.receive(`${ok}Content-Length: 9\r\n\r\nhello`);
      bench.socket.halfClose();
      expect(bench.job.errors[0]).toMatchObject({ code: "connection_terminated" });
      expect(bench.socket.destroyed).toBe(true);
    }
  });

  test("an error of an idle connection fails no request", async () => {
    const bench = new ConnectionBench();
    bench.connection.markRequestComplete();
    bench.socket.receive(`${ok}Content-Length: 0\r\n\r\n`);
    bench.socket.fail("ECONNRESET");
    await settled();
    expect(bench.owner).toMatchObject({ freed: 1, closed: 1 });
    expect(bench.job.errors).toEqual([]);
  });

  test.each(["keepAlive: false", "half closed by the upstream"])(
    "a connection is not reused after its response: %s",
    (why) => {
      const bench = new ConnectionBench({ keepAlive: why !== "keepAlive: false" });
      bench.connection.markRequestComplete();
      bench.socket.receive(`${ok}Content-Length: 5\r\n\r\n`);
      if (why !== "keepAlive: false") bench.socket.usable = false;
      bench.socket.receive("hello");
      expect({ freed: bench.owner.freed, destroyed: bench.socket.destroyed }).toEqual({
        freed: 0,
        destroyed: true,
      });
    },
  );
});

describe("silence on a connection", () => {
  test("the socket gets a timer only if there is a timeout", () => {
    expect(new ConnectionBench({ timeout: 0 }).socket.timeout).toBe(0);
    expect(new ConnectionBench({ timeout: 50 }).socket.timeout).toBe(50);
  });

  test("silence calls `onSilence` of the connection's owner, and the timer of the socket restarts", async () => {
    const bench = new ConnectionBench({ timeout: 50 });
    bench.socket.timeout = 0;
    bench.socket.beSilent();
    await expect.poll(() => bench.owner.silences).toBe(1);
    expect(bench.socket.timeout).toBe(50);
  });
});
