/** The life of one connection, over a socket that does what the test says. The exchanges on it: http1.exchange.test.ts. */
import { describe, expect, test } from "vitest";
import { portableCodec } from "../src/http1/codec.ts";
import { Connection } from "../src/http1/connection.ts";
import type { Job } from "../src/http1/job.ts";
import { bytes } from "./_fakes.ts";
import { FakeSocket, fakeOwner, settled } from "./_sockets.ts";

const ok = "HTTP/1.1 200 OK\r\n";

/** A job that notes what its connection tells it. */
class FakeJob implements Job {
  readonly fresh = false;
  readonly isPaused = false;
  place = undefined;
  readonly chunks: Uint8Array[] = [];
  readonly errors: unknown[] = [];
  ended = 0;

  start(): void {}

  fail(thrown: unknown): void {
    this.errors.push(thrown);
  }

  onHead(): void {}

  onPiece(piece: Uint8Array): void {
    this.chunks.push(piece);
  }

  onEnd(): void {
    this.ended++;
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString("latin1");
  }
}

class Bench {
  readonly socket = new FakeSocket();
  readonly owner = fakeOwner();
  readonly job = new FakeJob();
  readonly connection: Connection;

  constructor({ keepAlive = true, timeout = 0, isOpen = true } = {}) {
    this.connection = new Connection({ keepAlive, timeout }, portableCodec, this.owner);
    if (isOpen) this.connection.open(this.socket);
    this.connection.begin(this.job, "GET");
  }

  write(text: string, done?: () => void): boolean {
    return this.connection.write(bytes(text), done);
  }

  /** Whether a promise that waits for room is resolved. */
  async isDrained(): Promise<() => boolean> {
    let isOver = false;
    void this.connection.drained().then(() => (isOver = true));
    await settled();
    return () => isOver;
  }
}

describe("before it is established", () => {
  test("what is written waits, and goes in order once there is a socket", () => {
    const bench = new Bench({ isOpen: false });
    let done = 0;
    expect(bench.write("GET ")).toBe(true);
    expect(bench.write("/", () => void done++)).toBe(true);
    expect({ done, opened: bench.owner.opened }).toEqual({ done: 0, opened: 0 });
    bench.connection.open(bench.socket);
    expect(bench.socket.writes).toEqual(["GET ", "/"]);
    expect({ done, opened: bench.owner.opened }).toEqual({ done: 1, opened: 1 });
    expect(bench.connection.address).toBe("192.0.2.1");
    bench.write("more");
    expect(bench.socket.writes).toEqual(["GET ", "/", "more"]);
  });

  test("64 KiB may wait; for more, a writer waits until there is a socket with room", async () => {
    for (const hasRoom of [true, false]) {
      const bench = new Bench({ isOpen: false });
      expect(bench.write("x".repeat(65_535))).toBe(true);
      expect(bench.write("x")).toBe(false);
      const isDrained = await bench.isDrained();
      expect(isDrained()).toBe(false);
      bench.socket.hasRoom = hasRoom;
      bench.connection.open(bench.socket);
      await settled();
      expect(isDrained()).toBe(hasRoom);
      bench.socket.drain();
      await settled();
      expect(isDrained()).toBe(true);
    }
  });

  test("given up, it stops the attempt at once, and lets go of what was written", async () => {
    for (const isEarly of [true, false]) {
      const bench = new Bench({ isOpen: false });
      let cancelled = 0;
      let done = 0;
      bench.write("GET ", () => void done++);
      const isDrained = await bench.isDrained();
      const listen = (): void => bench.connection.opening.onCancel(() => void cancelled++);
      if (isEarly) listen();
      bench.connection.destroy();
      if (!isEarly) listen();
      expect(cancelled).toBe(1);
      bench.connection.destroy();
      expect({ cancelled, destroyed: bench.connection.destroyed }).toEqual({
        cancelled: 1,
        destroyed: true,
      });
      bench.connection.abandon(new Error("cancelled"));
      await settled();
      expect({ done, isDrained: isDrained(), closed: bench.owner.closed }).toEqual({
        done: 1,
        isDrained: true,
        closed: 1,
      });
    }
  });

  test("a socket that comes after it was given up is closed, and gets nothing", async () => {
    const bench = new Bench({ isOpen: false });
    bench.write("GET ");
    bench.connection.destroy();
    bench.connection.open(bench.socket);
    await settled();
    expect(bench.socket).toMatchObject({ destroyed: true, sent: "" });
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });

  test("the error of an attempt is its job's", () => {
    const bench = new Bench({ isOpen: false });
    const error = new Error("refused");
    bench.connection.abandon(error);
    expect(bench.job.errors[0]).toBe(error);
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });
});

