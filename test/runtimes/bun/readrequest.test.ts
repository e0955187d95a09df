import { expect, test } from "vitest";
import { readRequest } from "../../../runtimes/bun/readrequest.ts";
import { Scope } from "../../../src/transport/scope.ts";
import { until } from "../../helpers/wait.ts";

/** Creates a request that counts how often its signal is read. */
function createRequest(init?: RequestInit): {
  request: Request;
  abort: () => void;
  reads: () => number;
} {
  const controller = new AbortController();
  let reads = 0;
  const request = new Request("http://a.test/", init);
  Object.defineProperty(request, "signal", {
    get() {
      reads++;
      return controller.signal;
    },
  });
  return { request, abort: () => controller.abort(), reads: () => reads };
}

test("the proxy never reads `request.signal` if the exchange ends soon", async () => {
  const [short, long] = [createRequest(), createRequest()];
  const [first, second] = [short, long].map(
    ({ request }) => new Scope(readRequest(request, undefined, {}), 1000, 0),
  ) as [Scope, Scope];
  first.end();
  await until(() => long.reads() > 0, "the signal of the long exchange read");
  second.end();
  expect(short.reads()).toBe(0);
});

test("if the client has disconnected before the proxy reads `request.signal`, the exchange is aborted", async () => {
  const { request, abort } = createRequest();
  const scope = new Scope(readRequest(request, undefined, {}), 1000, 0);
  abort();
  await until(() => scope.error !== undefined, "the exchange aborted");
  expect(scope.error?.status).toBe(499);
});

test("the server's idle timeout stays off until the last exchange of a request has ended", () => {
  const timeouts: number[] = [];
  const server = {
    requestIP: () => null,
    timeout: (_: Request, seconds: number) => void timeouts.push(seconds),
  };
  const { request } = createRequest({ method: "POST", body: "x" });
  const scope = new Scope(readRequest(request, server, {}), 1000, 0);
  const fork = scope.fork();
  fork.end();
  expect(timeouts.at(-1)).toBe(0);
  scope.end();
  expect(timeouts.at(-1)).toBeGreaterThan(0);
});

test("`clientKey` is made from the peer's address, or from the address that the option `clientAddress` returns", () => {
  const server = { requestIP: () => ({ address: "::ffff:192.0.2.7" }), timeout() {} };
  const { request } = createRequest();
  expect(readRequest(request, server, {}).clientKey).toBe("192.0.2.7");
  const clientAddress = (): string => "2001:db8::1";
  expect(readRequest(request, server, { clientAddress }).clientKey).toBe("2001:db8:0:0/64");
});

test.each<[string, RequestInit]>([
  ["a body", { method: "POST", body: "x" }],
  ["Content-Length", { headers: { "content-length": "5" } }],
  ["Transfer-Encoding", { headers: { "transfer-encoding": "chunked" } }],
  ["Upgrade", { headers: { upgrade: "websocket" } }],
])("with %s, `request.signal` is read early, because Bun may refuse the request", (_, init) => {
  const { request, abort, reads } = createRequest(init);
  const scope = new Scope(readRequest(request, undefined, {}), 1000, 0);
  expect(reads()).toBeGreaterThan(0);
  abort();
  expect(scope.error?.status).toBe(499);
});
