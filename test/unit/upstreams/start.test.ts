/** When a target of several upstreams is started and closed. */
import { expect, test } from "vitest";
import { createProxy, proxyFetch } from "../../../runtimes/node.ts";
import type { Transport } from "../../../src/transport/port.ts";
import { choose, type Upstreams } from "../../../src/upstreams/balance.ts";
import { FakeTransport } from "../../helpers/fakes.ts";

const request = (): Request => new Request("http://proxy.test/");

/** Creates a target that records the calls of its `start` and `close`. */
function record(): { target: Upstreams; calls: string[]; transports: Transport[] } {
  const calls: string[] = [];
  const transports: Transport[] = [];
  const target: Upstreams = {
    choose,
    // A port that nothing listens on: each request gets 502 or 503.
    pick: () => "http://127.0.0.1:9",
    start(transport) {
      calls.push("start");
      transports.push(transport);
    },
    close: () => void calls.push("close"),
  };
  return { target, calls, transports };
}

test("a proxy starts its target once, before its first request", async () => {
  const { target, calls } = record();
  const proxy = createProxy({ target });
  expect(calls).toEqual(["start"]);
  for (let i = 0; i < 3; i++) await proxy.fetch(request());
  expect(calls).toEqual(["start"]);
  await proxy.close();
  expect(calls).toEqual(["start", "close"]);
});

test("`proxyFetch` starts a target once for each transport", async () => {
  const { target, calls, transports } = record();
  for (let i = 0; i < 3; i++) await proxyFetch(request(), target, { retry: false });
  expect(calls).toEqual(["start"]);
  const transport = new FakeTransport();
  for (let i = 0; i < 2; i++) await proxyFetch(request(), () => target, { transport });
  expect(calls).toEqual(["start", "start"]);
  expect(transports[1]).toBe(transport);
});

test("a target whose start fails is started again by the next request", async () => {
  const { target, calls } = record();
  const fail = (): never => {
    throw new TypeError(`start ${calls.push("start")}`);
  };
  const failing = { ...target, start: fail };
  await expect(proxyFetch(request(), failing)).rejects.toThrow("start 1");
  await expect(proxyFetch(request(), failing)).rejects.toThrow("start 2");
});

test("a request of a closed proxy does not start the closed target again, but a request of another proxy does", async () => {
  const { target, calls } = record();
  const closed = createProxy({ target });
  const other = createProxy({ target });
  expect(calls).toEqual(["start", "start"]);
  await closed.close();
  const { status } = await closed.fetch(request());
  expect(status).toBe(503);
  expect(calls).toEqual(["start", "start", "close"]);
  for (let i = 0; i < 2; i++) await other.fetch(request());
  expect(calls).toEqual(["start", "start", "close", "start"]);
  other.destroy();
});
