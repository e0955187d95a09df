/** Deadlines while the event loop of the proxy's process is blocked. The upstream runs in the same process and blocks it. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createProxy, type Proxy } from "#fetchway";
import { Deadline } from "../../../src/transport/deadline.ts";
import { balance } from "../../../src/upstreams/balance.ts";

let server: Server;
let requests = 0;
/** Milliseconds for which the upstream blocks the event loop, right after its response is written. */
let blocked = 0;
let answers = true;
const proxies: Proxy[] = [];

beforeEach(async () => {
  [requests, blocked, answers] = [0, 0, true];
  server = createServer((_req, res) => {
    requests++;
    if (answers) res.end("ok");
    block(blocked);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterEach(() => {
  vi.useRealTimers();
  for (const proxy of proxies.splice(0)) proxy.destroy();
  server.closeAllConnections();
  server.close();
});

function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

function origin(): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test.each([
  ["one target", () => origin()],
  [
    "several upstreams",
    () => balance([origin(), origin().replace("127.0.0.1", "localhost")], { policy: "first" }),
  ],
])(
  "a response that arrives while the event loop is blocked does not count as late: %s",
  async (_, target) => {
    // The timeout is long, so that the request reaches the upstream within it on a busy machine as well.
    blocked = 2100;
    const proxy = createProxy({ target: target(), attemptTimeout: 2000 });
    proxies.push(proxy);
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    expect([response.status, await response.text(), requests]).toEqual([200, "ok", 1]);
  },
);

test("a timeout expires although each turn of the event loop is long", async () => {
  answers = false;
  const proxy = createProxy({ target: origin(), timeout: 100, retry: false });
  proxies.push(proxy);
  let turns = 0;
  let isOver = false;
  const overload = (): void => {
    block(30);
    if (!isOver && ++turns < 100) setImmediate(overload);
  };
  overload();
  const response = await proxy.fetch(new Request("http://proxy.test/"));
  isOver = true;
  expect([response.status, turns < 100]).toEqual([504, true]);
});

test("a deadline that is cleared does not expire, even if it is cleared during its extra turn for pending reads", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const [pass, passOther] = [vi.fn(), vi.fn()];
  const early = new Deadline(5, pass);
  const late = new Deadline(5, pass);
  early.clear();
  const other = new Deadline(5, passOther);
  setTimeout(() => late.clear(), 5);
  vi.advanceTimersByTime(10);
  expect(passOther).toHaveBeenCalledOnce();
  expect(pass).not.toHaveBeenCalled();
  other.clear();
});
