import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Lifetime, type Listener } from "../src/deadline.ts";
import { ProxyError } from "../src/error.ts";
import { FakeClient, proxyError, startLifetime } from "./_fakes.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const readTimeout = proxyError("connection_read_timeout", 504);
const headTimeout = proxyError("http_response_timeout", 504);
const gone = proxyError("http_request_error", 499);

describe("until the response headers", () => {
  test("the timeout stops the exchange", () => {
    const { lifetime, fail } = startLifetime();
    vi.advanceTimersByTime(990);
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(20);
    expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
    expect(lifetime.error).toEqual(headTimeout);
    expect(lifetime.error?.message).toContain("1000 ms");
  });

  test("every piece of the request body starts it anew", () => {
    const { lifetime, fail } = startLifetime();
    for (let i = 0; i < 10; i++) {
      vi.advanceTimersByTime(900);
      lifetime.touch();
    }
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_010);
    expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
  });

  test("0 waits for ever", () => {
    const { fail } = startLifetime(0);
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(2 ** 31);
    expect(fail).not.toHaveBeenCalled();
  });
});

describe("in the response body", () => {
  test("silence stops the exchange, pieces start it anew", () => {
    const { lifetime, fail } = startLifetime();
    vi.advanceTimersByTime(900);
    lifetime.opened(false);
    for (let i = 0; i < 10; i++) {
      vi.advanceTimersByTime(450);
      lifetime.touch();
    }
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(510);
    expect(fail).toHaveBeenCalledExactlyOnceWith(readTimeout);
  });

  test("an event stream may be silent, and so may any where idleTimeout is 0", () => {
    const events = startLifetime();
    events.lifetime.opened(true);
    const unlimited = startLifetime(1_000, 0);
    unlimited.lifetime.opened(false);
    vi.advanceTimersByTime(10_000_000);
    expect(events.fail).not.toHaveBeenCalled();
    expect(unlimited.fail).not.toHaveBeenCalled();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a client that does not read is not the upstream's silence", () => {
    const { lifetime, fail } = startLifetime();
    lifetime.opened(false);
    lifetime.hold(true);
    vi.advanceTimersByTime(60_000);
    expect(fail).not.toHaveBeenCalled();
    lifetime.hold(false);
    vi.advanceTimersByTime(450);
    expect(fail).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_000);
    expect(fail).toHaveBeenCalledExactlyOnceWith(readTimeout);
  });
});

