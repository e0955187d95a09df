import { describe, expect, test, vi } from "vitest";
import type { Incoming } from "../../../src/request/incoming.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { Target } from "../../../src/upstreams/upstreams.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import {
  bytes,
  CAPABLE,
  FakeTransport,
  fakeResponse,
  type Given,
  run,
  streamOf,
  TARGET,
} from "../../helpers/fakes.ts";

/** Forwards a request, and returns the request that reaches the upstream. */
async function hopOf(
  incoming: Given<Incoming>,
  options: ProxyOptions = {},
  target?: Target,
): Promise<UpstreamRequest> {
  const transport = new FakeTransport();
  const response = await run(incoming, { options, transport, ...(target && { target }) });
  expect(response.status).toBe(200);
  expect(transport.hops).toHaveLength(1);
  return transport.hops[0] as UpstreamRequest;
}

const FORWARDED = [
  ["X-Forwarded-For", "192.0.2.7"],
  ["X-Forwarded-Proto", "http"],
  ["X-Forwarded-Host", "proxy.test"],
  ["X-Forwarded-Port", "80"],
].flat();

test("the steps of an exchange run in their documented order", async () => {
  const steps: string[] = [];
  const step = (name: string): undefined => void steps.push(name);
  const transport = new FakeTransport(() => {
    step("send");
    return fakeResponse();
  });
  const options: ProxyOptions = {
    clientAddress: () => step("clientAddress"),
    trustProxy: () => Boolean(step("trustProxy")),
    stripPrefix: "/api",
    pathRewrite: (path) => {
      step(`pathRewrite ${path}`);
      return path;
    },
    onRequest: (draft) => step(`onRequest ${draft.path}`),
    onResponse: () => step("onResponse"),
    onError: () => step("onError"),
  };
  const target = (): string => {
    step("target");
    return `${TARGET}/base`;
  };
  await run({ path: "/api/a" }, { options, target, transport });
  expect(steps).toEqual([
    "target",
    "pathRewrite /a",
    "clientAddress",
    "trustProxy",
    "onRequest /base/a",
    "send",
    "onResponse",
  ]);
});

describe("the request that is sent", () => {
  test("has the client's fields without the hop-by-hop fields, followed by the proxy's fields", async () => {
    const headers = [
      "Host",
      "proxy.test",
      "X-B",
      "1",
      "Connection",
      "x-c",
      "X-C",
      "2",
      "x-b",
      "3",
      "X_Forwarded_For",
      "6.6.6.6",
    ];
    const hop = await hopOf({ method: "PATCH", path: "//a%2F?b", headers });
    expect(hop).toMatchObject({ method: "PATCH", path: "//a%2F?b", host: undefined, body: null });
    expect(hop.upstream.origin).toBe(TARGET);
    expect(hop.headers).toEqual(["X-B", "1", "x-b", "3", ...FORWARDED]);
  });

  test("`headers` replaces fields of the client and of the proxy, and null deletes them", async () => {
    const headers = ["x-a", "client", "X_A", "client", "cookie", "c"];
    const hop = await hopOf(
      { headers },
      { headers: { "X-A": "ours", Cookie: null, "x-forwarded-for": "9.9.9.9" } },
    );
    const added = ["X-A", "ours", "x-forwarded-for", "9.9.9.9"];
    expect(hop.headers).toEqual([...FORWARDED.slice(2), ...added]);
  });

  test("a field that the proxy adds is not removed if the client's Connection names it", async () => {
    const headers = ["Connection", "x-forwarded-for, x-a", "X-Forwarded-For", "6.6.6.6"];
    const hop = await hopOf({ headers }, { headers: { "x-a": "1" } });
    expect(hop.headers.slice(0, 2)).toEqual(["X-Forwarded-For", "192.0.2.7"]);
    expect(hop.headers.slice(-2)).toEqual(["x-a", "1"]);
  });

  test.each<[ProxyOptions, string | undefined]>([
    [{}, undefined],
    [{ changeOrigin: false }, "proxy.test"],
    [{ host: "other.test" }, "other.test"],
    [{ changeOrigin: false, host: "other.test" }, "other.test"],
  ])("the options %j make Host %s", async (options, host) => {
    expect((await hopOf({}, options)).host).toBe(host);
  });

  test("the authority of the URL replaces a missing Host, as in HTTP/2", async () => {
    const hop = await hopOf({ headers: [], authority: "two.test" }, { changeOrigin: false });
    expect(hop.host).toBe("two.test");
    expect(hop.headers).toEqual(expect.arrayContaining(["X-Forwarded-Host", "two.test"]));
  });

  test("whether the peer is trusted depends on the address of its connection, not on header fields or `clientAddress`", async () => {
    const trustProxy = (address: string): boolean => address === "10.0.0.1";
    const headers = ["X-Forwarded-For", "6.6.6.6", "X-Real-IP", "10.0.0.1"];
    const clientAddress = (): string => "10.0.0.1";
    expect((await hopOf({ headers }, { trustProxy })).headers).not.toContain("6.6.6.6");
    expect((await hopOf({ headers, address: "10.0.0.1" }, { trustProxy })).headers).toContain(
      "6.6.6.6, 10.0.0.1",
    );
    expect((await hopOf({ headers }, { trustProxy, clientAddress })).headers).not.toContain(
      "6.6.6.6, 10.0.0.1",
    );
  });

  test("clientAddress receives the request and the server's context", async () => {
    const clientAddress = vi.fn(() => "203.0.113.9");
    const context = { remote: 1 };
    const transport = new FakeTransport();
    await run({}, { options: { clientAddress }, transport, context });
    expect(clientAddress).toHaveBeenCalledExactlyOnceWith(expect.any(Request), context);
    expect(transport.hops[0]?.headers.slice(0, 2)).toEqual(["X-Forwarded-For", "203.0.113.9"]);
  });

  test("has the pseudonym of `via` in Via", async () => {
    const { headers } = await hopOf({ headers: ["Via", "1.0 a"] }, { via: "edge" });
    expect(headers.slice(-2)).toEqual(["Via", "1.0 a, 1.1 edge"]);
  });
});

