/** The fallback interceptor of docs/hooks.md with real servers: a deadline for the first attempt, and a second upstream. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { type Interceptor, parseTarget, ProxyError } from "../../../src/transport.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";

const [first, second] = [new Upstream(), new Upstream()];
beforeAll(async () => {
  await Promise.all([first.listen(), second.listen()]);
});
afterEach(async () => {
  await Promise.all([first.reset(), second.reset()]);
});
afterAll(async () => {
  await Promise.all([first.stop(), second.stop()]);
});

const fallback =
  (deadline: number): Interceptor =>
  (next) =>
  async (request, scope) => {
    const late = new ProxyError("http_response_timeout");
    const timer = setTimeout(() => scope.abort(late), deadline);
    try {
      return await next(request, scope);
    } catch (error) {
      if (!(error instanceof ProxyError) || request.body !== null) throw error;
      return await next({ ...request, upstream: parseTarget(second.url) }, scope.again());
    } finally {
      clearTimeout(timer);
    }
  };

/** @param deadline the deadline in milliseconds; by default, no test waits for it */
const start = (deadline = 20_000): ReturnType<typeof createProxy> =>
  createProxy({ target: first.url, retry: false, interceptors: { request: [fallback(deadline)] } });

test.each(["is late", "breaks off"])(
  "an interceptor sends the request to another upstream when the first one %s",
  async (how) => {
    const proxy = start(how === "is late" ? 200 : undefined);
    first.script = (call) => (how === "is late" ? undefined : call.reset());
    second.script = (call) => call.reply(200, [], `the other: ${call.target}`);
    const response = await proxy.fetch(new Request("http://proxy.test/a?b"));
    expect(await response.text()).toBe("the other: /a?b");
    // The first attempt must have ended: its connection is closed.
    await until(
      () => first.links.every(({ isClosed }) => isClosed),
      "the first connection to close",
    );
    await proxy.close();
  },
);

test.each([
  ["Content-Length", "9"],
  ["content-length", "4"],
  ["Transfer-Encoding", "chunked"],
  ["host", "other.test"],
])(
  "CVE-2026-1525: a request to which an interceptor adds %s: %s is not sent",
  async (name, value) => {
    for (const where of ["request", "attempt"] as const) {
      const adding: Interceptor = (next) => (request, scope) =>
        next({ ...request, headers: [...request.headers, name, value] }, scope);
      const proxy = createProxy({
        target: first.url,
        interceptors: { [where]: [adding] },
        onError: (error) => new Response(String(error.cause), { status: 500 }),
      });
      const sent = new Request("http://proxy.test/", { method: "POST", body: "body" });
      const response = await proxy.fetch(sent);
      expect(await response.text()).toContain(
        "leave Content-Length, Transfer-Encoding and Host to the proxy",
      );
      expect(first.links).toEqual([]);
      await proxy.close();
    }
  },
);

test("an interceptor does not send the request of a disconnected client to another upstream", async () => {
  const proxy = start();
  const leaving = new AbortController();
  first.script = () => leaving.abort();
  const answer = proxy.fetch(new Request("http://proxy.test/", { signal: leaving.signal }));
  expect((await answer).status).toBe(499);
  expect(second.calls).toEqual([]);
  await proxy.close();
});
