import { poolClosed } from "../../../src/transport/closing.ts";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import type { Tunnel, TunnelHandler } from "../../../src/transport/tunnel.ts";
import { FrameReader } from "../../../src/websocket/frames.ts";
import {
  type ClientSocket,
  Relay,
  relayLimits,
  type RelayLimits,
} from "../../../src/websocket/relay.ts";
import { rfc } from "../../conformance/rfc.ts";

/** A frame of the upstream, which is not masked. */
function frame(opcode: number, payload: string | number[]): Uint8Array {
  const bytes = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  return Uint8Array.from([0x80 | opcode, bytes.length, ...bytes]);
}

/** Unmasks a frame, and reads it as the upstream would. */
function readMasked(bytes: Uint8Array): unknown[] {
  const size = (bytes[1] as number) & 0x7f;
  const at = size < 126 ? 2 : size === 126 ? 4 : 10;
  const mask = bytes.subarray(at, at + 4);
  const payload = bytes.slice(at + 4).map((byte, i) => byte ^ (mask[i % 4] as number));
  const plain = Uint8Array.from([...bytes.subarray(0, at), ...payload]);
  plain[1] = (plain[1] as number) & 0x7f;
  const events: unknown[] = [];
  const reader = new FrameReader(
    {
      onMessage: (data) => events.push(typeof data === "string" ? data : [...data]),
      onPing: () => events.push("ping"),
      onPong: (data) => events.push("pong", [...data]),
      onCloseFrame: (code, reason) => events.push("close", code, reason),
      onViolation: (code) => events.push("violation", code),
    },
    1 << 24,
  );
  reader.feed(plain);
  return events;
}

class FakeTunnel implements Tunnel {
  handler: TunnelHandler | undefined;
  readonly calls: unknown[] = [];
  reason: ProxyError | undefined;
  hasRoom = true;
  attach(handler: TunnelHandler): void {
    this.handler = handler;
  }
  write(bytes: Uint8Array): boolean {
    this.calls.push(...readMasked(bytes));
    return this.hasRoom;
  }
  pause(): void {
    this.calls.push("pause");
  }
  resume(): void {
    this.calls.push("resume");
  }
  end(): void {
    this.calls.push("end");
  }
  destroy(reason?: ProxyError): void {
    this.calls.push("destroy");
    this.reason = reason;
    this.handler?.onClose();
  }
}

class FakeClient implements ClientSocket {
  readonly calls: unknown[] = [];
  buffered = 0;
  send(data: string | Uint8Array): void {
    this.calls.push(typeof data === "string" ? data : [...data]);
  }
  bufferedAmount(): number {
    return this.buffered;
  }
  close(code: number | undefined, reason: string): void {
    this.calls.push("close", code, reason);
  }
  terminate(): void {
    this.calls.push("terminate");
  }
  pause(): void {
    this.calls.push("pause");
  }
  resume(): void {
    this.calls.push("resume");
  }
}

let client: FakeClient;
let tunnel: FakeTunnel;
let relay: Relay;
const onEnd = vi.fn();

/** Starts a relay between `client` and `tunnel`. */
function start(limits: Partial<RelayLimits> = {}): void {
  relay = new Relay(client, tunnel, onEnd, { ...relayLimits, ...limits });
  relay.start();
}

beforeEach(() => {
  vi.useFakeTimers();
  onEnd.mockClear();
  client = new FakeClient();
  tunnel = new FakeTunnel();
  start({ highWaterMark: 100, maxWaiting: 300 });
});

afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

/** Reports the end of both connections, so that the relay ends and leaves no timer. */
function close(): void {
  tunnel.handler?.onClose();
  relay.onClientClose(1006, "");
}

describe("messages of a relayed WebSocket", () => {
  test("texts and bytes pass in both directions", () => {
    relay.onClientMessage("hello");
    relay.onClientMessage(Uint8Array.of(1, 2));
    tunnel.handler?.onData(frame(1, "hi"));
    tunnel.handler?.onData(frame(2, [3, 4]));
    expect(tunnel.calls).toEqual(["hello", [1, 2]]);
    expect(client.calls).toEqual(["hi", [3, 4]]);
  });

  test("a ping of the upstream is answered by the proxy", () => {
    rfc("6455-5.5.2-pong");
    tunnel.handler?.onData(frame(9, [7]));
    expect(tunnel.calls).toEqual(["pong", [7]]);
    expect(client.calls).toEqual([]);
  });
});

