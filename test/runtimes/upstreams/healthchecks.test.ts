/** The active health checks of upstreams. */
import { expect, test } from "vitest";
import { createProxy } from "../../../runtimes/fetch.ts";
import { BytesBody } from "../../../src/body/bytes.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import type { ProxyError } from "../../../src/error.ts";
import type { Scope } from "../../../src/transport/scope.ts";
import type { Transport } from "../../../src/transport/port.ts";
import { toSocketError } from "../../../src/transport/socketerror.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import { balance, type Balancer } from "../../../src/upstreams/balance.ts";
import { startProgram } from "../../helpers/program.ts";
import { until } from "../../helpers/wait.ts";

const statesOf = (target: Balancer): string[] => target.states().map(({ state }) => state);

type Answer = (request: UpstreamRequest, scope: Scope) => Promise<UpstreamResponse>;
const respond = (status: number, body: UpstreamResponse["body"]): UpstreamResponse => ({
  status,
  statusText: "",
  headers: [],
  body,
});
const capabilities = { decodes: [], host: true, unixSocket: true, tls: true };
const transportOf = (send: Answer): Transport => ({ name: "fake", capabilities, send });
const check = { path: "/health", interval: 5, timeout: 30, unhealthyThreshold: 1 };

test("a check requests `path` with the fields of `headers`, and fails if the response lacks the text of `body`", async () => {
  const asked: UpstreamRequest[] = [];
  let text = "all is well";
  const changes: string[] = [];
  const target = balance(["http://a.test/base"], {
    onStateChange: ({ state, reason }) => void changes.push(`${state}: ${reason}`),
    check: { ...check, body: "well", headers: { "x-check": "1" }, healthyThreshold: 1 },
  });
  const transport = transportOf(async (request) => {
    asked.push(request);
    return respond(200, new BytesBody(new TextEncoder().encode(text)));
  });
  createProxy({ target, transport });
  await until(() => asked.length > 1, "two checks");
  expect(asked[0]).toMatchObject({ path: "/base/health", headers: ["x-check", "1"] });
  expect(statesOf(target)).toEqual(["up"]);
  text = "ill";
  await until(() => statesOf(target)[0] === "down", "a failed check");
  await until(() => changes.length > 0, "the change");
  expect(changes).toEqual(["down: a check failed: 200 with another body"]);
  text = "well";
  await until(() => statesOf(target)[0] !== "down", "a good check");
  target.close();
});

test("a check that fails because the process has no file descriptor left does not count against the upstream", async () => {
  const target = balance(["http://a.test"], { check });
  let asked = 0;
  const transport = transportOf(() => {
    asked++;
    return Promise.reject(toSocketError({ code: "EMFILE" }, false, false));
  });
  createProxy({ target, transport });
  await until(() => asked > 2, "three checks");
  expect(statesOf(target)).toEqual(["up"]);
  target.close();
});

test("a check whose response body never ends fails after `timeout`", async () => {
  const target = balance(["http://a.test"], { check: { ...check, body: "well" } });
  const reasons: ProxyError[] = [];
  const transport = transportOf(async (_, scope) => {
    let drip: ReturnType<typeof setInterval> | undefined;
    const stream = new ReadableStream<Uint8Array>({
      start(to) {
        drip = setInterval(() => to.enqueue(new Uint8Array(1)), 5);
        scope.onAbort({
          fail(error) {
            reasons.push(error);
            clearInterval(drip);
            to.error(error);
          },
        });
      },
    });
    scope.headersReceived(false);
    return respond(200, new StreamBody(stream));
  });
  createProxy({ target, transport });
  await until(() => statesOf(target)[0] === "down", "a failed check");
  expect(reasons[0]).toMatchObject({ code: "http_response_timeout", status: 504 });
  target.close();
});

test.each<[string, () => boolean]>([
  [
    "throws",
    () => {
      throw new Error("of the app");
    },
  ],
  [
    "returns a promise",
    (() => Promise.reject(new Error("of the app"))) as unknown as () => boolean,
  ],
])("checks fail if `status` %s, and the response bodies are cancelled", async (_, status) => {
  let cancelled = 0;
  const target = balance(["http://a.test"], { check: { ...check, status } });
  const transport = transportOf(async () =>
    respond(200, new StreamBody(new ReadableStream({ cancel: () => void cancelled++ }))),
  );
  createProxy({ target, transport });
  await until(() => statesOf(target)[0] === "down", "a failed check");
  await until(() => cancelled > 0, "the body to be cancelled");
  target.close();
});

test("`close` ends all checks, even running ones, and `start` begins them again", async () => {
  const target = balance(["http://a.test"], { check: { ...check, timeout: 60_000 } });
  let running = 0;
  let most = 0;
  const reasons: ProxyError[] = [];
  const transport = transportOf(
    (_, scope) =>
      new Promise((_resolve, reject) => {
        most = Math.max(most, ++running);
        scope.onAbort({
          fail(error) {
            running--;
            reasons.push(error);
            reject(error);
          },
        });
      }),
  );
  for (let i = 0; i < 3; i++) {
    target.start(transport);
    await until(() => running === 1, "a check");
    target.close();
    expect(running).toBe(0);
  }
  expect(most).toBe(1);
  expect(new Set(reasons.map(({ message }) => message))).toEqual(
    new Set(["the proxy has been closed"]),
  );
});

test("`close` and `start` do not check an upstream again that is being removed", async () => {
  const target = balance(["http://a.test", "http://b.test"], { policy: "first", check });
  const asked: string[] = [];
  const transport = transportOf(async ({ upstream }) => {
    asked.push(upstream.host);
    return respond(200, null);
  });
  const request = { method: "GET", path: "/", headers: [], clientAddress: undefined };
  expect(target.pick(request, [])).toBe("http://a.test");
  void target.remove("http://a.test");
  // One of two proxies with this target is closed, and the other one gets a request.
  target.start(transport);
  target.close();
  target.start(transport);
  await until(() => asked.length > 3, "some checks");
  expect(asked).not.toContain("a.test");
  target.close();
});

test("the option `check` is refused on a runtime where nothing runs between requests", () => {
  const target = balance(["http://a.test"], { check });
  const transport: Transport = {
    name: "workerd",
    capabilities: { ...capabilities, background: false },
    send: async () => respond(200, null),
  };
  expect(() => createProxy({ target, transport })).toThrow(/option `check`: nothing runs between/);
});

test("checks do not keep the process alive", async () => {
  const code = `
    import { createServer } from "node:http";
    import { createProxy } from "./runtimes/node.ts";
    import { balance } from "./src/upstreams/balance.ts";
    let asked = 0;
    const server = createServer((_, res) => { asked++; res.end(); }).listen(0, "127.0.0.1", () => {
      const target = balance(["http://127.0.0.1:" + server.address().port], {
        check: { path: "/health", interval: 5 },
      });
      createProxy({ target });
      const waiting = setInterval(() => {
        if (asked < 2) return;
        clearInterval(waiting);
        server.close();
        server.closeAllConnections();
        server.unref();
        console.log("checked");
      }, 5);
    });`;
  await using program = startProgram("node", ["--input-type=module", "-e", code]);
  await program.ended();
  expect(program.output()).toContain("checked");
  expect(program.code()).toBe(0);
});
