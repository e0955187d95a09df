/** A target that is chosen by the request: what the router saw is what is forwarded. */
import { expect } from "vitest";
import type { Tools } from "../_suite.ts";
import { request } from "../_wire.ts";

const shop = ["Host", "shop.test"] as const;

export const routes = {
  async "15 CVE-2026-55602: a Host that only contains a routing key is not taken for it"(
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

  async "14 CVE-2026-33131: the path that the router saw is the one that is forwarded"(
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
        // The router's URL has its dot segments resolved: so must be what it is compared with.
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