describe("who stops it", () => {
  test("the client", () => {
    const { client, lifetime, fail } = startLifetime();
    client.leave();
    expect(fail).toHaveBeenCalledExactlyOnceWith(gone);
    expect(lifetime.error).toEqual(gone);
  });

  test("the caller's signal, with its reason", () => {
    const controller = new AbortController();
    const { lifetime, fail } = startLifetime(1_000, 500, controller.signal);
    controller.abort("enough");
    expect(fail).toHaveBeenCalledExactlyOnceWith(gone);
    expect(lifetime.error?.cause).toBe("enough");
  });

  test("a signal that had fired before", () => {
    const { client, lifetime } = startLifetime(1_000, 500, AbortSignal.abort("before"));
    expect(lifetime.error?.cause).toBe("before");
    expect(client.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a client that had left before", () => {
    const unlisten = vi.fn();
    const left = { listen: (listener: Listener) => listener.handleEvent(), unlisten };
    expect(new Lifetime(left, 1_000, 500).error).toEqual(gone);
    expect(unlisten).toHaveBeenCalledOnce();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("the first reason counts", () => {
    const { client, lifetime, fail } = startLifetime();
    const first = new ProxyError("dns_error");
    lifetime.abort(first);
    client.leave();
    lifetime.abort(new ProxyError("connection_refused"));
    vi.advanceTimersByTime(5_000);
    expect(lifetime.error).toBe(first);
    expect(fail).toHaveBeenCalledExactlyOnceWith(first);
  });
});

describe("a client that is listened to later", () => {
  test.each([0, 100, 1_000])("within a timeout of %d", (timeout) => {
    const client = new FakeClient();
    client.listenAfter = 500;
    const lifetime = new Lifetime(client, timeout, 0);
    vi.advanceTimersByTime(499);
    expect(client.listeners.size).toBe(0);
    vi.advanceTimersByTime(1);
    expect(client.listeners.size).toBe(timeout === 100 ? 0 : 1);
    client.leave();
    expect(lifetime.error).toEqual(timeout === 100 ? headTimeout : gone);
    expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 0]);
  });

  test("is not listened to if it is over before", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    new Lifetime(client, 1_000, 0).end();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("keeps the deadline", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    const lifetime = new Lifetime(client, 1_000, 300);
    vi.advanceTimersByTime(990);
    expect(lifetime.error).toBeUndefined();
    lifetime.opened(false);
    vi.advanceTimersByTime(290);
    expect(lifetime.error).toBeUndefined();
    vi.advanceTimersByTime(20);
    expect(lifetime.error).toEqual(readTimeout);
  });

  test("is listened to in an event stream", () => {
    const client = new FakeClient();
    client.listenAfter = 500;
    const lifetime = new Lifetime(client, 1_000, 300);
    lifetime.opened(true);
    vi.advanceTimersByTime(501);
    expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 1]);
    client.leave();
    expect(lifetime.error).toEqual(gone);
  });
});

describe("the end", () => {
  test.each(["end", "abort", "leave", "signal", "timeout"])(
    "by %s leaves nothing behind",
    (how) => {
      const controller = new AbortController();
      const remove = vi.spyOn(controller.signal, "removeEventListener");
      const { client, lifetime } = startLifetime(1_000, 500, controller.signal);
      expect(client.listeners.size).toBe(1);
      expect(vi.getTimerCount()).toBe(1);
      if (how === "end") lifetime.end();
      else if (how === "abort") lifetime.abort(new ProxyError("dns_error"));
      else if (how === "leave") client.leave();
      else if (how === "signal") controller.abort();
      else vi.advanceTimersByTime(1_010);
      expect(client.listeners.size).toBe(0);
      expect(vi.getTimerCount()).toBe(0);
      expect(remove).toHaveBeenCalledWith("abort", lifetime);
    },
  );

  test("is final: nothing that comes later starts a timer or stops anything", () => {
    const { client, lifetime, fail } = startLifetime();
    lifetime.end();
    lifetime.touch();
    lifetime.hold(true);
    lifetime.hold(false);
    lifetime.opened(false);
    lifetime.abort(new ProxyError("dns_error"));
    client.leave();
    vi.advanceTimersByTime(5_000);
    expect(vi.getTimerCount()).toBe(0);
    expect(lifetime.error).toBeUndefined();
    expect(fail).not.toHaveBeenCalled();
  });

  test("one timer serves any number of pieces", () => {
    const { lifetime } = startLifetime();
    lifetime.opened(false);
    const set = vi.spyOn(globalThis, "setTimeout");
    for (let i = 0; i < 1_000; i++) lifetime.touch();
    expect(set).not.toHaveBeenCalled();
    expect(vi.getTimerCount()).toBe(1);
  });
});

test("what came while the process was busy is read before the time is over", () => {
  const { lifetime, fail } = startLifetime(1_000);
  // Its timers are late by this much.
  vi.spyOn(performance, "now").mockReturnValueOnce(performance.now() + 5_000);
  vi.advanceTimersByTime(1_000);
  expect(fail).not.toHaveBeenCalled();
  lifetime.touch();
  vi.advanceTimersByTime(900);
  expect(fail).not.toHaveBeenCalled();
  vi.advanceTimersByTime(200);
  expect(fail).toHaveBeenCalledExactlyOnceWith(headTimeout);
});
