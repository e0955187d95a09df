/** The upstream's authority always comes from the proxy's target, and the bytes of path and query are kept. */
import { expect } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { handshake } from "../helpers/handshake.ts";
import { Upstream } from "../helpers/upstream.ts";
import { request, type Header } from "../helpers/wire.ts";

async function targetsOf(
  t: Tools,
  targets: string[],
  setup?: "base" | "rewritten",
): Promise<string[]> {
  const seen: string[] = [];
  for (const target of targets) {
    const answer = await t.ask(request("GET", target), setup);
    expect(answer.status, target).toBe(200);
    seen.push(t.upstream.calls.at(-1)?.target ?? "nothing");
  }
  expect(t.upstream.calls).toHaveLength(targets.length);
  return seen;
}

/** Request targets that try to choose the upstream. Each must reach the proxy's target, or be refused. */
const elsewhere = [
  "http://169.254.169.254/latest?x=1",
  "https://evil.test/latest",
  "HTTP://evil.test/latest",
  "//evil.test/latest",
  "///evil.test/latest",
  "/\\evil.test/latest",
  "\\\\evil.test/latest",
  "/\t/evil.test/latest",
  "/@evil.test/latest",
  "/x:y@evil.test/latest",
  "@evil.test/latest",
  ":8080/latest",
  ".evil.test/latest",
  "evil.test:80",
];

