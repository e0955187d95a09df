import { Agent } from "undici";
import { describe, expect, test, vi } from "vitest";
import type { ProxyOptions } from "../../src/options/proxyoptions.ts";
import { compile, type Plan } from "../../src/plan.ts";
import type { Interceptor, Transport } from "../../src/transport/port.ts";
import { createTransport } from "../../runtimes/node.ts";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { CAPABLE, fakeRequest, fakeResponse, fakeScope, FakeTransport } from "../helpers/fakes.ts";

const plan = (options: ProxyOptions): Plan => compile(options, () => new FakeTransport());

describe("the transport of a plan", () => {
  test("is the runtime's own by default", () => {
    const transport = new FakeTransport();
    const transportFor = vi.fn(() => transport);
    expect(compile({ connectTimeout: 5 }, transportFor).transport).toBe(transport);
    expect(transportFor).toHaveBeenCalledOnce();
  });

  test("is the option `transport`, or is created from the option `fetch`", () => {
    const transportFor = vi.fn(() => new FakeTransport());
    const transport = new FakeTransport();
    expect(compile({ transport }, transportFor).transport).toBe(transport);
    expect(compile({ fetch: () => new Response() }, transportFor).transport.name).toBe("fetch");
    expect(transportFor).not.toHaveBeenCalled();
  });

  test("must be able to set Host if an option needs it", () => {
    const transport = new FakeTransport();
    transport.capabilities = { ...CAPABLE, host: false };
    expect(() => compile({ changeOrigin: true }, () => transport)).not.toThrow();
    for (const [options, name] of [
      [{ changeOrigin: false }, "changeOrigin: false"],
      [{ host: "a.test" }, "host"],
    ] as const) {
      expect(() => compile(options, () => transport)).toThrow(TypeError);
      expect(() => compile(options, () => transport)).toThrow(
        `fetchway: bad option \`${name}\`: the fake client cannot set Host; leave it out`,
      );
    }
  });
});

test("a plan without options has the defaults", () => {
  expect(plan({})).toMatchObject({
    added: [],
    kept: undefined,
    overridden: undefined,
    rewrite: undefined,
    forwarded: "x-forwarded",
    keepHost: false,
    timeout: 60_000,
    idleTimeout: 300_000,
  });
  expect(plan({ timeout: 0, idleTimeout: 1 })).toMatchObject({ timeout: 0, idleTimeout: 1 });
  expect(plan({ changeOrigin: false }).keepHost).toBe(true);
});

describe("the steps that sending takes", () => {
  const pass: Interceptor = (next) => (request, scope) => next(request, scope);
  /** Returns whether the transport gets the same request object, and the caller gets the transport's own promise. */
  function isDirect(options: ProxyOptions): boolean {
    const transport = new FakeTransport();
    const sends = vi.spyOn(transport, "send");
    const request = fakeRequest();
    const sent = compile(options, () => transport).send(request, fakeScope());
    return sends.mock.lastCall?.[0] === request && sends.mock.results[0]?.value === sent;
  }

  test("without retries, redirects and interceptors, the transport's own promise is returned", () => {
    expect(isDirect({ retry: false })).toBe(true);
    expect(isDirect({ retry: false, interceptors: { request: [], attempt: [] } })).toBe(true);
    expect(isDirect({ retry: false, followRedirects: false, replayLimit: 5 })).toBe(true);
  });

  test("the errors of transports of this package need no conversion, unless the app passes a dispatcher", () => {
    const isSentDirectly = (transport: Transport): boolean => {
      const answer = Promise.resolve(fakeResponse());
      vi.spyOn(transport, "send").mockReturnValue(answer);
      const { send } = compile({ transport, retry: false }, () => transport);
      return send(fakeRequest(), fakeScope()) === answer;
    };
    expect(isSentDirectly(createTransport())).toBe(true);
    expect(isSentDirectly(createUndiciTransport())).toBe(true);
    expect(isSentDirectly(createUndiciTransport(new Agent()))).toBe(false);
    expect(isSentDirectly(new FakeTransport())).toBe(false);
    const send = (): Promise<never> => Promise.reject(new Error("the app's"));
    expect(isSentDirectly({ ...createTransport(), send })).toBe(false);
  });

  test.each<ProxyOptions>([
    {},
    { retry: false, followRedirects: true },
    { retry: false, interceptors: { request: [pass] } },
    { retry: false, interceptors: { attempt: [pass] } },
  ])("the options %o add a step", (options) => {
    expect(isDirect(options)).toBe(false);
  });
});

