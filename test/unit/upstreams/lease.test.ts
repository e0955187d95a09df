/** How often a request is counted in the statistics of the picked upstream: once each time that it is sent there. */
import { expect, test } from "vitest";
import { createProxy, type CreateProxyOptions } from "#fetchway";
import { type Interceptor, parseTarget } from "#fetchway/transport";
import { balance } from "#fetchway/upstreams";

type Options = Partial<CreateProxyOptions>;

/**
 * Sends one request to a target of two upstreams.
 * @returns the URLs of all requests that were sent, and the number of requests that were counted at the upstreams
 */
async function send(options: Options, answer = () => new Response()): Promise<[string[], number]> {
  const urls: string[] = [];
  const target = balance(["http://a.test", "http://b.test"]);
  const fetch = (url: string | URL | Request): Promise<Response> => {
    urls.push(url instanceof Request ? url.url : String(url));
    return Promise.resolve(answer());
  };
  const proxy = createProxy({ target, fetch, ...options });
  await (await proxy.fetch(new Request("http://proxy.test/x"))).text();
  const states = target.states();
  expect(states.map(({ active }) => active)).toEqual([0, 0]);
  return [urls, states.reduce((sum, { requests }) => sum + requests, 0)];
}

test("a request that is sent once counts once at the picked upstream", async () => {
  const [urls, requests] = await send({});
  expect([urls.length, requests]).toEqual([1, 1]);
});

test("a request that an interceptor sends to another upstream does not count at the picked one", async () => {
  const elsewhere: Interceptor = (next) => (request, scope) =>
    next({ ...request, upstream: parseTarget("http://c.test") }, scope);
  expect(await send({ interceptors: { request: [elsewhere] } })).toEqual([["http://c.test/x"], 0]);
});

test("a request that an interceptor sends twice counts twice, or once if the interceptor sends it elsewhere first", async () => {
  const twice: Interceptor = (next) => async (request, scope) => {
    (await next(request, scope)).body?.cancel();
    return next(request, scope.again());
  };
  const [urls, requests] = await send({ interceptors: { request: [twice] } });
  expect([urls.length, requests]).toEqual([2, 2]);

  const back: Interceptor = (next) => async (request, scope) => {
    (await next({ ...request, upstream: parseTarget("http://c.test") }, scope)).body?.cancel();
    return next(request, scope.again());
  };
  const [[first, second], counted] = await send({ interceptors: { request: [back] } });
  expect(first).toBe("http://c.test/x");
  expect(second).toMatch(/^http:\/\/[ab]\.test\/x$/);
  expect(counted).toBe(1);
});

test("a request that an interceptor sends twice counts three times if `retry` repeats it once", async () => {
  const twice: Interceptor = (next) => async (request, scope) => {
    (await next(request, scope)).body?.cancel();
    return next(request, scope.again());
  };
  const statuses = [503, 200, 200];
  const [urls, requests] = await send(
    { retry: { attempts: 1, statusCodes: [503] }, interceptors: { request: [twice] } },
    () => new Response("x", { status: statuses.shift() ?? 500 }),
  );
  expect([urls.length, requests]).toEqual([3, 3]);
});

test("a followed redirect picks no upstream, and does not count", async () => {
  const answers = [
    new Response(null, { status: 302, headers: { location: "/y" } }),
    new Response("y"),
  ];
  const [urls, requests] = await send({ followRedirects: true }, () => answers.shift() as Response);
  expect(urls.map((url) => new URL(url).pathname)).toEqual(["/x", "/y"]);
  expect(requests).toBe(1);
});
