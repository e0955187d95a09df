/** A connection of the HTTP/1.1 client before it is established, over a fake socket. */
import { describe, expect, test } from "vitest";
import { ConnectionBench } from "./_http1.ts";
import { settled } from "./_sockets.ts";

describe("before the connection is established", () => {
  test("a request waits, and is sent when the socket is open", () => {
    const bench = new ConnectionBench({ isOpen: false });
    expect({ sent: bench.job.sent, opened: bench.owner.opened }).toEqual({ sent: 0, opened: 0 });
    bench.connection.open(bench.socket);
    expect({ sent: bench.job.sent, opened: bench.owner.opened }).toEqual({ sent: 1, opened: 1 });
    expect(bench.connection.address).toBe("192.0.2.1");
  });

  test("destroying the connection aborts the connection attempt", () => {
    for (const isEarly of [true, false]) {
      const bench = new ConnectionBench({ isOpen: false });
      let cancelled = 0;
      const listen = (): void => bench.connection.onCancel(() => void cancelled++);
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
      expect(bench.owner.closed).toBe(1);
    }
  });

  test("a socket that opens after the connection was destroyed is closed and gets no bytes", async () => {
    const bench = new ConnectionBench({ isOpen: false });
    bench.connection.destroy();
    bench.connection.open(bench.socket);
    await settled();
    expect(bench.job.sent).toBe(0);
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
