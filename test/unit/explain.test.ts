/** `proxy.explain`: how a request would be forwarded, without sending it. */
import { describe, expect, test, vi } from "vitest";
import { createProxy, type CreateProxyOptions, type Explanation, ProxyError } from "#fetchway";
import { mirrorTo } from "#fetchway/mirror";
import { balance } from "#fetchway/upstreams";

/** A target on which no server listens, so that a request that is sent fails. */
const TARGET = "http://127.0.0.1:1";

function explain(
  options: Partial<CreateProxyOptions>,
  request = new Request("http://shop.example/api/x?a"),
): Promise<Explanation> {
  return createProxy({ target: TARGET, ...options }).explain(request);
}

/** Returns the rows as lines with their reasons. */
function linesOf(rows: Explanation["fields"]): string[] {
  return rows.map(({ name, value, option, reason }) =>
    [`${name}: ${value}`, ...(option === undefined ? [] : [option]), reason].join(" | "),
  );
}

test("`explain` gives a reason for each step and each field, and the fields in the order on the wire", async () => {
  const { request, response, error, path, fields, dropped } = await explain(
    {
      target: `${TARGET}/v1?key=1`,
      stripPrefix: "/api",
      headers: { "x-set": "1" },
      filterHeaders: ["cookie"],
      onRequest: (draft) => draft.headers.set("x-hook", "1"),
    },
    new Request("http://shop.example/api/x?a", { headers: { cookie: "a=b", accept: "*/*" } }),
  );
  expect([response, error]).toEqual([undefined, undefined]);
  expect(request?.path).toBe("/v1/x?key=1&a");
  expect(path).toEqual(["stripPrefix", "the target's path or query in front"]);
  const lines = linesOf(fields);
  expect(lines[0]).toBe("Host: 127.0.0.1:1 | the target's (changeOrigin, RFC 9110 §7.2)");
  expect(lines).toContain("accept: */* | the client's");
  expect(lines).toContain("x-set: 1 | headers | set");
  expect(lines).toContain("x-hook: 1 | onRequest | set");
  expect(lines.at(-1)).toMatch(/^Connection: keep-alive \|/);
  expect(linesOf(dropped)).toEqual(["cookie: a=b | filterHeaders | dropped"]);
});

test("with the option `fetch`, `explain` leaves out framing fields, because the app's `fetch` writes them", async () => {
  const fetch = vi.fn<typeof globalThis.fetch>();
  const { fields } = await explain({ fetch });
  expect(fields.map(({ name }) => name.toLowerCase())).not.toContain("connection");
  expect(fetch).not.toHaveBeenCalled();
});

test("`explain` applies the options of the pool: with `keepAlive: false`, Connection is close", async () => {
  const { fields } = await explain({ pool: { keepAlive: false } });
  expect(fields.at(-1)).toMatchObject({ name: "Connection", value: "close" });
});

test("`explain` runs the hooks and interceptors of the request, but not the hooks of the response", async () => {
  const order: string[] = [];
  const after = vi.fn();
  const note =
    (name: string): NonNullable<NonNullable<CreateProxyOptions["interceptors"]>["request"]>[0] =>
    (next) =>
    (request, scope) => {
      order.push(name);
      return next({ ...request, headers: [...request.headers, `x-${name}`, "1"] }, scope);
    };
  const { fields } = await explain({
    onRequest: () => void order.push("onRequest"),
    interceptors: { request: [note("request")], attempt: [note("attempt")] },
    onResponse: after,
    onRequestEnd: after,
    mirror: mirrorTo(TARGET),
  });
  expect(order).toEqual(["onRequest", "request", "attempt"]);
  expect(linesOf(fields)).toEqual(
    expect.arrayContaining([
      "x-request: 1 | onRequest or interceptors | set",
      "x-attempt: 1 | onRequest or interceptors | set",
    ]),
  );
  expect(after).not.toHaveBeenCalled();
});

test("`explain` cancels the request's body, and refuses a body over `bodyLimit`", async () => {
  const cancel = vi.fn();
  const body = new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(9)), cancel });
  const init = { method: "POST", body, duplex: "half" };
  await explain({}, new Request("http://shop.example/", init));
  await vi.waitFor(() => expect(cancel).toHaveBeenCalled());

  const long = new Request("http://shop.example/", {
    method: "POST",
    body: "12345",
    headers: { "content-length": "5" },
  });
  const { request, response, error } = await explain({ bodyLimit: 4 }, long);
  expect([request, response?.status]).toEqual([undefined, 413]);
  expect(error).toBeInstanceOf(ProxyError);
});

describe("for a request that would not be sent, `explain` returns", () => {
  test("the response of the proxy, and the error behind it", async () => {
    const { request, response, error, fields } = await explain(
      { target: `${TARGET}/base` },
      new Request("http://shop.example/%2e%2e%2fx"),
    );
    expect([request, response?.status, fields]).toEqual([undefined, 400, []]);
    expect(error).toMatchObject({ code: "http_request_error" });
  });

  test("the response of a hook, and no error", async () => {
    const { response, error } = await explain({
      onRequest: () => new Response("no", { status: 401 }),
    });
    expect([response?.status, await response?.text(), error]).toEqual([401, "no", undefined]);
  });

  test("the response that `onError` makes of the exception of a hook, and that exception", async () => {
    const thrown = new Error("a bug");
    const { response, error } = await explain({
      onRequest() {
        throw thrown;
      },
      onError: () => new Response(null, { status: 500 }),
    });
    expect([response?.status, error]).toEqual([500, thrown]);
  });
});

test("`explain` rejects for misuse, and with what a hook has thrown if there is no `onError`", async () => {
  await expect(explain({ target: () => "nonsense" })).rejects.toThrow(TypeError);
  const thrown = new Error("a bug");
  const onRequest = (): never => {
    throw thrown;
  };
  await expect(explain({ onRequest })).rejects.toBe(thrown);
});

test("`explain` explains an upgrade as if a server had handed it over", async () => {
  const request = new Request("http://shop.example/chat", {
    headers: { connection: "Upgrade", upgrade: "websocket" },
  });
  const { fields } = await explain({}, request);
  expect(linesOf(fields)).toContain("Upgrade: websocket | tunnelled (upgrades, RFC 9110 §7.8)");
});

test("`explain` shows an Upgrade that Connection does not name as dropped", async () => {
  const headers = { upgrade: "websocket" };
  const { fields, dropped } = await explain({}, new Request("http://shop.example/", { headers }));
  expect(linesOf(fields).filter((line) => line.startsWith("Upgrade"))).toEqual([]);
  expect(dropped.map(({ name }) => name)).toEqual(["upgrade"]);
});

test("`explain` picks one of several upstreams, and does not count the request there", async () => {
  const target = balance([TARGET, "http://127.0.0.1:2"]);
  const proxy = createProxy({ target });
  const { request } = await proxy.explain(new Request("http://shop.example/"));
  expect(request?.upstream.origin).toMatch(/^http:\/\/127\.0\.0\.1:[12]$/);
  const counts = proxy.stats()?.upstreams?.map(({ active, requests }) => [active, requests]);
  expect(counts).toEqual([
    [0, 0],
    [0, 0],
  ]);
  await proxy.close();
});