test("idleTimeout is off for transports that pass bodies through, unless it is set", () => {
  const transport = Object.assign(new FakeTransport(), { handsBodiesThrough: true });
  expect(compile({}, () => transport).idleTimeout).toBe(0);
  expect(compile({ idleTimeout: 5 }, () => transport).idleTimeout).toBe(5);
});

test.each([
  [true, "x-forwarded"],
  ["forwarded", "forwarded"],
  [false, "none"],
] as const)("the option xfwd: %s compiles to %s", (xfwd, forwarded) => {
  expect(plan({ xfwd }).forwarded).toBe(forwarded);
});

test("trustProxy compiles to a predicate, and false compiles to undefined", () => {
  expect(plan({}).trusts).toBeUndefined();
  expect(plan({ trustProxy: false }).trusts).toBeUndefined();
  expect(plan({ trustProxy: ["10.0.0.0/8"] }).trusts?.("10.0.0.1")).toBe(true);
});

describe("clientAddress", () => {
  const addressFor = (returned: unknown): string | undefined =>
    plan({ clientAddress: () => returned as string }).clientAddress?.(
      new Request("http://a.test"),
      1,
    );

  test.each(["192.0.2.7", "192.0.2.7:80", "2001:db8::1", "[::1]:80", "unknown", "_hidden"])(
    "may return %s",
    (address) => {
      expect(addressFor(address)).toBe(address);
    },
  );

  test.each(["192.0.2.7, 10.0.0.1", "", "a b", 'a"', "a;b", "a\r\nb", null, undefined, 5])(
    "gives no address if it returns %j",
    (address) => {
      expect(addressFor(address)).toBeUndefined();
    },
  );

  test("drops the prefix `::ffff:` of an IPv4 address that is written as IPv6", () => {
    expect(addressFor("::ffff:192.0.2.7")).toBe("192.0.2.7");
  });

  test("is undefined by default", () => {
    expect(plan({}).clientAddress).toBeUndefined();
  });
});

test("`via` is also the name of this proxy in Forwarded, if it is a valid identifier there", () => {
  expect(plan({}).by).toBeUndefined();
  expect(plan({ via: "edge-1.example" }).by).toBe("edge-1.example");
  expect(plan({ via: "edge!" }).by).toBeUndefined();
});