describe("when the proxy is closed", () => {
  test("the client gets code 1001, which means that an endpoint goes away (RFC 6455 §7.4.1)", () => {
    tunnel.handler?.onClose(poolClosed());
    expect(client.calls).toEqual(["close", 1001, ""]);
    relay.onClientClose(1001, "");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("an error with the code of `poolClosed()`, but with `retryAfter`, terminates the client's connection instead", () => {
    tunnel.handler?.onClose(new ProxyError("destination_unavailable", { retryAfter: 1 }));
    expect(client.calls).toEqual(["terminate"]);
  });

  test("a client that its upstream has already closed gets no second close frame", () => {
    tunnel.handler?.onData(frame(8, [0x03, 0xe8]));
    tunnel.handler?.onClose(poolClosed());
    expect(client.calls).toEqual(["close", 1000, ""]);
    relay.onClientClose(1000, "");
  });
});

describe("backpressure", () => {
  test("a slow client pauses the upstream until the server reports that all bytes are sent", () => {
    client.buffered = 101;
    tunnel.handler?.onData(frame(1, "a"));
    expect(tunnel.calls).toEqual(["pause"]);
    relay.onClientDrain();
    expect(tunnel.calls).toEqual(["pause"]);
    client.buffered = 0;
    relay.onClientDrain();
    expect(tunnel.calls).toEqual(["pause", "resume"]);
    vi.runAllTimers();
  });

  test("if the server does not report that all bytes are sent, the relay polls the number of buffered bytes", () => {
    client.buffered = 101;
    tunnel.handler?.onData(frame(1, "a"));
    vi.advanceTimersByTime(100);
    expect(tunnel.calls).toEqual(["pause"]);
    client.buffered = 0;
    vi.advanceTimersByTime(20);
    expect(tunnel.calls).toEqual(["pause", "resume"]);
  });

  test("a slow upstream pauses the client", () => {
    tunnel.hasRoom = false;
    relay.onClientMessage("a");
    relay.onClientMessage("b");
    expect(client.calls).toEqual(["pause"]);
    tunnel.handler?.onDrain();
    expect(client.calls).toEqual(["pause", "resume"]);
  });

  test("if an upstream does not read, only the last of its waiting pings is answered", () => {
    tunnel.hasRoom = false;
    for (const payload of [1, 2, 3]) tunnel.handler?.onData(frame(9, [payload]));
    expect(tunnel.calls).toEqual(["pong", [1]]);
    expect(client.calls).toEqual(["pause"]);
    tunnel.hasRoom = true;
    tunnel.handler?.onDrain();
    expect(tunnel.calls).toEqual(["pong", [1], "pong", [3]]);
    expect(client.calls).toEqual(["pause", "resume"]);
    tunnel.handler?.onData(frame(9, [4]));
    expect(tunnel.calls.slice(4)).toEqual(["pong", [4]]);
  });

  test("a client that cannot be paused is closed with 1013 when too many bytes wait", () => {
    rfc("6455-5.5.1-close-answered");
    tunnel.hasRoom = false;
    for (let i = 0; i < 4; i++) relay.onClientMessage("x".repeat(100));
    expect(client.calls.slice(-3)).toEqual(["close", 1013, "the upstream reads too slowly"]);
    expect(tunnel.calls).toContain(1013);
    relay.onClientMessage("more");
    expect(tunnel.calls).not.toContain("more");
    // The close frame may still be on its way to the upstream, and a reset could discard it.
    relay.onClientClose(1006, "");
    expect(tunnel.calls).not.toContain("destroy");
    close();
  });
});

test("a message of the client that is too large closes both sides", () => {
  start({ maxMessage: 4 });
  relay.onClientMessage("four");
  relay.onClientMessage(new Uint8Array(5));
  expect(client.calls.slice(0, 2)).toEqual(["close", 1009]);
  expect(tunnel.calls).toEqual(["four", "close", 1001, "a client message is too large"]);
  close();
});

describe("closing a relayed WebSocket", () => {
  test("the client's close code and reason reach the upstream, and the upstream's answer ends the relay", () => {
    relay.onClientClose(4001, "bye");
    expect(tunnel.calls).toEqual(["close", 4001, "bye", "resume"]);
    tunnel.handler?.onData(frame(8, [0x0f, 0xa1]));
    expect(tunnel.calls.at(-1)).toBe("end");
    expect(onEnd).not.toHaveBeenCalled();
    close();
    expect(onEnd).toHaveBeenCalledOnce();
    expect(client.calls).toEqual([]);
  });

  test("the upstream's close code and reason reach the client, and the upstream gets an answer", () => {
    rfc("6455-5.5.1-close-answered");
    tunnel.handler?.onData(frame(8, [0x03, 0xe9, 0x62]));
    expect(client.calls).toEqual(["close", 1001, "b"]);
    expect(tunnel.calls).toEqual(["close", 1001, "", "end"]);
    close();
    expect(client.calls).not.toContain("terminate");
    relay.onClientClose(1001, "");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("a close frame without a code is passed on without one", () => {
    rfc("6455-7.4.1-reserved-codes");
    relay.onClientClose(1005, "");
    expect(tunnel.calls).toEqual(["close", undefined, "", "resume"]);
    close();
  });

  test("a client that disconnects without a close frame closes the upstream's connection", () => {
    rfc("6455-7.4.1-reserved-codes");
    relay.onClientClose(1006, "");
    expect(tunnel.calls).toEqual(["destroy"]);
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("an upstream that disconnects without a close frame ends the client's connection", () => {
    close();
    expect(client.calls).toEqual(["terminate"]);
    relay.onClientClose(1006, "");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("an upstream that violates the protocol is closed with the code of the violation, and the client with 1014", () => {
    rfc("6455-7.1.7-fail");
    tunnel.handler?.onData(frame(3, ""));
    expect(client.calls).toEqual(["close", 1014, ""]);
    expect(tunnel.calls.slice(0, 2)).toEqual(["close", 1002]);
    close();
  });

  test("an upstream that ends its stream and does not read the waiting bytes is closed after a while", () => {
    tunnel.handler?.onEnd();
    expect(tunnel.calls).toEqual(["end"]);
    vi.advanceTimersByTime(relayLimits.closeTimeout - 1);
    expect(client.calls).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(tunnel.calls.at(-1)).toBe("destroy");
    expect(client.calls).toEqual(["terminate"]);
    relay.onClientClose(1006, "");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("after an upstream disconnects without a close frame, the client has time to read the last messages", () => {
    for (const takes of [true, false]) {
      client = new FakeClient();
      start();
      client.buffered = 50;
      tunnel.handler?.onClose();
      vi.advanceTimersByTime(relayLimits.closeTimeout - 100);
      expect(client.calls).toEqual([]);
      if (takes) client.buffered = 0;
      vi.advanceTimersByTime(takes ? 20 : 200);
      expect(client.calls).toEqual(["terminate"]);
      relay.onClientClose(1006, "");
    }
    client = new FakeClient();
    start();
    client.buffered = 50;
    tunnel.handler?.onClose(new Error("reset"));
    expect(client.calls).toEqual(["terminate"]);
    relay.onClientClose(1006, "");
  });

  test("with closeTimeout: 0, an upstream may take any time to close", () => {
    start({ closeTimeout: 0 });
    relay.onClientClose(1000, "");
    tunnel.handler?.onEnd();
    vi.advanceTimersByTime(10 * relayLimits.closeTimeout);
    expect(tunnel.calls).not.toContain("destroy");
    close();
  });

  test("with closeTimeout: 0, an upstream that does not answer the close frame after `idleTimeout` is closed after that time", () => {
    start({ idleTimeout: 1_000, closeTimeout: 0 });
    vi.advanceTimersByTime(1_001);
    relay.onClientClose(1001, "");
    expect(tunnel.calls).not.toContain("destroy");
    vi.advanceTimersByTime(1_000);
    expect(tunnel.calls.at(-1)).toBe("destroy");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test.each([
    ["answer the close frame", 0],
    ["read", 50],
  ])(
    "with closeTimeout: 0, a client that does not %s is closed after silence, although the upstream is closed",
    (_, buffered) => {
      start({ idleTimeout: 1_000, closeTimeout: 0 });
      client.buffered = buffered;
      if (buffered === 0) tunnel.handler?.onData(frame(8, [3, 232]));
      tunnel.handler?.onClose();
      vi.advanceTimersByTime(1_001);
      expect(client.calls).not.toContain("terminate");
      vi.advanceTimersByTime(1_000);
      expect(client.calls.at(-1)).toBe("terminate");
      relay.onClientClose(1006, "");
      expect(onEnd).toHaveBeenCalledOnce();
    },
  );

  test("an upstream that does not answer a close frame is closed after a while", () => {
    relay.onClientClose(1000, "");
    vi.advanceTimersByTime(relayLimits.closeTimeout);
    expect(tunnel.calls.at(-1)).toBe("destroy");
    expect(tunnel.reason?.code).toBe("connection_read_timeout");
    expect(onEnd).toHaveBeenCalledOnce();
  });

  test("an upstream that is paused because the client does not read is not at fault when it is closed after a while", () => {
    start({ idleTimeout: 1_000 });
    client.buffered = relayLimits.highWaterMark + 1;
    tunnel.handler?.onData(frame(1, "a"));
    vi.advanceTimersByTime(1_000 + relayLimits.closeTimeout);
    expect(tunnel.calls).toContain("pause");
    expect(tunnel.calls.at(-1)).toBe("destroy");
    expect(tunnel.reason?.status).toBe(499);
    relay.onClientClose(1006, "");
  });
});

describe("silence", () => {
  test("silence of both sides for idleTimeout closes them, and a message or ping of either side restarts the time", () => {
    start({ idleTimeout: 1_000 });
    vi.advanceTimersByTime(900);
    relay.onClientMessage("a");
    vi.advanceTimersByTime(900);
    tunnel.handler?.onData(frame(9, []));
    vi.advanceTimersByTime(900);
    relay.onActivity();
    vi.advanceTimersByTime(900);
    expect(client.calls).toEqual([]);
    vi.advanceTimersByTime(200);
    expect(client.calls).toEqual(["close", 1001, "silent for too long"]);
    expect(tunnel.calls.slice(-3)).toEqual(["close", 1001, "silent for too long"]);
    relay.onClientClose(1001, "");
    close();
    expect(onEnd).toHaveBeenCalledOnce();
  });
});