describe("the body of a request", () => {
  test.each([
    [["Content-Length", "3"], 3],
    [["Transfer-Encoding", "chunked"], undefined],
    [[], undefined],
  ])(
    "is forwarded as the same stream if the request has the fields %j",
    async (headers, contentLength) => {
      const body = streamOf(["abc"]);
      const hop = await hopOf({ method: "POST", headers, body });
      expect(hop).toMatchObject({ contentLength });
      expect(hop.body?.stream()).toBe(body);
      expect(hop.headers).toEqual(FORWARDED);
    },
  );

  test("an absent body has no length, although Content-Length announces one", async () => {
    const hop = await hopOf({ headers: ["Content-Length", "200"] });
    expect(hop).toMatchObject({ body: null, contentLength: undefined });
  });

  test("a body of length 0 counts as no body", async () => {
    const body = streamOf([]);
    const hop = await hopOf({ method: "POST", headers: ["Content-Length", "0"], body });
    expect(hop).toMatchObject({ body: null, contentLength: undefined });
  });

  test("a body over the limit results in 413, by its announced length or by counting", async () => {
    const transport = new FakeTransport(async (hop) => {
      await new Response(hop.body?.stream()).text();
      return fakeResponse();
    });
    const options = { bodyLimit: 3 };
    const known = { method: "POST", headers: ["Content-Length", "4"], body: streamOf(["abcd"]) };
    expect((await run(known, { options, transport })).status).toBe(413);
    expect(transport.hops).toHaveLength(0);
    const unknown = { method: "POST", headers: [], body: streamOf(["ab", "cd"]) };
    expect((await run(unknown, { options, transport })).status).toBe(413);
    expect(transport.hops).toHaveLength(1);
  });
});

describe("the path of a request", () => {
  test.each<[ProxyOptions, string, string]>([
    [{}, TARGET, "*"],
    [{}, `${TARGET}/base`, "/../a"],
    [{ stripPrefix: "/api" }, TARGET, "/api/../a"],
    [{ pathRewrite: { "^": "/.%2e" } }, TARGET, "/a"],
  ])(
    "with %j and the target %s, the path %s gets 400, and nothing is sent",
    async (options, target, path) => {
      const transport = new FakeTransport();
      const response = await run({ path }, { options, target, transport });
      expect(response.status).toBe(400);
      expect(await response.text()).toBe("Bad Request: http_request_error\n");
      expect(transport.hops).toHaveLength(0);
    },
  );

  test.each<[NonNullable<ProxyOptions["pathRewrite"]>, string, string]>([
    [{ "^/api": "" }, "/api", "/"],
    [{ "^/api": "" }, "/api?x=1", "/?x=1"],
    [{ "^/api/": "" }, "/api/a", "/a"],
    [() => "", "/a", "/"],
    [() => "relative", "/a", "/relative"],
    [async () => "http://evil.test/", "/a", "/http://evil.test/"],
    [() => undefined, "/a?b", "/a?b"],
    [async () => {}, "/a?b", "/a?b"],
  ])("pathRewrite %o rewrites %s to %s", async (pathRewrite, path, expected) => {
    const hop = await hopOf({ path }, { pathRewrite });
    expect(hop).toMatchObject({ path: expected, upstream: { host: "up.test:4000" } });
  });

  test("a pathRewrite that returns neither text nor undefined rejects the call, and the error names the option", async () => {
    const options = { pathRewrite: () => 1 as never };
    await expect(run({ path: "/a" }, { options })).rejects.toThrow(/bad option `pathRewrite`/);
  });

  test.each(["//evil.test/a", "/\\evil.test", "/@evil.test", "/a?http://evil.test"])(
    "the path %s is sent to the target, and to no other host",
    async (path) => {
      expect(await hopOf({ path })).toMatchObject({ path, upstream: { host: "up.test:4000" } });
    },
  );
});

test("a target function gets the request, and may return a promise", async () => {
  const target = vi.fn(
    async (request: Request) => `http://${new URL(request.url).pathname.slice(1)}.test`,
  );
  const hop = await hopOf({ path: "/a", body: bytes("") }, {}, target);
  expect(hop.upstream.host).toBe("a.test");
});

test("a call rejects with a TypeError for a bad target, and for a Unix socket that the transport does not support", async () => {
  const transport = new FakeTransport();
  transport.capabilities = { ...CAPABLE, unixSocket: false };
  await expect(run({}, { target: "unix:/run/a", transport })).rejects.toThrow(TypeError);
  await expect(run({}, { target: "nowhere" })).rejects.toThrow(TypeError);
  await expect(run({}, { target: () => "nowhere" })).rejects.toThrow(
    /^fetchway: bad target "nowhere"/,
  );
});

test("an invalid request URL is reported as the client's error, not the target function's", async () => {
  const request = (url: string) => (): Request =>
    Object.defineProperty(new Request(TARGET), "url", { value: url });
  const target = ({ url }: Request): string => `http://${new URL(url).pathname.slice(1)}.test`;
  const transport = new FakeTransport();
  const bad = await run({ request: request("http://a b/x") }, { target, transport });
  expect(bad.status).toBe(400);
  expect(transport.hops).toHaveLength(0);
});
