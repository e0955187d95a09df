import { expect, test, vi } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import { badOption } from "../../../src/misuse.ts";
import { convertErrors, sendThrough } from "../../../src/exchange/send.ts";
import type { Send } from "../../../src/transport/scope.ts";
import {
  errorOf,
  fakeRequest,
  fakeScope,
  fakeResponse,
  FakeTransport,
  proxyError,
} from "../../helpers/fakes.ts";

test("sendThrough sends the request unchanged, to an app or over the network", async () => {
  const [network, inProcess] = [new FakeTransport(), new FakeTransport()];
  const [request, scope] = [fakeRequest(), fakeScope()];
  const send = sendThrough(network, inProcess);
  await send(request, scope);
  expect(network.hops[0]).toBe(request);
  expect(network.scopes[0]).toBe(scope);
  expect(inProcess.hops).toEqual([]);
  const app = { fetch: () => new Response() };
  await send(fakeRequest({ upstream: { ...request.upstream, app } }), scope);
  expect([network.hops.length, inProcess.hops.length]).toEqual([1, 1]);
});

test("convertErrors converts every error except misuse into a ProxyError", async () => {
  const converted = (error: unknown): Promise<unknown> => {
    const send = convertErrors(vi.fn<Send>().mockRejectedValue(error));
    return errorOf(() => send(fakeRequest(), fakeScope()));
  };
  const known = new ProxyError("dns_error");
  expect(await converted(known)).toBe(known);
  const misuse = badOption("fetch", "use a function");
  expect(await converted(misuse)).toBe(misuse);
  for (const thrown of [new TypeError("oops"), "oops", undefined, null]) {
    expect(await converted(thrown)).toEqual(proxyError("proxy_internal_error", 500));
  }
  const response = fakeResponse();
  expect(await convertErrors(async () => response)(fakeRequest(), fakeScope())).toBe(response);
});

test("convertErrors accepts a transport that throws, or returns no promise", async () => {
  const throwing = convertErrors(() => {
    throw new TypeError("oops");
  });
  // `send` must return a promise; `errorOf` would also accept an exception.
  const sent = throwing(fakeRequest(), fakeScope());
  await expect(sent).rejects.toEqual(proxyError("proxy_internal_error", 500));
  const response = fakeResponse();
  const direct = convertErrors((() => response) as unknown as Send);
  expect(await direct(fakeRequest(), fakeScope())).toBe(response);
});