describe("field names", () => {
  const options: ProxyOptions = {
    headers: { "X-Set": "1", "x-deleted": null },
    filterHeaders: ["Cookie", "via"],
    forwardHeaders: ["x-forwarded-for", "proxy-authorization", "cookie"],
  };

  test("fields that are set, deleted or filtered are dropped from the client's request", () => {
    const { dropped, droppedIfTrusted, added } = plan(options);
    for (const name of ["x-set", "X_SET", "x-deleted", "cookie", "connection", "host"]) {
      expect(dropped.has(name)).toBe(true);
      expect(droppedIfTrusted.has(name)).toBe(true);
    }
    expect(dropped.has("accept")).toBe(false);
    expect(added).toEqual(["X-Set", "1"]);
  });

  test("all plans whose options name no field share their sets of names, because some apps compile a plan per call", () => {
    const [first, second] = [plan({ timeout: 1, xfwd: true }), plan({ timeout: 2, via: "edge" })];
    expect(second.dropped).toBe(first.dropped);
    expect(second.droppedIfTrusted).toBe(first.droppedIfTrusted);
    const named = plan({ headers: { "x-set": "1" } });
    expect(named.dropped.has("x-set")).toBe(true);
    expect([first.dropped.has("x-set"), first.droppedIfTrusted.has("x-set")]).toEqual([
      false,
      false,
    ]);
  });

  test("forwarding fields are dropped only from an untrusted peer's request", () => {
    const { dropped, droppedIfTrusted } = plan({});
    for (const name of ["x-real-ip", "x-forwarded-for", "X_Forwarded_Proto"]) {
      expect(dropped.has(name)).toBe(true);
      expect(droppedIfTrusted.has(name)).toBe(false);
    }
  });

  test.each([
    [true, ["Forwarded"], ["X-Forwarded-For", "X-Real-IP"]],
    ["forwarded", ["X-Forwarded-For", "x_forwarded_host"], ["Forwarded", "X-Real-IP"]],
    [false, [], ["Forwarded", "X-Forwarded-For"]],
  ] as const)(
    "xfwd: %s drops %j even from a trusted peer's request, but not %j",
    (xfwd, gone, left) => {
      const { droppedIfTrusted } = plan({ xfwd });
      for (const name of gone) expect(droppedIfTrusted.has(name)).toBe(true);
      for (const name of left) expect(droppedIfTrusted.has(name)).toBe(false);
    },
  );

  test("a field that both filterHeaders and forwardHeaders name is dropped", () => {
    const { kept } = plan(options);
    expect(kept?.has("x-forwarded-for")).toBe(true);
    expect(kept?.has("Proxy-Authorization")).toBe(true);
    expect(kept?.has("cookie")).toBe(false);
  });

  test("after the proxy has added its own fields, fields are removed only if an option drops or replaces one of those", () => {
    expect(plan({ filterHeaders: ["cookie"], headers: { a: "1" } }).overridden).toBeUndefined();
    expect(plan({ filterHeaders: ["X-Forwarded-Host"] }).overridden?.has("x-forwarded-host")).toBe(
      true,
    );
    expect(plan({ headers: { forwarded: null } }).overridden?.has("Forwarded")).toBe(true);
    expect(plan(options).overridden?.has("via")).toBe(true);
  });
});

describe("rewriting the path", () => {
  const rewrite = async (options: ProxyOptions, path: string): Promise<string | undefined> =>
    plan(options).rewrite?.(path, () => new Request("http://a.test"));

  test.each([
    ["/api/a?b", "/a?b"],
    ["/api", "/"],
    ["/api?a", "/?a"],
    ["/api/", "/"],
    ["/api//evil", "//evil"],
    ["/apis/a", "/apis/a"],
    ["/a/api/b", "/a/api/b"],
    ["/API/a", "/API/a"],
  ])('stripPrefix: "/api" turns %s into %s', async (path, stripped) => {
    expect(await rewrite({ stripPrefix: "/api" }, path)).toBe(stripped);
    expect(await rewrite({ stripPrefix: "/api/" }, path)).toBe(stripped);
  });

  test('stripPrefix: "/" strips nothing', () => {
    expect(plan({ stripPrefix: "/" }).rewrite).toBeUndefined();
  });

  test("the rules of a map in pathRewrite are applied in order, each to the result of the previous one", async () => {
    const pathRewrite = { "^/old/": "/new/", "^/new/(\\d+)": "/item/$1", "\\?.*": "" };
    expect(await rewrite({ pathRewrite }, "/old/7/x?y")).toBe("/item/7/x");
    expect(await rewrite({ pathRewrite }, "/other")).toBe("/other");
  });

  test("pathRewrite is applied after stripPrefix", async () => {
    expect(await rewrite({ stripPrefix: "/api", pathRewrite: { "^/": "/v2/" } }, "/api/a")).toBe(
      "/v2/a",
    );
    const pathRewrite = vi.fn(
      (path: string, request: Request) => `${path}!${new URL(request.url).host}`,
    );
    expect(await rewrite({ stripPrefix: "/api", pathRewrite }, "/api/a")).toBe("/a!a.test");
  });

  test("a function in pathRewrite may return a promise", async () => {
    expect(await rewrite({ pathRewrite: async (path) => `${path}/later` }, "/a")).toBe("/a/later");
  });
});
