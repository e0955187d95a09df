/** A connection before it is established, over a socket that comes when the test says so. */
import { describe, expect, test } from "vitest";
import { ConnectionBench } from "./_http1.ts";
import { settled } from "./_sockets.ts";

describe("before it is established", () => {
  test("what is written waits, and goes in order once there is a socket", () => {
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

  test("64 KiB may wait; for more, a writer waits until there is a socket with room", async () => {
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

  test("given up, it stops the attempt at once, and lets go of what was written", async () => {
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

  test("a socket that comes after it was given up is closed, and gets nothing", async () => {
    const bench = new ConnectionBench({ isOpen: false });
    bench.write("GET ");
    bench.connection.destroy();
    bench.connection.open(bench.socket);
    await settled();
    expect(bench.socket).toMatchObject({ destroyed: true, sent: "" });
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });

  test("the error of an attempt is its job's", () => {
    const bench = new ConnectionBench({ isOpen: false });
    const error = new Error("refused");
    bench.connection.abandon(error);
    expect(bench.job.errors[0]).toBe(error);
    expect(bench.owner).toMatchObject({ opened: 0, closed: 1 });
  });
});