async function expectTargetOrRefusal(t: Tools, more: Header[]): Promise<void> {
  for (const setup of ["default", "base"] as const) {
    for (const target of elsewhere) {
      const answer = await t.ask(request("GET", target, more), setup);
      const call = t.refusedOrOne(answer, [400, 501, 505]);
      if (call) {
        expect(call.all("host"), target).toEqual([t.upstream.authority]);
        expect(call.target, target).toMatch(setup === "base" ? /^\/base\/.*[?&]?k=v/ : /^\//);
      }
      await t.upstream.reset();
    }
  }
}

export const paths = {
  async "path and query pass byte for byte"(t: Tools): Promise<void> {
    const targets = ["/a;b?c=1;d", "/a+b?q=a+b", "/a|b?c|d", "/x?%zz&%", "/[...slug]?a[]=1"];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "RFC 9110 §7.7: the path passes byte for byte"(t: Tools): Promise<void> {
    rfc("9110-7.7-path", "9112-3.2.1-origin-form");
    const targets = [
      "/",
      "//x",
      "//",
      "/a//b/",
      "/%2F",
      "/%2f%20%C3%A9",
      "/a;b",
      "/a+b",
      "/~a!b$c&d'e(f)*g,h:i=j@k",
      "/x/...",
    ];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "RFC 9110 §7.7: the query passes byte for byte"(t: Tools): Promise<void> {
    rfc("9110-7.7-path");
    const targets = [
      "/a?b=1&a=%20&c",
      "/a?q=a+b&q=",
      "/a?c=1;d=2",
      "/a?&&a=/../b",
      "/a?b=http://other.test/y?z",
    ];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "an empty query keeps its question mark"(t: Tools): Promise<void> {
    rfc("9110-7.7-path");
    expect(await targetsOf(t, ["/x?", "/?"])).toEqual(["/x?", "/?"]);
  },

  async "a percent sign that starts no valid escape passes unchanged"(t: Tools): Promise<void> {
    const targets = ["/%zz", "/100%", "/%2"];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "characters that URL parsers escape pass unchanged"(t: Tools): Promise<void> {
    const targets = ["/a^b{c}", "/`q`", '/a"b<c>', '/x?a"b<c>', "/x?it's={^}`"];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "CVE-2022-2880: the query passes byte for byte"(t: Tools): Promise<void> {
    const targets = [
      "/?a=1;b=2&x=%zz",
      "/?&&=&a&a=&=b",
      `/?${"&".repeat(10_000)}`,
      `/?${"a&".repeat(5000)}`,
    ];
    expect(await targetsOf(t, targets)).toEqual(targets);
  },

  async "the target's base path and query come before the request's"(t: Tools): Promise<void> {
    expect(await targetsOf(t, ["/", "/x", "/x?y=z", "//x?y", "/x%2Fy?a;b&c"], "base")).toEqual([
      "/base/?k=v",
      "/base/x?k=v",
      "/base/x?k=v&y=z",
      "/base//x?k=v&y",
      "/base/x%2Fy?k=v&a;b&c",
    ]);
  },

  async "stripPrefix and pathRewrite apply before the base path is added"(t: Tools): Promise<void> {
    const targets = ["/api/x?y", "/api", "/apix", "/api/old/x", "/other"];
    expect(await targetsOf(t, targets, "rewritten")).toEqual([
      "/v2/x?y",
      "/v2/",
      "/v2/apix",
      "/v2/new/x",
      "/v2/other",
    ]);
  },

  async "CVE-2026-44373, GHSA-2q7r-29rg-6m5h: an encoded path traversal out of the base path is refused"(
    t: Tools,
  ): Promise<void> {
    const targets = [
      "/..%2fadmin%2fconfig.json",
      "/..%2Fadmin",
      "/..%5cadmin",
      "/..%5Cadmin",
      "/%2e%2e%2fadmin",
      "/%252e%252e%252fadmin",
      "/%25252e%25252e%25252fadmin",
      "/..%252fadmin",
      "/x/..%2f..%2fadmin",
      "/ho/..%5c..%5chi",
      "/%2e%2e%5cadmin",
    ];
    for (const target of targets) {
      expect((await t.ask(request("GET", target), "api")).status, target).toBe(400);
      expect(t.upstream.calls, target).toEqual([]);
    }
  },

  async "GHSA-qmw8-3v4g-gwj4: plain dot segments never lead outside the base path"(
    t: Tools,
  ): Promise<void> {
    const targets = [
      "/../admin",
      "/..",
      "/x/../../admin",
      "/%2e%2e/admin",
      "/ho/%2E%2E/hi",
      "/ho/%2E%2E/%2E%2E/hi",
      "/.%2e/admin",
      "/..\\admin",
      "/\\..\\admin",
    ];
    for (const target of targets) {
      const call = t.refusedOrOne(await t.ask(request("GET", target), "api"));
      // The request may pass if the server has resolved the dot segments before the proxy sees the path.
      if (call) expect(call.target, target).toMatch(/^\/api\/orders\/(?!.*(\.\.|%2e|\\))/i);
      await t.upstream.reset();
    }
  },

  async "dots that do not form dot segments pass unchanged below the base path"(
    t: Tools,
  ): Promise<void> {
    for (const target of [
      "/[...slug]",
      "/a..b/c",
      "/...",
      "/..a",
      "/a../b",
      "/a?x=/../../admin",
      "/%2ehidden",
    ]) {
      expect((await t.ask(request("GET", target), "api")).status, target).toBe(200);
      expect(t.upstream.calls.at(-1)?.target, target).toBe(`/api/orders${target}`);
    }
  },

  async "CVE-2026-44578, GHSA-c4j6-fc7j-m34r: a URL as the request target does not select the upstream, with or without Upgrade"(
    t: Tools,
  ): Promise<void> {
    const other = new Upstream();
    await other.listen();
    try {
      for (const fields of [[], handshake]) {
        for (const target of [`${other.url}/latest`, `//${other.authority}/latest`]) {
          await t.ask(request("GET", target, fields));
          expect(other.links, target).toEqual([]);
          await t.upstream.reset();
        }
      }
    } finally {
      await other.stop();
    }
  },

  async "fast-proxy#42: no request target selects another upstream"(t: Tools): Promise<void> {
    await expectTargetOrRefusal(t, []);
  },

  async "CVE-2026-44578: no request target with Upgrade: websocket selects another upstream"(
    t: Tools,
  ): Promise<void> {
    advisory("GHSA-c4j6-fc7j-m34r");
    await expectTargetOrRefusal(t, handshake);
  },

  async "CVE-2026-33732: an absolute-form target contributes only its path, or is refused"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3.2.1-origin-form");
    for (const [target, path] of [
      ["http://proxy.test/info/hp?x=1", "/info/hp?x=1"],
      ["http://evil.test:81/info", "/info"],
      ["http://evil.test", "/"],
      ["http://evil.test?x", "/?x"],
      ["http://evil.test/?/info", "/?/info"],
    ] as const) {
      const call = t.refusedOrOne(await t.ask(request("GET", target)));
      if (call) {
        expect(call.target, target).toBe(path);
        expect(call.get("host")).toBe(t.upstream.authority);
      }
      await t.upstream.reset();
    }
  },

  async "CVE-2024-21536: malformed targets do not end the proxy"(t: Tools): Promise<void> {
    for (const target of ["/%", "/%E0%A4%A", "//x@x", "/?%", "x", "*", "/a#b", "/\x7f", "/\xe9"]) {
      await t.ask(request("GET", target)).catch(() => {});
    }
    expect((await t.ask(request("GET", "/after"))).status).toBe(200);
  },

  async "CVE-2024-21536: a malformed target is refused or forwarded unchanged"(
    t: Tools,
  ): Promise<void> {
    for (const target of ["/%", "/%E0%A4%A", "//x@x", "/?%", "x", "*", "/a#b", "/\x7f", "/\xe9"]) {
      const answer = await t.ask(request("GET", target));
      if (answer.status === 200) {
        // A server may parse the target as a URL and normalise it. The upstream must then get the normalised target.
        const { pathname, search } = new URL(target.replace(/^\/?/, "http://proxy.test/"));
        expect([target, pathname + search], target).toContain(t.upstream.calls.at(-1)?.target);
      } else {
        expect(answer.status, target).toBeGreaterThanOrEqual(400);
        expect(answer.status, target).toBeLessThan(500);
      }
    }
    expect((await t.ask(request("GET", "/after"))).status).toBe(200);
  },
};
