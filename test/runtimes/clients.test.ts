/** Other HTTP clients in place of Fetchway's own, used as docs/clients.md describes. */
import { Readable } from "node:stream";
import { Agent, fetch as fetchByUndici, request as requestByUndici } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, ProxyError, type ProxyOptions, type Transport } from "#fetchway";
import { StreamBody } from "../../src/body/stream.ts";
import type { Interceptor } from "../../src/transport/port.ts";
import { startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";
import { within } from "../helpers/wait.ts";

const upstream = new Upstream();
const dispatcher = new Agent({ connections: 5 });
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(async () => {
  await dispatcher.destroy();
  await upstream.stop();
});

/** A short custom transport that sends through undici. It does not convert errors. */
const own: Transport = {
  name: "own",
  capabilities: { decodes: [], host: true, unixSocket: false, tls: false },
  async send({ upstream: { origin, host: authority }, method, path, headers, host, body }, scope) {
    const controller = new AbortController();
    scope.onAbort({ fail: (error) => controller.abort(error) });
    const sent = body?.whole() ?? body?.stream() ?? null;
    const response = await requestByUndici(origin + path, {
      dispatcher,
      method: method as "GET",
      headers: [...headers, "host", host ?? authority],
      body: sent instanceof ReadableStream ? Readable.fromWeb(sent as never) : sent,
      signal: controller.signal,
    });
    const { statusCode: status, headers: fields } = response;
    scope.headersReceived(false);
    response.body.once("close", () => scope.end());
    return {
      status,
      statusText: "",
      headers: Object.entries(fields).flatMap(([name, value]) =>
        [value].flat().flatMap((each) => [name, String(each)]),
      ),
      body: new StreamBody(Readable.toWeb(response.body) as ReadableStream<Uint8Array>),
    };
  },
};

const ways: Record<string, ProxyOptions> = {
  "the runtime's fetch": { fetch: globalThis.fetch },
  "undici's fetch": {
    fetch: async (url, init) =>
      (await fetchByUndici(url, { ...init, dispatcher } as never)) as unknown as Response,
  },
  "the app's own transport": { transport: own },
};

const setHost: Interceptor = (next) => (request, scope) =>
  next({ ...request, host: "shop.example" }, scope);

describe.each(Object.entries(ways))("a proxy that sends through %s", (name, options) => {
  test("forwards requests and responses, and does not reject on network failures", async () => {
    const proxy = createProxy({ target: `${upstream.url}/base`, ...options });
    const make = (path: string, init?: RequestInit & { duplex?: "half" }): Request =>
      new Request(`http://proxy.test${path}`, init);
    upstream.script = async (call) => {
      await call.done;
      call.reply(201, [["X-Id", "7"]], `${call.method} ${call.target} ${call.text}`);
    };
    const answer = await proxy.fetch(make("/a?b"));
    expect([answer.status, answer.headers.get("x-id")]).toEqual([201, "7"]);
    expect(await answer.text()).toBe("GET /base/a?b ");
    const body = new Blob(["streamed"]).stream();
    const posted = await proxy.fetch(
      make("/p", {
        method: "POST",
        body,
        duplex: "half",
      }),
    );
    expect(await posted.text()).toBe("POST /base/p streamed");
    upstream.script = (call) => call.reset();
    const failed = await proxy.fetch(make("/f", { method: "POST", body: "x" }));
    // A custom transport must convert its own errors: an error that is not a ProxyError counts as an internal error.
    expect(failed.status).toBe(name.includes("own") ? 500 : 502);
    expect(failed.headers.get("proxy-status")).toMatch(/^fetchway; error=/);
  });

  test.each<[what: string, hooks: ProxyOptions]>([
    ["onRequest", { onRequest: ({ headers }) => headers.set("host", "shop.example") }],
    ["an interceptor", { interceptors: { request: [setHost] } }],
  ])("sends the Host that %s sets, or refuses it if it is a fetch", async (_, hooks) => {
    const proxy = createProxy({ target: upstream.url, ...options, ...hooks });
    const cancelled = Promise.withResolvers<void>();
    const isSent = name.includes("own");
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new Uint8Array(1));
        if (isSent) controller.close();
      },
      cancel: () => cancelled.resolve(),
    });
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    const asked = proxy.fetch(new Request("http://proxy.test/", init));
    if (isSent) {
      expect((await asked).status).toBe(200);
      expect(upstream.calls[0]?.all("host")).toEqual(["shop.example"]);
      return;
    }
    await expect(asked).rejects.toThrow(/`onRequest` or `interceptors`: .* cannot set Host; leave/);
    expect(upstream.calls).toEqual([]);
    await within(cancelled.promise, "the end of the body");
  });

  test("closes the upstream request when the client disconnects", async () => {
    const proxy = createProxy({ target: upstream.url, ...options });
    upstream.script = () => {};
    const leaving = new AbortController();
    const answer = proxy.fetch(new Request("http://proxy.test/", { signal: leaving.signal }));
    const call = await upstream.call();
    leaving.abort();
    expect((await answer).status).toBe(499);
    await within(call.link.closed, "the upstream's connection closed");
  });
});

test("a ProxyError that a custom transport throws becomes the gateway response for the error's code", async () => {
  const transport: Transport = {
    ...own,
    send: () => Promise.reject(new ProxyError("dns_error")),
  };
  const proxy = createProxy({ target: upstream.url, transport });
  const answer = await proxy.fetch(new Request("http://proxy.test/"));
  expect(answer.headers.get("proxy-status")).toBe("fetchway; error=dns_error");
});

test.each(
  ["bun", "deno"].flatMap((tool) => [
    [tool, `fetchway/${tool}`, `fetch: globalThis.fetch`] as const,
    [tool, "fetchway/fetch", ""] as const,
  ]),
)(
  "on %s, a proxy from %s sends its requests through the runtime's fetch, and fetchway/fetch sends no X-Forwarded-For",
  async (tool, path, option) => {
    const { href } = new URL(`../../runtimes/${path.replace("fetchway/", "")}.ts`, import.meta.url);
    await using program = startProgram(tool, [
      tool === "bun" ? "-e" : "eval",
      `import { createProxy } from ${JSON.stringify(href)};
    const proxy = createProxy({ target: "${upstream.url}", ${option} });
    const server = { requestIP: () => ({ address: "192.0.2.1" }), remoteAddr: { hostname: "192.0.2.1" } };
    const request = new Request("http://a.test/b", { method: "POST", body: "c" });
    const response = await proxy.fetch(request, server);
    console.log("answer:", response.status, await response.text());`,
    ]);
    await program.printed(/^answer: 200 c$/m);
    expect(upstream.calls.map(({ method, target }) => `${method} ${target}`)).toEqual(["POST /b"]);
    const address = path === "fetchway/fetch" ? undefined : "192.0.2.1";
    expect(upstream.calls[0]?.get("x-forwarded-for")).toBe(address);
  },
);
