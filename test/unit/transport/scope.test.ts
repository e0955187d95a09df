import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Scope, type Listener } from "../../../src/transport/scope.ts";
import { ProxyError } from "../../../src/error.ts";
import { FakeClient, proxyError, startScope } from "../../helpers/fakes.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  // Remove a spy on the fake `setTimeout` first: after this file, Vitest would put the fake back, for all files that follow in
  // the same process.
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const readTimeout = proxyError("connection_read_timeout", 504);
const headTimeout = proxyError("http_response_timeout", 504);
const gone = proxyError("http_request_error", 499);

describe("until the response headers", () => {
  test("the timeout aborts the exchange", () => {
    const { scope, fail } = startScope();
    vi.advanceTimersByTime(990);
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(20);
    expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
    expect(scope.error).toEqual(headTimeout);
    expect(scope.error?.message).toContain("1000 ms");
  });

  test("each chunk of the request body restarts the timeout", () => {
    const { scope, fail } = startScope();
    for (let i = 0; i < 10; i++) {
      vi.advanceTimersByTime(900);
      scope.touch();
    }
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_010);
    expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
  });

  test("an exchange with a timeout of 0 waits without a limit", () => {
    const { fail } = startScope(0);
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(2 ** 31);
    expect(fail).not.toHaveBeenCalled();
  });
});

describe("in the response body", () => {
  test("silence aborts the exchange, and each chunk restarts the idle timeout", () => {
    const { scope, fail } = startScope();
    vi.advanceTimersByTime(900);
    scope.headersReceived(false);
    for (let i = 0; i < 10; i++) {
      vi.advanceTimersByTime(450);
      scope.touch();
    }
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(510);
    expect(fail).toHaveBeenCalledExactlyOnceWith(readTimeout);
  });

  test("an event stream has no idle timeout, and neither has any body with idleTimeout: 0", () => {
    const events = startScope();
    events.scope.headersReceived(true);
    const unlimited = startScope(1_000, 0);
    unlimited.scope.headersReceived(false);
    vi.advanceTimersByTime(10_000_000);
    expect(events.fail).not.toHaveBeenCalled();
    expect(unlimited.fail).not.toHaveBeenCalled();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a client that does not read pauses the idle timeout", () => {
    const { scope, fail } = startScope();
    scope.headersReceived(false);
    scope.pauseIdle(true);
    vi.advanceTimersByTime(60_000);
    expect(fail).not.toHaveBeenCalled();
    scope.pauseIdle(false);
    vi.advanceTimersByTime(450);
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_000);
    expect(fail).toHaveBeenCalledExactlyOnceWith(readTimeout);
  });
});