describe("backpressure", () => {
  test("a writer goes on when the socket has room", async () => {
    const bench = new Bench();
    bench.socket.hasRoom = false;
    expect(bench.write("x")).toBe(false);
    const waits = [await bench.isDrained(), await bench.isDrained()];
    expect(waits.map((isDrained) => isDrained())).toEqual([false, false]);
    bench.socket.drain();
    await settled();
    expect(waits.map((isDrained) => isDrained())).toEqual([true, true]);
  });

  test("or when there will never be room", async () => {
    const bench = new Bench();
    bench.socket.hasRoom = false;
    bench.write("x");
    const before = await bench.isDrained();
    bench.socket.destroy();
    await settled();
    const after = await bench.isDrained();
    expect([before(), after()]).toEqual([true, true]);
  });

  test("answered while the socket is still full, it is not used again", () => {
    for (const hasRoom of [true, false]) {
      const bench = new Bench();
      bench.socket.hasRoom = hasRoom;
      bench.write("x");
      bench.connection.sent();
      bench.socket.receive(`${ok}Content-Length: 0\r\n\r\n`);
      expect(bench.owner.freed).toBe(hasRoom ? 1 : 0);
      expect(bench.socket.destroyed).toBe(!hasRoom);
    }
  });
});

describe("memory", () => {
  const responses = `${ok}Content-Length: 5\r\n\r\nhello`;

  test("a last chunk takes the read's memory with it, where it may", () => {
    for (const mayTake of [true, false]) {
      const bench = new Bench();
      expect(bench.socket.receive(responses, mayTake)).toBe(mayTake);
      expect(bench.job.text).toBe("hello");
      // A copy is alone in its memory.
      expect(bench.job.chunks[0]?.buffer.byteLength === 5).toBe(!mayTake);
    }
  });

  test("of several chunks in one read, the last one only", () => {
    const bench = new Bench();
    const text = `${ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde`;
    expect(bench.socket.receive(text, true)).toBe(true);
    const [first, last] = bench.job.chunks.map(({ buffer }) => buffer);
    expect(first?.byteLength).toBe(3);
    expect(last?.byteLength).toBeGreaterThan(3);
  });
});

describe("its end", () => {
  test.each([
    [true, { ended: 1, errors: 0 }],
    [false, { ended: 0, errors: 1 }],
  ])("the end of a body without a length is confirmed: in order %s", async (endsInOrder, seen) => {
    const bench = new Bench();
    bench.socket.allowHalfOpen = true;
    bench.socket.endsInOrder = endsInOrder;
    bench.socket.receive(`${ok}\r\nhello`);
    bench.socket.halfClose();
    expect({ ended: bench.job.ended, errors: Math.min(bench.job.errors.length, 1) }).toEqual(seen);
    expect(bench.socket.destroyed).toBe(true);
    await settled();
    expect(bench.owner.closed).toBe(1);
  });

  test("within a body of a known length, it is an error", async () => {
    for (const allowHalfOpen of [true, false]) {
      const bench = new Bench();
      bench.socket.allowHalfOpen = allowHalfOpen;
      bench.socket.receive(`${ok}Content-Length: 9\r\n\r\nhello`);
      bench.socket.halfClose();
      expect(bench.job.errors[0]).toMatchObject({ code: "connection_terminated" });
      expect(bench.socket.destroyed).toBe(true);
    }
  });

  test("an error without a job closes it, and that is all", async () => {
    const bench = new Bench();
    bench.connection.sent();
    bench.socket.receive(`${ok}Content-Length: 0\r\n\r\n`);
    bench.socket.fail("ECONNRESET");
    await settled();
    expect(bench.owner).toMatchObject({ freed: 1, closed: 1 });
    expect(bench.job.errors).toEqual([]);
  });

  test.each(["keepAlive: false", "half closed by the upstream"])("%s: not used again", (why) => {
    const bench = new Bench({ keepAlive: why !== "keepAlive: false" });
    bench.connection.sent();
    bench.socket.receive(`${ok}Content-Length: 5\r\n\r\n`);
    if (why !== "keepAlive: false") bench.socket.usable = false;
    bench.socket.receive("hello");
    expect({ freed: bench.owner.freed, destroyed: bench.socket.destroyed }).toEqual({
      freed: 0,
      destroyed: true,
    });
  });
});

describe("silence", () => {
  test("without a limit, the socket has no timer", () => {
    expect(new Bench({ timeout: 0 }).socket.timeout).toBe(0);
    expect(new Bench({ timeout: 50 }).socket.timeout).toBe(50);
  });

  test("it is told of, and the timer starts again", async () => {
    const bench = new Bench({ timeout: 50 });
    bench.socket.timeout = 0;
    bench.socket.beSilent();
    await expect.poll(() => bench.owner.silences).toBe(1);
    expect(bench.socket.timeout).toBe(50);
  });
});
