/** Connections that switch to another protocol, over a fake connector. */
import { describe, expect, test, vi } from "vitest";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import type { Tunnel, TunnelHandler } from "../../../src/transport/tunnel.ts";
import { bytes, streamOf, textOf } from "../../helpers/fakes.ts";
import { rfc } from "../../conformance/rfc.ts";
import { EMPTY, PoolBench, type Sent } from "./_http1.ts";
import { type FakeSocket, settled } from "./_sockets.ts";

const SWITCHING =
  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

const upgrade = { upgrade: "websocket", headers: ["Sec-WebSocket-Key", "k"] };

class Log implements TunnelHandler {
  readonly calls: unknown[] = [];
  onData(chunk: Uint8Array): void {
    this.calls.push(Buffer.from(chunk).toString("latin1"));
  }
  onDrain(): void {
    this.calls.push("drain");
  }
  onEnd(): void {
    this.calls.push("end");
  }
  onClose(error?: unknown): void {
    this.calls.push(error === undefined ? "close" : (error as Error).message);
  }
}

interface Opened {
  bench: PoolBench;
  socket: FakeSocket;
  sent: Sent;
  tunnel: Tunnel;
  log: Log;
}

async function open(early = "", options: PoolOptions = {}): Promise<Opened> {
  const bench = new PoolBench(options);
  const sent = bench.send(upgrade);
  const socket = await bench.connector.at(0).succeed();
  socket.receive(SWITCHING + early);
  await settled();
  const tunnel = sent.reply?.tunnel as Tunnel;
  const log = new Log();
  return { bench, socket, sent, tunnel, log };
}

