/** The prefix that a framework has removed from a path, and the references in responses to which it is added again. */
import { H3, withBase } from "h3";
import { Hono } from "hono";
import { mount } from "hono/mount";
import { describe, expect, test } from "vitest";
import { createProxy, type ProxyOptions } from "../../../runtimes/fetch.ts";
import { findMount } from "../../../src/request/mount.ts";

test.each([
  ["/api/x", "/x", "/api"],
  ["/api/x?a=/b", "/x?a=/b", "/api"],
  ["/api", "/", "/api"],
  ["/api/", "/", "/api"],
  ["/api?a", "/?a", "/api"],
  ["/a/b/c", "/c", "/a/b"],
  ["/api//x", "//x", "/api"],
  ["/api/api/x", "/api/x", "/api"],
  ["/api/%7Ex/%2F", "/~x/%2F", "/api"],
  ["/api/%zz", "/%zz", "/api"],
  ["/x", "/x", ""],
  ["/", "/", ""],
  ["/x?a", "/x?b", ""],
  ["/api/x", "/y", ""],
  ["/apix", "/x", ""],
  ["/x", "/api/x", ""],
  ["/api?a=/x", "/x", ""],
  ["http://a.test/api/x", "/x", ""],
  ["*", "/*", ""],
  ["*", "*", ""],
  ["", "/", ""],
])("if the client requests %s and the handler gets %s, the mount is %j", (sent, path, cut) => {
  expect(findMount(sent, path)).toBe(cut);
});

/** Creates a proxy. Its upstream redirects to `location`; the field `asked` of the response is the path of the request. */
function redirecting(options: ProxyOptions = {}, location = "/login") {
  return createProxy({
    ...options,
    target: "http://upstream.test",
    fetch: (url: unknown) => {
      const { pathname: asked } = new URL(url as string);
      return Promise.resolve(new Response(null, { status: 302, headers: { location, asked } }));
    },
  });
}

describe("on every runtime, a prefix that h3 has removed is added to redirects, and no other prefix is", () => {
  test.each<[string, string, H3, string]>([
    ["/api/x?y", "/x", new H3().mount("/api", redirecting().fetch), "/api/login"],
    ["/api", "/", new H3().mount("/api", redirecting()), "/api/login"],
    ["/api/api/x", "/api/x", new H3().mount("/api", redirecting()), "/api/login"],
    // h3 does not remove a prefix with parameters. Without Node, it does not remove the prefix of `withBase` either.
    ["/shops/7/a", "/shops/7/a", new H3().mount("/shops/:id", redirecting()), "/login"],
    [
      "/api/x",
      "/api/x",
      new H3().all(
        "/api/**",
        withBase("/api", ({ req }) => redirecting().fetch(req)),
      ),
      "/login",
    ],
    ["/api/x", "/api/x", new H3().all("/api/**", ({ req }) => redirecting().fetch(req)), "/login"],
    ["/x", "/x", new H3().all("/**", ({ req }) => redirecting().fetch(req)), "/login"],
    ["/a/b", "/a/b", new H3().all("/a/:name", ({ req }) => redirecting().fetch(req)), "/login"],
  ])(
    "for a request for %s, which reaches the upstream with the path %s",
    async (path, asked, app, location) => {
      const { headers } = await app.request(path);
      expect([headers.get("asked"), headers.get("location")]).toEqual([asked, location]);
    },
  );
});

test("the mount of Hono is not found without Node, but `stripPrefix` in a route has the same effect", async () => {
  const app = new Hono()
    .all("/api/*", mount(redirecting().fetch))
    .all("/route/*", (c) => redirecting({ stripPrefix: "/route" }).fetch(c.req.raw));
  const mounted = await app.request("/api/x");
  expect([mounted.headers.get("asked"), mounted.headers.get("location")]).toEqual(["/x", "/login"]);
  const routed = await app.request("/route/x");
  expect([routed.headers.get("asked"), routed.headers.get("location")]).toEqual([
    "/x",
    "/route/login",
  ]);
});

test("the prefix of a mount is added to Refresh and Content-Location", async () => {
  const target = "http://upstream.test/v1";
  const fields = { refresh: "5; url=/v1/login", "content-location": "/v1/a" };
  const answer = (): Promise<Response> => Promise.resolve(new Response("", { headers: fields }));
  const app = new H3().mount("/api", createProxy({ target, fetch: answer }));
  const { headers } = await app.request("/api/x");
  expect(headers.get("refresh")).toBe("5; url=/api/login");
  expect(headers.get("content-location")).toBe("/api/a");
});
