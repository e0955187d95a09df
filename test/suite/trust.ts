/** Which proxies in front of this one are trusted, and which of their fields are used. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { request, type Header } from "../helpers/wire.ts";
import { forged, own, forwardingFields } from "./forwarding.ts";

export const trust = {
  async "with trustProxy, a trusted peer's forwarding fields are kept, and its address is appended to X-Forwarded-For"(
    t: Tools,
  ): Promise<void> {
    const inbound: Header[] = [
      ["X-Forwarded-For", "203.0.113.7"],
      ["X-Forwarded-For", "10.0.0.2"],
      ["X-Forwarded-Proto", "https"],
      ["X-Forwarded-Host", "shop.example"],
    ];
    await t.ask(request("GET", "/", inbound), "trusting");
    const [call] = t.upstream.calls;
    expect(call?.all("x-forwarded-for").join(", ")).toBe("203.0.113.7, 10.0.0.2, 127.0.0.1");
    expect(call?.all("x-forwarded-proto")).toEqual(["https"]);
    expect(call?.all("x-forwarded-host")).toEqual(["shop.example"]);
  },

  async "CVE-2026-3635: a trusted chain is read from the right and trimmed at the first untrusted address"(
    t: Tools,
  ): Promise<void> {
    const chains = [
      ["203.0.113.7", "203.0.113.7"],
      ["6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7, 10.0.0.2"],
      [
        "10.6.6.6,203.0.113.7:4711,10.0.0.2:80 , [fd00::2]:80",
        "203.0.113.7:4711, 10.0.0.2:80, [fd00::2]:80",
      ],
      ["6.6.6.6, 2001:db8::7, ::ffff:10.0.0.2", "2001:db8::7, ::ffff:10.0.0.2"],
      ["10.0.0.9, unknown, 10.0.0.2", "unknown, 10.0.0.2"],
      ["10.0.0.9, 10.0.0.2", "10.0.0.9, 10.0.0.2"],
    ] as const;
    for (const [sent, kept] of chains) {
      await t.ask(request("GET", "/", [["X-Forwarded-For", sent]]), "ranged");
      const value = t.upstream.calls.at(-1)?.all("x-forwarded-for").join(", ");
      expect(value, sent).toBe(`${kept}, 127.0.0.1`);
    }
    const lines = ["6.6.6.6", "203.0.113.7", "10.0.0.2"].map((value): Header => [
      "X-Forwarded-For",
      value,
    ]);
    await t.ask(request("GET", "/", lines), "ranged");
    expect(t.upstream.calls.at(-1)?.all("x-forwarded-for").join(", ")).toBe(
      "203.0.113.7, 10.0.0.2, 127.0.0.1",
    );
  },

  async "CVE-2026-3635: a trusted peer's scheme, host, prefix and X-Real-IP are kept, its aliases and Forwarded removed"(
    t: Tools,
  ): Promise<void> {
    const inbound: Header[] = [
      ["X-Forwarded-For", "6.6.6.6, 203.0.113.7"],
      ["X_Forwarded_For", "10.0.0.1"],
      ["X-Forwarded-Proto", "http, https"],
      ["X-Forwarded_Proto", "http"],
      ["X-Forwarded-Host", "evil.test, shop.example"],
      ["X-Forwarded-Prefix", "/shop"],
      ["Forwarded", "for=6.6.6.6"],
      ["X-Real-IP", "203.0.113.7"],
    ];
    await t.ask(request("GET", "/", inbound), "ranged");
    expect(forwardingFields(t.upstream.calls[0]?.headers ?? [])).toEqual([
      ["x-forwarded-for", "203.0.113.7, 127.0.0.1"],
      ["x-forwarded-host", "shop.example"],
      ["x-forwarded-port", "443"],
      ["x-forwarded-prefix", "/shop"],
      ["x-forwarded-proto", "https"],
      ["x-real-ip", "203.0.113.7"],
    ]);
  },

  async "CVE-2026-3635: without X-Forwarded-For, the last value of each of a trusted peer's fields counts"(
    t: Tools,
  ): Promise<void> {
    const inbound: Header[] = [
      ["X-Forwarded-Proto", "http, https"],
      ["X-Forwarded-Host", "evil.test, shop.example"],
      ["X-Forwarded-Port", "80, 8443"],
    ];
    await t.ask(request("GET", "/", inbound), "ranged");
    expect(forwardingFields(t.upstream.calls[0]?.headers ?? [])).toEqual([
      ["x-forwarded-for", "127.0.0.1"],
      ["x-forwarded-host", "shop.example"],
      ["x-forwarded-port", "8443"],
      ["x-forwarded-proto", "https"],
    ]);
  },

  async "CVE-2026-3635: forwarding fields of a peer outside the trusted list are removed"(
    t: Tools,
  ): Promise<void> {
    await t.ask(request("GET", "/", forged), "rangedElsewhere");
    const claimed: Header = ["X-Forwarded-For", "10.0.0.1"];
    await t.ask(request("GET", "/", [claimed, ["X-Real-IP", "10.0.0.1"]]), "rangedElsewhere");
    for (const call of t.upstream.calls) expect(forwardingFields(call.headers)).toEqual(own);
    expect(t.upstream.calls).toHaveLength(2);
  },

  async "a trusted chain in Forwarded is read like X-Forwarded-For, and a malformed Forwarded is removed as a whole"(
    t: Tools,
  ): Promise<void> {
    rfc("7239-6-port");
    const chains = [
      [
        "for=6.6.6.6, for=203.0.113.7;proto=https, for=10.0.0.2",
        "for=203.0.113.7;proto=https, for=10.0.0.2",
      ],
      [
        'for=_evil, for="[2001:db8::7]:4711", for="[fd00::1]:_p"',
        'for="[2001:db8::7]:4711", for="[fd00::1]:_p"',
      ],
      [
        'for=10.0.0.9, for=_hidden;host="a, b", For=10.0.0.2',
        'for=_hidden;host="a, b", For=10.0.0.2',
      ],
      ["for=10.0.0.9, for=unknown", "for=unknown"],
      ['for="6.6.6.6, for=203.0.113.7', ""],
      ["for=[::1]", ""],
      ["for=10.0.0.1;for=203.0.113.7", ""],
    ] as const;
    for (const [sent, kept] of chains) {
      const inbound: Header[] = [
        ...forged.filter(([name]) => name !== "Forwarded"),
        ["Forwarded", sent],
      ];
      await t.ask(request("GET", "/", inbound), "rangedForwarded");
      const call = t.upstream.calls.at(-1);
      const element = "for=127.0.0.1;host=proxy.test;proto=http";
      expect(call?.all("forwarded").join(", "), sent).toBe(kept ? `${kept}, ${element}` : element);
      expect(call?.headers.filter(([name]) => /x[-_.]forwarded[-_.]/i.test(name))).toEqual([]);
    }
  },

  async "`via` adds this proxy to Via, and a request that has already passed this proxy is answered with 502"(
    t: Tools,
  ): Promise<void> {
    rfc(
      "9110-7.6-loop",
      "9110-7.6.3-via",
      "9110-7.6.3-firewall",
      "9110-7.6.3-combine",
      "7239-5.1-by",
      "7239-6.3-obfuscated",
    );
    await t.ask(request("GET", "/", [["Via", "1.0 first, 1.1 edges"]]), "traced");
    const [call] = t.upstream.calls;
    expect(call?.all("via").join(", ")).toBe("1.0 first, 1.1 edges, 1.1 edge");
    expect(call?.all("forwarded")).toEqual(["for=127.0.0.1;by=_edge;host=proxy.test;proto=http"]);
    for (const via of ["1.1 edge", "1.0 first, 2 EDGE (again)", "1.1 edge, 1.1 last"]) {
      const answer = await t.ask(request("POST", "/", [["Via", via]], "body"), "traced");
      expect(answer.status).toBe(502);
      expect(answer.get("proxy-status")).toBe("edge; error=proxy_loop_detected");
    }
    expect(t.upstream.calls).toHaveLength(1);
    // Without the option `via`, the proxy accepts the request.
    expect((await t.ask(request("GET", "/", [["Via", "1.1 edge"]]))).status).toBe(200);
  },

  async "the option `via` adds Via with the received HTTP version"(t: Tools): Promise<void> {
    rfc("9110-7.6.3-via");
    await t.ask("GET / HTTP/1.0\r\nHost: proxy.test\r\nVia: 2 first\r\n\r\n", "traced");
    expect(t.upstream.calls[0]?.all("via").join(", ")).toBe("2 first, 1.0 edge");
  },
};
