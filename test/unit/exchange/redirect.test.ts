import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import {
  nextHop,
  compileRedirectPolicy,
  type RedirectPolicy,
} from "../../../src/exchange/redirect.ts";
import { parseTarget } from "../../../src/target/target.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import {
  bytes,
  fakeRequest,
  fakeResponse,
  type Given,
  streamOf,
  TARGET,
} from "../../helpers/fakes.ts";

const anywhere: RedirectPolicy = () => true;

function next(
  status: number,
  location: string | undefined,
  hop: Given<UpstreamRequest> = {},
  { allows = anywhere, secrets = [] as string[] } = {},
): UpstreamRequest | undefined {
  const headers = location === undefined ? [] : ["Location", location];
  return nextHop(fakeRequest(hop), fakeResponse({ status, headers }), allows, secrets);
}

describe("the method and the body of a request that follows a redirect", () => {
  // The table of https://fetch.spec.whatwg.org/#http-redirect-fetch, step 12.
  test.each([
    [301, "POST", "GET"],
    [302, "POST", "GET"],
    [303, "POST", "GET"],
    [303, "PUT", "GET"],
    [303, "DELETE", "GET"],
    [301, "PUT", "PUT"],
    [302, "PATCH", "PATCH"],
    [307, "POST", "POST"],
    [308, "POST", "POST"],
    [301, "GET", "GET"],
    [303, "GET", "GET"],
    [303, "HEAD", "HEAD"],
    [302, "HEAD", "HEAD"],
  ])("a %d turns the method %s into %s", (status, method, expected) => {
    expect(next(status, "/next", { method })?.method).toBe(expected);
  });

  const withBody: Given<UpstreamRequest> = {
    method: "POST",
    headers: ["Content-Type", "a/b", "Content-Language", "en", "content_encoding", "x", "X-A", "1"],
    body: bytes("abc"),
    contentLength: 3,
  };

  test.each([301, 302, 303])(
    "a %d turns a POST into a GET without the body and its header fields",
    (status) => {
      expect(next(status, "/next", withBody)).toMatchObject({
        method: "GET",
        body: null,
        contentLength: undefined,
        headers: ["X-A", "1"],
      });
    },
  );

  test.each([307, 308])("a %d sends the body of a POST again with all header fields", (status) => {
    const { body, ...rest } = withBody;
    const hop = next(status, "/next", withBody);
    expect(hop).toMatchObject(rest);
    expect(hop?.body?.whole()).toBe(body);
  });

  test("a redirect that would send a body again is not followed if the body was not kept", () => {
    const gone = { method: "POST", body: streamOf(["abc"]) };
    expect(next(307, "/next", gone)).toBeUndefined();
    expect(next(308, "/next", { ...gone, method: "PUT" })).toBeUndefined();
    expect(next(302, "/next", { ...gone, method: "PUT" })).toBeUndefined();
    expect(next(303, "/next", gone)?.body).toBeNull();
  });
});

describe("the URL of a redirect", () => {
  test.each([
    ["/b?c", "/b?c"],
    ["b", "/dir/b"],
    ["?c", "/dir/a?c"],
    ["../b", "/b"],
    [`${TARGET}/b#fragment`, "/b"],
    ["//up.test:4000/b", "/b"],
    ["/\u00c3\u00a9", "/%c3%a9"],
    ["/a%2Fb;c?d=%zz", "/a%2Fb;c?d=%zz"],
  ])("Location %s leads to the path %s", (location, path) => {
    const hop = next(302, location, { path: "/dir/a?q" });
    expect(hop).toMatchObject({ path, upstream: { origin: TARGET } });
  });

  test("a Location with another origin is followed as it is, without the base path of the target", () => {
    const hop = next(302, "https://other.test/b");
    expect(hop).toMatchObject({
      path: "/b",
      upstream: { origin: "https://other.test", host: "other.test", secure: true, basePath: "" },
    });
  });

  test.each([undefined, "", "http://", "javascript:alert(1)", "file:///etc/passwd", "data:,x"])(
    "a redirect to %j is not followed",
    (location) => {
      rfc("9110-4.2-empty-host");
      const hop = next(302, location);
      // "" resolves to the URL of the request. The check for loops, which runs later, refuses such a redirect.
      if (location === "") expect(hop?.path).toBe("/");
      else expect(hop).toBeUndefined();
    },
  );

  test("a redirect to a URL with a user or a password is not followed", () => {
    rfc("9110-4.2.4-userinfo-sent");
    expect(next(302, "http://user:secret@up.test:4000/")).toBeUndefined();
    expect(next(302, "http://user@other.test/")).toBeUndefined();
  });

  test.each([200, 201, 300, 304, 305, 306, 399, 400, 502])(
    "a response with the status %d and a Location is not followed",
    (status) => {
      expect(next(status, "/next")).toBeUndefined();
    },
  );
});

