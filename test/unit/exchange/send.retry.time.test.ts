import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import { forward } from "../../../src/pipeline/pipeline.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compile } from "../../../src/plan.ts";
import { fakeIncoming, FakeTransport, respond, run, TARGET } from "../../helpers/fakes.ts";

const refused = new ProxyError("connection_refused");

// Only the functions that the core uses are fake. Otherwise, `getTimerCount` would also count timers of other code.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

const options: ProxyOptions = { timeout: 1000, retry: { attempts: 9, delay: 300 } };

test("all attempts of an exchange share one timeout", async () => {
  const transport = new FakeTransport(async () => {
    throw refused;
  });
  const done = vi.fn();
  const answer = run({}, { transport, options });
  void answer.then(done);
  await vi.advanceTimersByTimeAsync(950);
  expect(transport.hops).toHaveLength(4);
  expect(done).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(100);
  expect((await answer).status).toBe(504);
  expect(transport.hops).toHaveLength(4);
  expect(vi.getTimerCount()).toBe(0);
});

test("a client that disconnects between two attempts ends the exchange", async () => {
  const incoming = fakeIncoming();
  const transport = new FakeTransport(async () => {
    throw refused;
  });
  const plan = compile(options, () => transport);
  const answer = forward(incoming, TARGET, plan, undefined, respond);
  await vi.advanceTimersByTimeAsync(100);
  incoming.leave();
  expect((await answer).status).toBe(499);
  await vi.advanceTimersByTimeAsync(1000);
  expect(transport.hops).toHaveLength(1);
  expect(incoming.listeners.size).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});
