import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
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
