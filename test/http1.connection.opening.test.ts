/** A connection before it is established. */
import { describe, expect, test } from "vitest";
import { ConnectionBench } from "./_http1.ts";
import { settled } from "./_sockets.ts";

describe("before the connection is established", () => {
  test("writes are queued, and sent in order once there is a socket", () => {
    const bench = new ConnectionBench({ isOpen: false });
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

  test("64 KiB are queued; a writer with more waits until the socket drains", async () => {
    for (const hasRoom of [true, false]) {
      const bench = new ConnectionBench({ isOpen: false });
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

  test("destroying it aborts the connection attempt and drops the queued writes", async () => {
    for (const isEarly of [true, false]) {
      const bench = new ConnectionBench({ isOpen: false });
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

  test("a socket that opens after the connection was destroyed is closed and gets no bytes", async () => {
    const bench = new ConnectionBench({ isOpen: false });
    bench.write("GET ");
    bench.connection.destroy();
    bench.connection.open(bench.socket);
    await settled();
    expect(bench.socket).toMatchObject({ destroyed: true, sent: "" });
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });

  test("the error of a connection attempt fails its request", () => {
    const bench = new ConnectionBench({ isOpen: false });
    const error = new Error("refused");
    bench.connection.abandon(error);
    expect(bench.job.errors[0]).toBe(error);
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });
});
