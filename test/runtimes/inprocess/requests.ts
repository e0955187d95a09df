/** Cases about the requests that an app in the same process receives. */
import type { FetchTarget } from "../../../src/index.ts";
import {
  ask,
  assert,
  assertEqual,
  assertMisuse,
  type Case,
  frameworks,
  h3,
  hono,
  read,
  type Seen,
  statusOf,
} from "./_case.ts";

export const requests: Record<string, Case> = {
  async "an app sees the target's authority and the request's path, query and header fields"(
    create,
  ) {
    for (const target of Object.values(frameworks)) {
      const seen = await ask(
        create({ target }),
        read("//evil.test/a%2Fb?c=+&d", {
          method: "PUT",
          headers: { host: "proxy.test", "x-own": "1", "x-forwarded-host": "evil.test" },
          body: "body",
        }),
      );
      assertEqual(
        [seen.method, seen.url, seen.body],
        ["PUT", "http://app.invalid//evil.test/a%2Fb?c=+&d", "body"],
      );
      const { host, "x-own": own, "content-length": length } = seen.headers;
      assertEqual([host, own, length], ["app.invalid", "1", "4"]);
      assertEqual(seen.headers["x-forwarded-host"], "proxy.test");
    }
  },

  async "the `url` of an app sets authority, base path and query"(create) {
    for (const app of Object.values(frameworks)) {
      const target = {
        fetch: (request: Request) => app.fetch(request),
        url: "https://shop.example:8443/v1/?k=1",
      };
      const proxy = create({ target, headers: { "x-set": "1" } });
      const { url, headers } = await ask(proxy, read("/a?b"));
      assertEqual(url, "https://shop.example:8443/v1/a?k=1&b");
      assertEqual([headers["host"], headers["x-set"]], ["shop.example:8443", "1"]);
      assertEqual(await statusOf(proxy, read("/..%2fadmin")), 400);
    }
  },

  async "a function of the request may choose an app"(create) {
    const proxy = create({
      target: async (request) => frameworks[new URL(request.url).pathname.slice(1)] as FetchTarget,
    });
    for (const name of Object.keys(frameworks)) {
      assertEqual((await ask(proxy, read(`/${name}`))).url, `http://app.invalid/${name}`);
    }
  },

  async "a proxy may be the target of another proxy"(create) {
    const inner = create({ target: hono, headers: { "x-inner": "1" } });
    const outer = create({ target: inner, headers: { "x-outer": "1" } });
    const { headers } = await ask(outer, read("/"));
    assertEqual([headers["x-inner"], headers["x-outer"]], ["1", "1"]);
    assertEqual(headers["x-forwarded-host"], "app.invalid");
  },

  async "hop-by-hop fields and forwarding fields of the client do not reach an app"(create) {
    const headers = new Headers({ "x-secret": "1", "x-real-ip": "6.6.6.6", te: "gzip" });
    headers.set("proxy-authorization", "Basic secret");
    const seen = await ask(create({ target: hono }), read("/", { headers }));
    assertEqual(seen.headers["x-secret"], "1");
    for (const name of ["x-real-ip", "te", "proxy-authorization"]) {
      assertEqual(name in seen.headers, false);
    }
  },

  async "onRequest can change the request to an app, and onResponse its response"(create) {
    const proxy = create({
      target: h3,
      onRequest(draft) {
        draft.headers.set("x-hook", "1");
        draft.headers.set("host", "shop.example");
        draft.body = `${draft.path} replaced`;
      },
      onResponse: (response) => response.headers.set("x-after", "2"),
    });
    const response = await proxy.fetch(read("/a", { method: "POST", body: "old" }));
    assertEqual(response.headers.get("x-after"), "2");
    const { headers, body } = (await response.json()) as Seen;
    assertEqual([headers["x-hook"], headers["host"]], ["1", "shop.example"]);
    assertEqual([headers["content-length"], body], ["11", "/a replaced"]);
  },

  async "an app gets the method of the request unchanged, or the client gets 501"(create) {
    for (const method of ["DELETE", "OPTIONS", "PATCH", "BREW", "patch", "TRACE"]) {
      let request: Request;
      try {
        request = read("/", { method });
      } catch {
        // This runtime cannot construct a Request with this method.
        continue;
      }
      if (request.method !== method) continue;
      const response = await create({ target: hono, trace: true }).fetch(request);
      if (response.status === 501) continue;
      assertEqual(((await response.json()) as Seen).method, method);
    }
    const headers = {
      upgrade: "websocket",
      connection: "upgrade",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    };
    const { status } = await create({ target: hono }).fetch(read("/", { headers }));
    assert(status === 501 || status === 200, `the handshake got ${status}`);
  },

  async "stats() counts no request to an app, and the app works after close()"(create) {
    const proxy = create({ target: hono });
    await ask(proxy, read("/"));
    assertEqual(proxy.stats()?.requests ?? 0, 0);
    await proxy.close();
    await ask(proxy, read("/"));
  },

  async "a target that is an app is refused with a TypeError if an option sets another Host or a socket path"(
    create,
  ) {
    const target = hono;
    for (const more of [{ host: "shop.example" }, { changeOrigin: false }]) {
      assertMisuse(() => create({ target, ...more }), /set Host/);
    }
    const wrong = { fetch: () => new Response(), socketPath: "/run/a" };
    assertMisuse(() => create({ target: wrong }), /leave out one of them/);
    const late = create({ target: () => wrong });
    const error = await late.fetch(read("/")).catch((thrown: unknown) => thrown);
    assert(error instanceof TypeError, "a target that a function returns is not checked");
  },
};