describe("switching to another protocol", () => {
  test("the request head asks for the protocol, and the upstream's 101 results in a tunnel", async () => {
    const { bench, socket, sent } = await open();
    expect(socket.sent).toBe(
      "GET / HTTP/1.1\r\nHost: up.test:4000\r\nSec-WebSocket-Key: k\r\n" +
        "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    expect(sent.reply).toMatchObject({ status: 101, body: null });
    expect(sent.reply?.headers).toEqual(["Upgrade", "websocket", "Connection", "Upgrade"]);
    expect(bench.stats).toMatchObject({ created: 1, requests: 1, inUse: 0, free: 0, tunnels: 1 });
    expect(bench.transport.stats().tunnels).toBe(1);
  });

  test("an upgrade takes a new connection although another is idle, and counts towards maxSockets until the 101", async () => {
    const bench = new PoolBench({ maxSockets: 1 });
    await bench.exchange();
    const first = bench.send(upgrade);
    const second = bench.send(upgrade);
    bench.send();
    expect(bench.connector.attempts).toHaveLength(2);
    expect(bench.stats).toMatchObject({ inUse: 1, free: 0, waiting: 2, tunnels: 0 });
    (await bench.connector.at(1).succeed()).receive(SWITCHING);
    await settled();
    expect(first.outcome).toBe("101");
    expect(bench.connector.attempts).toHaveLength(3);
    expect(bench.stats).toMatchObject({ inUse: 1, free: 0, waiting: 1, tunnels: 1 });
    (await bench.connector.at(2).succeed()).receive(SWITCHING);
    await settled();
    expect(second.outcome).toBe("101");
    expect(bench.connector.attempts).toHaveLength(4);
    expect(bench.stats).toMatchObject({ inUse: 1, free: 0, waiting: 0, tunnels: 2 });
  });

  test("an ordinary response to an upgrade keeps its body, and its connection is not reused", async () => {
    const bench = new PoolBench();
    const sent = bench.send(upgrade);
    const socket = await bench.connector.at(0).succeed();
    socket.receive("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    await settled();
    expect(sent.outcome).toBe("403");
    expect(sent.reply?.tunnel).toBeUndefined();
    expect(await textOf(sent.reply as never)).toBe("no");
    expect(socket.destroyed).toBe(true);
    expect(bench.stats).toMatchObject({ created: 1, closed: 1, inUse: 0, free: 0, tunnels: 0 });
    expect(bench.transport.stats().tunnels).toBe(0);
  });

  test("a 101 to a request without an upgrade is refused as malformed", async () => {
    const bench = new PoolBench();
    const sent = bench.send();
    const socket = await bench.connector.at(0).succeed();
    socket.receive(SWITCHING);
    await settled();
    expect(sent.outcome).toBe("http_protocol_error");
    expect(socket.destroyed).toBe(true);
  });

  test("interim responses before the 101 do not prevent the switch", async () => {
    const bench = new PoolBench();
    const sent = bench.send(upgrade);
    const socket = await bench.connector.at(0).succeed();
    socket.receive(`HTTP/1.1 103 Early Hints\r\n\r\n${SWITCHING}`);
    await settled();
    expect(sent.outcome).toBe("101");
  });

  test.each([
    ["a refused connection", "connection_refused"],
    ["a client that disconnects", "http_request_error"],
  ])("%s fails the upgrade, and leaves no connection in use and no tunnel", async (what, code) => {
    const bench = new PoolBench();
    const sent = bench.send(upgrade);
    if (what === "a refused connection") await bench.connector.at(0).fail("ECONNREFUSED");
    else sent.leave();
    await settled();
    expect(sent.outcome).toBe(code);
    expect(bench.stats).toMatchObject({ failed: 1, inUse: 0, tunnels: 0 });
  });

  test("a client that disconnects between the request head and the 101 closes the connection", async () => {
    const bench = new PoolBench();
    const sent = bench.send(upgrade);
    const socket = await bench.connector.at(0).succeed();
    sent.leave();
    await settled();
    expect(sent.outcome).toBe("http_request_error");
    expect(socket.destroyed).toBe(true);
    expect(bench.stats).toMatchObject({ closed: 1, tunnels: 0 });
  });

  test("after the 101, a client that disconnects does not close the upstream connection, which now belongs to the tunnel", async () => {
    const { socket, sent } = await open();
    sent.leave();
    await settled();
    expect(socket.destroyed).toBe(false);
  });
});

describe("the tunnel", () => {
  test("bytes that came with the 101 wait for the tunnel's handler, and until then the socket is paused", async () => {
    const { socket, tunnel, log } = await open("first");
    expect(socket.isPaused).toBe(true);
    socket.receive(" second");
    tunnel.attach(log);
    expect(socket.isPaused).toBe(false);
    socket.receive("third");
    expect(log.calls).toEqual(["first", " second", "third"]);
  });

  test("bytes are sent to the upstream unchanged, and the handler learns when a full connection has room again", async () => {
    rfc("6455-5.4-intermediary-fragments");
    const { socket, tunnel, log } = await open();
    tunnel.attach(log);
    expect(tunnel.write(bytes("a"))).toBe(true);
    socket.hasRoom = false;
    expect(tunnel.write(bytes("b"))).toBe(false);
    expect(tunnel.write(bytes("c"))).toBe(false);
    expect(log.calls).toEqual([]);
    socket.drain();
    expect(log.calls).toEqual(["drain"]);
    expect(socket.writes.slice(1)).toEqual(["a", "b", "c"]);
  });

  test("destroying the tunnel resets the connection, so that the upstream does not see an orderly end", async () => {
    const { socket, tunnel, log } = await open();
    tunnel.attach(log);
    tunnel.destroy();
    await settled();
    expect([socket.isReset, socket.destroyed]).toEqual([true, true]);
    expect(log.calls).toHaveLength(1);
  });

  test("pausing the tunnel pauses the socket, until the tunnel is resumed", async () => {
    const { socket, tunnel, log } = await open();
    tunnel.attach(log);
    tunnel.pause();
    expect(socket.isPaused).toBe(true);
    tunnel.resume();
    expect(socket.isPaused).toBe(false);
  });

  test("each direction of the tunnel ends separately", async () => {
    const { bench, socket, tunnel, log } = await open();
    socket.allowHalfOpen = true;
    tunnel.attach(log);
    socket.halfClose();
    expect(log.calls).toEqual(["end"]);
    expect(tunnel.write(bytes("still open"))).toBe(true);
    expect(socket.destroyed).toBe(false);
    tunnel.end();
    expect(socket.isEnded).toBe(true);
    socket.destroy();
    await settled();
    expect(log.calls).toEqual(["end", "close"]);
    expect(bench.stats).toMatchObject({ closed: 1, tunnels: 0 });
  });

  test("a broken connection is reported to the handler once, with its error", async () => {
    const { socket, tunnel, log } = await open();
    tunnel.attach(log);
    socket.hasRoom = false;
    tunnel.write(bytes("a"));
    socket.fail("ECONNRESET");
    await settled();
    expect(log.calls).toEqual(["as the runtime says it"]);
    expect(tunnel.write(bytes("late"))).toBe(true);
    expect(socket.writes.at(-1)).toBe("a");
  });

  test("an end before the handler is set is reported to the handler", async () => {
    rfc("9110-9.3.6-tunnel");
    const { socket, tunnel, log } = await open("bytes");
    socket.halfClose();
    await settled();
    tunnel.attach(log);
    expect(log.calls).toEqual(["bytes", "end", "close"]);
  });

  test("the silence timeout of the pool does not apply to the tunnel", async () => {
    const { bench, socket, tunnel, log } = await open("", { timeout: 100 });
    tunnel.attach(log);
    expect(socket.timeout).toBe(0);
    vi.useFakeTimers();
    socket.beSilent();
    vi.advanceTimersByTime(1000);
    vi.useRealTimers();
    expect(socket.destroyed).toBe(false);
    expect(bench.stats).toMatchObject({ timedOut: 0 });
  });
});

describe("closing the transport", () => {
  test("without a timeout, tunnels are closed when the last request has finished", async () => {
    const { bench, socket, tunnel, log } = await open();
    tunnel.attach(log);
    bench.send();
    const other = await bench.connector.at(1).succeed();
    let isClosed = false;
    void bench.transport.close().then(() => (isClosed = true));
    await settled();
    expect([socket.destroyed, isClosed]).toEqual([false, false]);
    other.receive(EMPTY);
    await settled();
    expect([socket.destroyed, isClosed]).toEqual([true, true]);
    expect(log.calls).toEqual(["the proxy has been closed"]);
  });

  test("with a timeout, tunnels are closed when it has passed", async () => {
    const { bench, socket, tunnel, log } = await open();
    tunnel.attach(log);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    let isClosed = false;
    void bench.transport.close(1000).then(() => (isClosed = true));
    vi.advanceTimersByTime(999);
    await settled();
    expect([socket.destroyed, isClosed]).toEqual([false, false]);
    vi.advanceTimersByTime(1);
    vi.useRealTimers();
    await settled();
    expect([socket.destroyed, isClosed]).toEqual([true, true]);
  });

  test("destroy closes tunnels immediately, and later upgrades get 503", async () => {
    const { bench, socket, tunnel, log } = await open();
    tunnel.attach(log);
    bench.transport.destroy();
    expect(socket.destroyed).toBe(true);
    const late = bench.send(upgrade);
    await settled();
    expect(late.outcome).toBe("destination_unavailable");
  });

  test("the pool of an upstream with an open tunnel is not removed", async () => {
    const { bench } = await open();
    // From 100 origins on, the transport removes the pools of unused origins.
    const { parseTarget } = await import("../../../src/target/target.ts");
    for (let i = 0; i < 120; i++) {
      bench.send({ upstream: parseTarget(`http://up${i}.test`), body: streamOf([]) });
      await bench.connector.attempts.at(-1)?.fail("ECONNREFUSED");
    }
    expect(bench.stats).toMatchObject({ tunnels: 1 });
  });
});
