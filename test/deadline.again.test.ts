import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ProxyError } from "../src/error.ts";
import { proxyError, startLifetime } from "./_fakes.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const headTimeout = proxyError("http_response_timeout", 504);
const gone = proxyError("http_request_error", 499);

describe("one more attempt", () => {
  test("has what is left of the time", () => {
    const { lifetime } = startLifetime(1_000);
    vi.advanceTimersByTime(700);
    lifetime.end();
    const next = lifetime.again();
    vi.advanceTimersByTime(290);
    expect(next.error).toBeUndefined();
    vi.advanceTimersByTime(20);
    expect(next.error).toEqual(headTimeout);
  });

  test("the time goes on while a response is let go, and a piece of the request starts it anew", () => {
    const { lifetime } = startLifetime(1_000);
    vi.advanceTimersByTime(500);
    lifetime.touch();
    vi.advanceTimersByTime(100);
    lifetime.opened(false);
    lifetime.end();
    const next = lifetime.again();
    vi.advanceTimersByTime(880);
    expect(next.error).toBeUndefined();
    vi.advanceTimersByTime(40);
    expect(next.error).toEqual(headTimeout);
  });

  test("without a timeout there is none", () => {
    const { lifetime } = startLifetime(0, 0);
    lifetime.end();
    lifetime.again();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("is the same client's, and under the same signal", () => {
    const controller = new AbortController();
    const { client, lifetime } = startLifetime(1_000, 500, controller.signal);
    lifetime.end();
    const second = lifetime.again();
    client.leave();
    expect(second.error).toEqual(gone);
    const third = lifetime.again();
    controller.abort();
    expect(third.error).toEqual(gone);
    expect(lifetime.again().error).toEqual(gone);
    expect(client.listeners.size).toBe(0);
  });

  test("ends the scope before it, which keeps no timer and no listener", () => {
    const { client, lifetime, fail } = startLifetime(1_000);
    const next = lifetime.again();
    expect(client.listeners.size).toBe(1);
    expect(vi.getTimerCount()).toBe(1);
    next.end();
    client.leave();
    vi.advanceTimersByTime(2_000);
    expect(client.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
    expect(fail).not.toHaveBeenCalled();
    expect(lifetime.error).toBeUndefined();
  });

  test("what is waited for ends by itself, or with the exchange", async () => {
    const { lifetime } = startLifetime(1_000);
    expect(await lifetime.orAbort(Promise.resolve(5))).toBe(5);
    await expect(lifetime.orAbort(Promise.reject(new Error("oops")))).rejects.toThrow("oops");
    expect(lifetime.request).toBeUndefined();
    const failed = expect(lifetime.orAbort(new Promise(() => {}))).rejects.toEqual(headTimeout);
    await vi.advanceTimersByTimeAsync(1_100);
    await failed;
    await expect(lifetime.orAbort(Promise.resolve(5))).rejects.toEqual(headTimeout);
  });
});

describe("a scope that others have followed", () => {
  const reason = new ProxyError("http_request_error", { status: 413 });

  test("aborted, it aborts the last of them", () => {
    const { lifetime: first, fail } = startLifetime();
    const second = first.again();
    const last = second.again();
    const stopped = vi.fn();
    last.request = { fail: stopped };
    first.abort(reason);
    expect(stopped).toHaveBeenCalledExactlyOnceWith(reason);
    expect(fail).not.toHaveBeenCalled();
    for (const scope of [first, second, last]) expect(scope.error).toBe(reason);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("has the reason of a later one as its error, but not a later one its reason", () => {
    const { client, lifetime: first } = startLifetime();
    first.abort(reason);
    const second = first.again();
    expect(second.error).toBeUndefined();
    client.leave();
    expect(second.error).toEqual(gone);
    expect(first.error).toEqual(gone);
  });

  test("aborted after all of them have ended, it does nothing", () => {
    const { lifetime: first } = startLifetime();
    const last = first.again();
    const stopped = vi.fn();
    last.request = { fail: stopped };
    last.end();
    first.abort(reason);
    expect(stopped).not.toHaveBeenCalled();
    expect(first.error).toBeUndefined();
  });

  test("waits for work until the last of them is stopped", async () => {
    const { lifetime: first } = startLifetime();
    const last = first.again();
    last.abort(reason);
    await expect(first.orAbort(Promise.resolve(5))).rejects.toBe(reason);
  });
});
