/** WebSockets of Deno's server that never open. test/runtimes/websocket/ tests those that open, on Deno itself. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { relayWebSocket } from "../../../runtimes/deno/websocket.ts";
import type { Tunnel } from "../../../src/transport/tunnel.ts";

const tunnel = {
  attach: vi.fn(),
  write: vi.fn(),
  pause: vi.fn(),
  resume: vi.fn(),
  end: vi.fn(),
  destroy: vi.fn(),
} satisfies Tunnel;

const upgradeWebSocket = vi.fn();

beforeEach(() => {
  vi.useFakeTimers();
  vi.clearAllMocks();
  vi.stubGlobal("Deno", { upgradeWebSocket });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function answer(signal?: AbortSignal): Response {
  const request = new Request("http://a.test/", signal === undefined ? {} : { signal });
  const response = new Response(null, { headers: { "x-a": "1", "sec-websocket-protocol": "b" } });
  return relayWebSocket(request, response, tunnel, {});
}

test("the handshake of a client that has already disconnected is not upgraded", () => {
  expect(() => answer(AbortSignal.abort())).toThrow("the client closed the request");
  expect(upgradeWebSocket).not.toHaveBeenCalled();
});

test("the upstream's connection is closed after 10 s if the client's WebSocket never opens after the 101", () => {
  const own = new Response(null);
  upgradeWebSocket.mockReturnValue({ socket: new EventTarget(), response: own });
  expect(answer()).toBe(own);
  expect([...own.headers]).toEqual([
    ["sec-websocket-protocol", "b"],
    ["x-a", "1"],
  ]);
  vi.advanceTimersByTime(9_000);
  expect(tunnel.destroy).not.toHaveBeenCalled();
  vi.advanceTimersByTime(2_000);
  expect(tunnel.destroy).toHaveBeenCalledOnce();
});

test("a request whose upgrade Deno refuses gets 501", () => {
  upgradeWebSocket.mockImplementation(() => {
    throw new TypeError("Invalid Header: 'upgrade' header must contain 'websocket'");
  });
  expect(() => answer()).toThrow(expect.objectContaining({ status: 501 }));
});
