import { describe, expect, test, vi } from "vitest";
import type { ProxyError } from "../../../src/error.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import {
  answering,
  bytes,
  fakeResponse,
  FakeTransport,
  proxyError,
  run,
  stale,
  streamOf,
  TARGET,
  to,
} from "../../helpers/fakes.ts";

describe("redirects", () => {
  const options: ProxyOptions = { followRedirects: true, redirectTargets: "any" };

  test("are not followed by default", async () => {
    const transport = answering(to("/next"));
    const response = await run({}, { transport });
    expect(response.status).toBe(302);
    expect(transport.hops).toHaveLength(1);
  });

  test("redirects are followed one after another, and their bodies are cancelled", async () => {
    const cancelled = vi.fn();
    const moved = { ...to("b"), body: streamOf(["moved"], cancelled) };
    const transport = answering(moved, to("c"), { body: bytes("here") });
    const response = await run({ path: "/x/a" }, { transport, options });
    expect(await response.text()).toBe("here");
    expect(transport.hops.map(({ path }) => path)).toEqual(["/x/a", "/x/b", "/x/c"]);
    expect(cancelled).toHaveBeenCalledOnce();
  });

  test("with `followRedirects: true`, five redirects are followed, and the sixth goes to the client", async () => {
    const transport = new FakeTransport(({ path }) => fakeResponse(to(`${path}x`)));
    const response = await run({}, { transport, options });
    expect(response.status).toBe(302);
    expect(transport.hops).toHaveLength(6);
  });

  test("at most `followRedirects` redirects are followed, and none with 0", async () => {
    for (const followRedirects of [0, 2, 8]) {
      const transport = new FakeTransport(({ path }) => fakeResponse(to(`${path}x`)));
      await run({}, { transport, options: { ...options, followRedirects } });
      expect(transport.hops).toHaveLength(followRedirects + 1);
    }
  });

  test("a redirect to a URL that was already requested goes to the client", async () => {
    const transport = new FakeTransport(({ path }) =>
      fakeResponse(to(path === "/a" ? "/b" : "/a")),
    );
    const response = await run({ path: "/a" }, { transport, options });
    expect(response.status).toBe(302);
    expect(transport.hops).toHaveLength(2);
  });

  test("a redirect from a form's POST to a GET of the same URL is followed, because it is no loop", async () => {
    const transport = answering(to("/form", 303));
    const form = { method: "POST", path: "/form" };
    expect((await run(form, { transport, options })).status).toBe(200);
    expect(transport.hops.map(({ method }) => method)).toEqual(["POST", "GET"]);
  });

  test("a request to another origin has neither the client's credentials nor the fields that `headers` and onRequest set", async () => {
    const transport = answering(to("http://b.test/"), to(`${TARGET}/back`));
    const headers = ["Host", "a", "Cookie", "c=1", "X-Client", "1", "X-Both", "client"];
    await run(
      { headers },
      {
        transport,
        options: {
          ...options,
          xfwd: false,
          headers: { "x-config": "secret" },
          onRequest: ({ headers: draft }) => {
            draft.set("x-hook", "secret");
            draft.set("x-both", "hook");
          },
        },
      },
    );
    const names = transport.hops.map((hop) => hop.headers.filter((_, i) => i % 2 === 0));
    expect(names).toEqual([
      ["Cookie", "X-Client", "x-config", "x-hook", "x-both"],
      ["X-Client"],
      ["X-Client"],
    ]);
  });

  test("redirectTargets checks each redirect of a chain", async () => {
    const seen: string[] = [];
    const redirectTargets = ({ href }: URL): boolean => {
      seen.push(href);
      return !href.includes("secret");
    };
    const transport = answering(to("http://b.test/1"), to("http://b.test/secret"));
    const response = await run({}, { transport, options: { ...options, redirectTargets } });
    expect(response.status).toBe(302);
    expect(seen).toEqual(["http://b.test/1", "http://b.test/secret"]);
  });

  test("an exception of redirectTargets is passed to onError, and the response of the redirect is cancelled", async () => {
    const cancelled = vi.fn();
    const transport = answering({ ...to("/next"), body: streamOf(["moved"], cancelled) });
    const onError = vi.fn(({ status }: ProxyError) => new Response(null, { status }));
    const redirectTargets = (): never => {
      throw new Error("oops");
    };
    const response = await run(
      {},
      { transport, options: { ...options, redirectTargets, onError } },
    );
    expect(response.status).toBe(500);
    expect(onError).toHaveBeenCalledOnce();
    expect(cancelled).toHaveBeenCalledOnce();
    expect(transport.scopes[0]?.error).toEqual(proxyError("proxy_internal_error", 500));
  });

  test("a promise returned by redirectTargets is refused", async () => {
    const transport = answering(to("/next"));
    const redirectTargets = (async () => false) as unknown as () => boolean;
    const sent = run({}, { transport, options: { ...options, redirectTargets } });
    await expect(sent).rejects.toThrow(/`redirectTargets`: return the value itself/);
    expect(transport.hops).toHaveLength(1);
  });

  test("each request that follows a redirect may be retried", async () => {
    const transport = answering(stale, to("/next"), stale, { status: 201 });
    expect((await run({ path: "/a" }, { transport, options })).status).toBe(201);
    expect(transport.hops.map(({ path, newConnection = false }) => [path, newConnection])).toEqual([
      ["/a", false],
      ["/a", true],
      ["/next", false],
      ["/next", true],
    ]);
  });
});
