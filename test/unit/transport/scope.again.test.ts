import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { placeOf, ProxyError } from "../../../src/error.ts";
import { parseTarget } from "../../../src/target/target.ts";
import { proxyError, startScope } from "../../helpers/fakes.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const headTimeout = proxyError("http_response_timeout", 504);
const gone = proxyError("http_request_error", 499);

describe("the scope of a further attempt", () => {
  test("the scope has the rest of the timeout", () => {
    const { scope } = startScope(1_000);
    vi.advanceTimersByTime(700);
    scope.end();
    const next = scope.again();
    vi.advanceTimersByTime(290);
    expect(next.error).toBeUndefined();
    vi.advanceTimersByTime(20);
    expect(next.error).toEqual(headTimeout);
  });

  test("the timeout of the scope began with the last chunk of the request, not with the response headers", () => {
    const { scope } = startScope(1_000);
    vi.advanceTimersByTime(500);
    scope.touch();
    vi.advanceTimersByTime(100);
    scope.headersReceived(false);
    scope.end();
    const next = scope.again();
    vi.advanceTimersByTime(880);
    expect(next.error).toBeUndefined();
    vi.advanceTimersByTime(40);
    expect(next.error).toEqual(headTimeout);
  });

  test("listens to the client immediately, even if `listenAfter` delays the listener of a first attempt", () => {
    const { client, scope } = startScope();
    client.listenAfter = 500;
    scope.end();
    const next = scope.again();
    expect(client.listeners.size).toBe(1);
    client.leave();
    expect(next.error).toEqual(gone);
    expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 0]);
  });

  test("has no timer without a timeout", () => {
    const { scope } = startScope(0, 0);
    scope.end();
    scope.again();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("the scope has the client and the signal of the previous scope", () => {
    const controller = new AbortController();
    const { client, scope } = startScope(1_000, 500, controller.signal);
    scope.end();
    const second = scope.again();
    client.leave();
    expect(second.error).toEqual(gone);
    const third = scope.again();
    controller.abort();
    expect(third.error).toEqual(gone);
    expect(scope.again().error).toEqual(gone);
    expect(client.listeners.size).toBe(0);
  });

  test("ends the previous scope, which keeps no timer and no listener", () => {
    const { client, scope, fail } = startScope(1_000);
    const next = scope.again();
    expect(client.listeners.size).toBe(1);
    expect(vi.getTimerCount()).toBe(1);
    next.end();
    client.leave();
    vi.advanceTimersByTime(2_000);
    expect(client.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
    // Only the attempt that was still running was aborted.
    expect(fail).toHaveBeenCalledOnce();
    expect(scope.error).toBeUndefined();
  });

  test("the end of the scope does not abort the previous attempt, which has ended", () => {
    const { scope, fail } = startScope(1_000);
    scope.end();
    scope.again().end();
    expect(fail).not.toHaveBeenCalled();
  });
});

test("`orAbort` of a scope settles with its promise, or rejects if the exchange is aborted", async () => {
  const { scope } = startScope(1_000);
  expect(await scope.orAbort(Promise.resolve(5))).toBe(5);
  await expect(scope.orAbort(Promise.reject(new Error("oops")))).rejects.toThrow("oops");
  expect(scope.error).toBeUndefined();
  const failed = expect(scope.orAbort(new Promise(() => {}))).rejects.toEqual(headTimeout);
  await vi.advanceTimersByTimeAsync(1_100);
  await failed;
  await expect(scope.orAbort(Promise.resolve(5))).rejects.toEqual(headTimeout);
});

describe("a scope whose `again()` has created followers", () => {
  const reason = new ProxyError("http_request_error", { status: 413 });

  test("aborting the scope aborts its last follower", () => {
    const { scope: first, fail } = startScope();
    const second = first.again();
    const last = second.again();
    const stopped = vi.fn();
    last.onAbort({ fail: stopped });
    first.abort(reason);
    expect(stopped).toHaveBeenCalledExactlyOnceWith(reason);
    expect(fail).not.toHaveBeenCalledWith(reason);
    for (const scope of [first, second, last]) expect(scope.error).toBe(reason);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("an aborted follower passes its error to the earlier scopes, but a follower that is created after an abort begins without an error", () => {
    const { client, scope: first } = startScope();
    first.abort(reason);
    const second = first.again();
    expect(second.error).toBeUndefined();
    client.leave();
    expect(second.error).toEqual(gone);
    expect(first.error).toEqual(gone);
  });

  test("a further call of `again()` ends the last follower, and creates another one", () => {
    const { client, scope: first } = startScope();
    const second = first.again();
    const third = first.again();
    expect(third).not.toBe(second);
    expect(client.listeners.size).toBe(1);
    expect(vi.getTimerCount()).toBe(1);
    first.abort(reason);
    expect([second.error, third.error]).toEqual([reason, reason]);
  });

  test("the scope continues when a fork ends, and a client that disconnects aborts the scope and its other fork", () => {
    const { client, scope: main, fail } = startScope();
    const fork = main.fork();
    const stopped = vi.fn();
    fork.onAbort({ fail: stopped });
    fork.end();
    expect(client.listeners.size).toBe(1);
    const other = main.fork();
    other.onAbort({ fail: stopped });
    client.leave();
    expect([fail.mock.calls.length, stopped.mock.calls.length]).toEqual([1, 1]);
    expect(client.listeners.size).toBe(0);
  });

  test("aborting the scope does nothing after its last follower has ended", () => {
    const { scope: first } = startScope();
    const last = first.again();
    const stopped = vi.fn();
    last.onAbort({ fail: stopped });
    last.end();
    first.abort(reason);
    expect(stopped).not.toHaveBeenCalled();
    expect(first.error).toBeUndefined();
  });

  test("`orAbort` rejects if the last follower has been aborted", async () => {
    const { scope: first } = startScope();
    const last = first.again();
    last.abort(reason);
    await expect(first.orAbort(Promise.resolve(5))).rejects.toBe(reason);
  });
});

test("a failure between two attempts is reported with the upstream that was tried last", () => {
  const { scope } = startScope();
  const reported: ProxyError[] = [];
  scope.upstream = parseTarget("http://a:1");
  scope.log = (error) => void reported.push(error);
  scope.again();
  const error = new ProxyError("connection_refused");
  scope.failed(error);
  expect(reported).toEqual([error]);
  expect(placeOf(error)?.origin).toBe("http://a:1");
});
