/** Advisories about paths and targets: the upstream that gets a request, and whether every check sees the path that is forwarded. */
import { expect } from "vitest";
import type { Tools } from "./_suite.ts";
import { request } from "../helpers/wire.ts";

export const advisedRouting = {
  async "CVE-2026-88009: a target that is neither a path nor a URL is refused"(
    t: Tools,
  ): Promise<void> {
    for (const target of [
      "http:http://internal/admin",
      "http:/internal/admin",
      "http:internal/admin",
      "http:",
      "http:?http://internal/admin",
      "javascript:alert(1)",
      "internal:80/admin",
    ]) {
      for (const setup of ["default", "base"] as const) {
        expect((await t.ask(request("GET", target), setup)).status, target).toBe(400);
        expect(t.upstream.calls, target).toEqual([]);
      }
    }
  },

  async "CVE-2026-88009: a target that is neither a path nor a URL changes neither the upstream's authority nor its base path"(
    t: Tools,
  ): Promise<void> {
    for (const target of ["http:http://internal/admin", "http:/internal/admin", "http:internal"]) {
      for (const setup of ["default", "base", "routed"] as const) {
        const answer = await t.ask(request("GET", target), setup);
        const call = t.refusedOrOne(answer, [400, 404, 502]);
        if (call) expect(call.all("host"), target).toEqual([t.upstream.authority]);
        if (call && setup === "base") expect(call.target, target).toMatch(/^\/base\//);
        await t.upstream.reset();
      }
    }
  },

  async "CVE-2026-48020: no path leaves the prefix that `stripPrefix` removes"(
    t: Tools,
  ): Promise<void> {
    for (const rest of [
      "/..%2fadmin",
      "/..%5cadmin",
      "/%2e%2e%2fadmin",
      "/%252e%252e%252fadmin",
      "/x/..%2f..%2fadmin",
      "/..;/admin",
    ]) {
      for (const [setup, prefix] of [
        ["rewritten", "/api"],
        ["stripped", "/pub"],
      ] as const) {
        const answer = await t.ask(request("GET", prefix + rest), setup);
        expect(answer.status, prefix + rest).toBe(400);
        expect(t.upstream.calls, prefix + rest).toEqual([]);
      }
    }
    for (const rest of ["/%2e%2e/admin", "/../admin", "/.%2E/admin", "/x/../../admin"]) {
      const call = t.refusedOrOne(await t.ask(request("GET", `/pub${rest}`), "stripped"));
      // A server may have resolved the dot segments before the proxy sees the path, which then has no prefix.
      if (call) expect(call.target, rest).toBe("/admin");
      await t.upstream.reset();
    }
  },

  async "CVE-2026-40912: `stripPrefix` does not remove a prefix that a path has only after decoding"(
    t: Tools,
  ): Promise<void> {
    for (const [target, ...may] of [
      ["/%70ub/admin", "/%70ub/admin"],
      ["/%70ub./admin", "/%70ub./admin"],
      ["/PUB/admin", "/PUB/admin"],
      ["/pub%2fadmin", "/pub%2fadmin"],
      ["/pub;x/admin", "/pub;x/admin"],
      ["/./pub/x", "/./pub/x", "/pub/x", "/x"],
      ["/pub/./x", "/./x", "/x"],
      ["/pub//x", "//x"],
    ] as const) {
      const call = t.refusedOrOne(await t.ask(request("GET", target), "stripped"));
      if (call) expect(may, target).toContain(call.target);
      await t.upstream.reset();
    }
  },

  async "GHSA-5w89-w975-hf9q: encoded dot segments behind one or more slashes are refused"(
    t: Tools,
  ): Promise<void> {
    for (const target of [
      "/..%2fadmin",
      "//..%252fadmin",
      "//%2e%2e%252fadmin",
      "/%2f..%2fadmin",
    ]) {
      expect((await t.ask(request("GET", target), "api")).status, target).toBe(400);
      expect(t.upstream.calls, target).toEqual([]);
    }
  },

  async "CVE-2026-29087: a check in `onRequest` sees the same path as the upstream"(
    t: Tools,
  ): Promise<void> {
    for (const path of [
      "/admin%2Fusers",
      "/a%2f..%2fadmin",
      "/%61dmin/x",
      "//admin/x",
      "/admin;x",
    ]) {
      const answer = await t.ask(request("GET", path), "guarded");
      expect(answer.status, path).toBe(200);
      expect(t.upstream.calls.at(-1)?.target, path).toBe(path);
      expect(t.upstream.calls.at(-1)?.get("x-path"), path).toBe(path);
    }
  },

  async "CVE-2026-39825: a hook sees all of the thousands of query parameters that the upstream gets"(
    t: Tools,
  ): Promise<void> {
    const target = `/?${"a&".repeat(5000)}admin=1`;
    expect((await t.ask(request("GET", target), "guarded")).status).toBe(200);
    expect(t.upstream.calls[0]?.target).toBe(target);
    expect(t.upstream.calls[0]?.get("x-count")).toBe("5001");
  },

  async "CVE-2026-77281: `pathRewrite` inserts text that looks like a replacement pattern literally"(
    t: Tools,
  ): Promise<void> {
    for (const text of ["$&", "$1", "$$", "$'", "$<a>", "${x}", "%24&"]) {
      const answer = await t.ask(request("GET", `/api/old/${text}?${text}`), "rewritten");
      const call = t.refusedOrOne(answer);
      // A server that parses URLs escapes some of these characters.
      if (call) expect(decodeURI(call.target), text).toBe(decodeURI(`/v2/new/${text}?${text}`));
      await t.upstream.reset();
    }
  },
};
