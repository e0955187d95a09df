/** A target that depends on the request: the router and the upstream must see the same authority and path. */
import { expect } from "vitest";
import type { HostName } from "../hosts/_hosts.ts";
import type { Call } from "../helpers/link.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { request } from "../helpers/wire.ts";

const shop = ["Host", "shop.test"] as const;

/** Returns the authorities that the router saw and that the upstream got in Host and X-Forwarded-Host. */
function authoritiesOf(call: Call, host: HostName): (string | undefined)[] {
  const seen = new URL(call.target, "http://x").searchParams.get("saw") ?? "nothing";
  const forwarded = call.get("x-forwarded-host");
  // Workers cannot set Host: it is always the target's.
  const all = host === "workerd" ? [seen, forwarded] : [seen, forwarded, call.get("host")];
  return all.map((each) => URL.parse(`http://${each}`)?.host);
}

/** Request targets in absolute-form, each with a Host that names another authority. */
const disagreeing = [
  ["http://shop.test/info", "evil.test"],
  ["http://evil.test/info", "shop.test"],
  ["HTTP://evil.test:80/info", "shop.test:80"],
  ["http://evil.test?x", "shop.test"],
  ["http://shop.test:81/info", "shop.test"],
  ["http://shop.test/info", "shop.test:81"],
  ["http://shop.test./info", "shop.test"],
  ["http://u:p@shop.test/info", "shop.test"],
  ["http://shop.test\\evil.test/info", "shop.test"],
  ["http://evil.test/info", ""],
] as const;

export const routes = {
  async "RFC 9112 §3.2.2: when absolute-form and Host disagree, router and upstream see one name, or the request is refused"(
    t: Tools,
  ): Promise<void> {
    for (const [target, host] of disagreeing) {
      const answer = await t.ask(request("GET", target, [["Host", host]]), "witnessed");
      const call = t.refusedOrOne(answer, [400]);
      const names = new Set(call === undefined ? [] : authoritiesOf(call, t.host.name));
      expect([...names].slice(1), `${target} of ${host}`).toEqual([]);
      await t.upstream.reset();
    }
  },

  async "RFC 9112 §3.2.2: a request whose absolute-form target and Host disagree is refused"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3.2.2-host-replaced");
    for (const [target, host] of disagreeing) {
      const answer = await t.ask(request("GET", target, [["Host", host]]), "witnessed");
      expect(answer.status, `${target} of ${host}`).toBe(400);
      expect(t.upstream.calls).toEqual([]);
    }
  },

  async "a request whose absolute-form target agrees with Host is forwarded"(
    t: Tools,
  ): Promise<void> {
    for (const [target, host] of [
      ["http://shop.test/info", "shop.test"],
      ["http://shop.test:80/info", "shop.test"],
      ["http://SHOP.test/info", "shop.test:80"],
      ["http://shop.test:8080/info", "Shop.Test:8080"],
    ] as const) {
      const answer = await t.ask(request("GET", target, [["Host", host]]), "witnessed");
      expect(answer.status, target).toBe(200);
      const call = await t.upstream.call();
      const expected = new URL(`http://${host}`).host;
      const names = new Set(authoritiesOf(call, t.host.name));
      expect([...names], `${target} of ${host}`).toEqual([expected]);
      expect(call.target).toMatch(/^\/info\?/);
      await t.upstream.reset();
    }
  },

  async "CVE-2026-55602: a Host that only contains a routing key does not match it"(
    t: Tools,
  ): Promise<void> {
    for (const host of [
      "shop.test.evil.test",
      "evil-shop.test",
      "shop.testx",
      "evil.test.shop.test",
      "shop.test.",
      "shop.test:8080",
      "shop.test@evil.test",
      "evil.test:80@shop.test",
      "shop.test/evil.test",
      "evil.test?shop.test",
      "evil.test#shop.test",
      "shop.test,evil.test",
      "shop.test evil.test",
      "shop.test%00",
      "",
    ]) {
      const answer = await t.ask(request("GET", "/", [["Host", host]]), "routed");
      expect(answer.status, host).toBeGreaterThanOrEqual(400);
      expect(t.upstream.calls, host).toEqual([]);
    }
    for (const host of ["shop.test", "SHOP.test", "shop.test:80"]) {
      const answer = await t.ask(request("GET", "/", [["Host", host]]), "routed");
      expect(answer.status, host).toBe(200);
    }
  },

  async "CVE-2026-33131: the path that the router sees is the path that is forwarded"(
    t: Tools,
  ): Promise<void> {
    for (const [target, host] of [
      ["/info", "shop.test"],
      ["/a/../info", "shop.test"],
      ["/%2e%2e/info", "shop.test"],
      ["//info/x", "shop.test"],
      ["/\\info", "shop.test"],
      ["/info;x/..;/y", "shop.test"],
      ["http://shop.test/info", "shop.test"],
      ["http://shop.test/info", "evil.test"],
      ["http://evil.test/info", "shop.test"],
      ["http://shop.test?/info", "shop.test"],
      ["/info", "shop.test/abc?"],
      ["/info", "shop.test#"],
      ["/info", "shop.test\\abc"],
    ] as const) {
      const answer = await t.ask(request("GET", target, [["Host", host]]), "routed");
      const what = `${target} of ${host}`;
      if (answer.status === 200) {
        const { pathname, searchParams } = new URL(
          t.upstream.calls.at(-1)?.target ?? "",
          "http://x",
        );
        const [path = ""] = (t.upstream.calls.at(-1)?.target ?? "").split("?");
        // In the router's URL the dot segments are resolved, so resolve them in the upstream's path before comparing.
        const read = new URL(`http://x${path}`).pathname;
        expect(read, what).toBe(new URL(`http://x${searchParams.get("saw")}`).pathname);
        expect(pathname, what).not.toContain("abc");
      } else {
        expect(answer.status, what).toBeGreaterThanOrEqual(400);
        expect(t.upstream.calls, what).toEqual([]);
      }
      await t.upstream.reset();
    }
    expect((await t.ask(request("GET", "/info", [[...shop]]), "routed")).status).toBe(200);
  },
};