describe("redirectTargets", () => {
  const url = (text: string): URL => new URL(text);

  test("`same-origin` allows only redirects to the same scheme, host and port", () => {
    const allows = compileRedirectPolicy("same-origin");
    expect(allows(url("http://a.test/x"), url("http://a.test/y"))).toBe(true);
    for (const other of [
      "https://a.test",
      "http://a.test:81",
      "http://b.test",
      "http://a.test.evil",
    ]) {
      expect(allows(url("http://a.test"), url(other)), other).toBe(false);
    }
  });

  test("`any` allows every origin, but no redirect from https to http", () => {
    const allows = compileRedirectPolicy("any");
    expect(allows(url("http://a.test"), url("http://b.test"))).toBe(true);
    expect(allows(url("http://a.test"), url("https://b.test"))).toBe(true);
    expect(allows(url("https://a.test"), url("https://b.test"))).toBe(true);
    expect(allows(url("https://a.test"), url("http://a.test"))).toBe(false);
  });

  test("a predicate gets the new URL, and decides whether the redirect is followed", () => {
    const seen: string[] = [];
    const allows = compileRedirectPolicy((to) => {
      seen.push(to.href);
      return to.hostname === "b.test";
    });
    expect(next(302, "http://b.test/x?y", {}, { allows })).toBeDefined();
    expect(next(302, "http://c.test/", {}, { allows })).toBeUndefined();
    expect(allows(url("https://a.test"), url("http://b.test"))).toBe(true);
    expect(seen).toEqual(["http://b.test/x?y", "http://c.test/", "http://b.test/"]);
  });
});

describe("credentials in a request that follows a redirect", () => {
  const headers = ["Authorization", "a", "COOKIE", "b", "Proxy_Authorization", "c", "X-Key", "d"];
  const private_: Given<UpstreamRequest> = {
    headers: [...headers, "X-B", "e"],
    host: "front.test",
    upstream: parseTarget({ url: TARGET, socketPath: "/run/a.sock", tls: { cert: "c", key: "k" } }),
  };

  test("credentials are kept if the redirect stays at the same origin", () => {
    expect(next(302, "/next", private_, { secrets: ["x-key"] })).toMatchObject(private_);
  });

  test.each(["https://up.test:4000/", "http://up.test/", "http://other.test:4000/"])(
    "are dropped in a redirect to %s, as are all other fields meant for one origin",
    (location) => {
      const hop = next(307, location, private_, { secrets: ["x-key"] });
      expect(hop).toMatchObject({ headers: ["X-B", "e"], host: undefined });
      expect(hop?.upstream).toMatchObject({ socketPath: undefined, tls: undefined });
    },
  );

  test("credentials stay removed after a redirect from another origin back to the first one", () => {
    const away = next(307, "http://b.test/", private_, { secrets: ["x-key"] });
    const back = next(307, `${TARGET}/`, away, { secrets: ["x-key"] });
    expect(back).toMatchObject({ headers: ["X-B", "e"], upstream: { origin: TARGET } });
    expect(back?.upstream).toMatchObject({ socketPath: undefined, tls: undefined });
  });
});