describe("an exchange is aborted by", () => {
  test("a client that disconnects", () => {
    const { client, scope, fail } = startScope();
    client.leave();
    expect(fail).toHaveBeenCalledExactlyOnceWith(gone);
    expect(scope.error).toEqual(gone);
  });

  test("the caller's signal, with its reason", () => {
    const controller = new AbortController();
    const { scope, fail } = startScope(1_000, 500, controller.signal);
    controller.abort("enough");
    expect(fail).toHaveBeenCalledExactlyOnceWith(gone);
    expect(scope.error?.cause).toBe("enough");
  });

  test("a signal that was already aborted", () => {
    const { client, scope } = startScope(1_000, 500, AbortSignal.abort("before"));
    expect(scope.error?.cause).toBe("before");
    expect(client.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a client that had already disconnected", () => {
    const unlisten = vi.fn();
    const left = { listen: (listener: Listener) => listener.handleEvent(), unlisten };
    const { signal } = new AbortController();
    expect(new Scope(left, 1_000, 500, signal).error).toEqual(gone);
    expect(unlisten).toHaveBeenCalledOnce();
    expect(getEventListeners(signal, "abort")).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("the first of several reasons", () => {
    const { client, scope, fail } = startScope();
    const first = new ProxyError("dns_error");
    scope.abort(first);
    client.leave();
    scope.abort(new ProxyError("connection_refused"));
    vi.advanceTimersByTime(5_000);
    expect(scope.error).toBe(first);
    expect(fail).toHaveBeenCalledExactlyOnceWith(first);
  });
});

describe("a client whose listener is added later", () => {
  test.each([0, 100, 1_000])(
    "gets its listener after 500 ms, unless the exchange has timed out before (timeout: %d ms)",
    (timeout) => {
      const client = new FakeClient();
      client.listenAfter = 500;
      const scope = new Scope(client, timeout, 0);
      vi.advanceTimersByTime(499);
      expect(client.listeners.size).toBe(0);
      vi.advanceTimersByTime(1);
      expect(client.listeners.size).toBe(timeout === 100 ? 0 : 1);
      client.leave();
      expect(scope.error).toEqual(timeout === 100 ? headTimeout : gone);
      expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 0]);
    },
  );

  test("the client gets no listener if the exchange ends before the listener is due", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    new Scope(client, 1_000, 0).end();
    expect(vi.getTimerCount()).toBe(0);
  });

  test.each([0, 1_000])(
    "gets its listener from `listenNow`, and keeps no timer in the end (timeout: %d ms)",
    (timeout) => {
      const client = new FakeClient();
      client.listenAfter = 20;
      const scope = new Scope(client, timeout, 0);
      expect(client.listeners.size).toBe(0);
      scope.listenNow();
      expect(client.listeners.size).toBe(1);
      vi.advanceTimersByTime(500);
      expect(scope.error).toBeUndefined();
      client.leave();
      expect(scope.error).toEqual(gone);
      expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 0]);
    },
  );

  test("a listener that is added later does not change the timeout and the idle timeout", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    const scope = new Scope(client, 1_000, 300);
    vi.advanceTimersByTime(990);
    expect(scope.error).toBeUndefined();
    scope.headersReceived(false);
    vi.advanceTimersByTime(290);
    expect(scope.error).toBeUndefined();
    vi.advanceTimersByTime(20);
    expect(scope.error).toEqual(readTimeout);
  });

  test("the client gets its listener even if an event stream has stopped the timeouts", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    const scope = new Scope(client, 1_000, 300);
    scope.headersReceived(true);
    vi.advanceTimersByTime(501);
    expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 1]);
    client.leave();
    expect(scope.error).toEqual(gone);
  });
});

describe("the end of an exchange", () => {
  test.each(["end", "abort", "leave", "signal", "timeout"])(
    "by %s leaves no timer and no listener",
    (how) => {
      const controller = new AbortController();
      const remove = vi.spyOn(controller.signal, "removeEventListener");
      const { client, scope } = startScope(1_000, 500, controller.signal);
      expect(client.listeners.size).toBe(1);
      expect(vi.getTimerCount()).toBe(1);
      if (how === "end") scope.end();
      else if (how === "abort") scope.abort(new ProxyError("dns_error"));
      else if (how === "leave") client.leave();
      else if (how === "signal") controller.abort();
      else vi.advanceTimersByTime(1_010);
      expect(client.listeners.size).toBe(0);
      expect(vi.getTimerCount()).toBe(0);
      expect(remove).toHaveBeenCalledWith("abort", scope);
    },
  );

  test("after the end, calls start no timer and abort nothing", () => {
    const { client, scope, fail } = startScope();
    scope.end();
    scope.touch();
    scope.pauseIdle(true);
    scope.pauseIdle(false);
    scope.headersReceived(false);
    scope.abort(new ProxyError("dns_error"));
    client.leave();
    vi.advanceTimersByTime(5_000);
    expect(vi.getTimerCount()).toBe(0);
    expect(scope.error).toBeUndefined();
    expect(fail).not.toHaveBeenCalled();
  });
});

test("an exchange has one timer for any number of chunks", () => {
  const { scope } = startScope();
  scope.headersReceived(false);
  const set = vi.spyOn(globalThis, "setTimeout");
  for (let i = 0; i < 1_000; i++) scope.touch();
  expect(set).not.toHaveBeenCalled();
  expect(vi.getTimerCount()).toBe(1);
});

test("after a blocked event loop, pending reads run before the timeout fires", () => {
  const { scope, fail } = startScope(1_000);
  vi.advanceTimersByTime(1_000);
  expect(fail).not.toHaveBeenCalled();
  scope.touch();
  vi.advanceTimersByTime(900);
  expect(fail).not.toHaveBeenCalled();
  vi.advanceTimersByTime(200);
  expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
});
