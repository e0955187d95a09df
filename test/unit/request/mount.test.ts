/** What a framework has cut off a path, and the references of responses that get it back. */
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
])("of %s, which was passed on as %s, was cut off: %j", (sent, path, cut) => {
  expect(findMount(sent, path)).toBe(cut);
});

/** A proxy whose upstream redirects to a path, or else to /login, and tells the path that it was asked for. */
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

describe("h3 tells its mount on every runtime", () => {
  test.each<[string, string, H3, string]>([
    ["/api/x?y", "/x", new H3().mount("/api", redirecting().fetch), "/api/login"],
    ["/api", "/", new H3().mount("/api", redirecting()), "/api/login"],
    ["/api/api/x", "/api/x", new H3().mount("/api", redirecting()), "/api/login"],
    // h3 cuts off neither parameters nor, without Node, what `withBase` names.
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
  ])("%s, of which the upstream sees %s", async (path, asked, app, location) => {
    const { headers } = await app.request(path);
    expect([headers.get("asked"), headers.get("location")]).toEqual([asked, location]);
  });
});

test("Hono's mount tells nothing without Node; a route with `stripPrefix` does the same", async () => {
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

test("Refresh and Content-Location get the prefix, too", async () => {
  const target = "http://upstream.test/v1";
  const fields = { refresh: "5; url=/v1/login", "content-location": "/v1/a" };
  const answer = (): Promise<Response> => Promise.resolve(new Response("", { headers: fields }));
  const app = new H3().mount("/api", createProxy({ target, fetch: answer }));
  const { headers } = await app.request("/api/x");
  expect(headers.get("refresh")).toBe("5; url=/api/login");
  expect(headers.get("content-location")).toBe("/api/a");
});
