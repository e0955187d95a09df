/** The forwarding fields describe the client and the target. A client must not be able to forge them. */
import { expect } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { request, type Header } from "../helpers/wire.ts";

/** Forwarding fields that a client forges. */
export const forged: Header[] = [
  ["X-Forwarded-For", "6.6.6.6"],
  ["X-Forwarded-Proto", "https"],
  ["X-Forwarded-Host", "evil.test"],
  ["X-Forwarded-Port", "666"],
  ["X-Forwarded-Prefix", "/evil"],
  ["X-Forwarded-Anything", "evil"],
  ["Forwarded", "for=6.6.6.6;host=evil.test"],
  ["X_Forwarded_For", "6.6.6.6"],
  ["X_FORWARDED_HOST", "evil.test"],
  ["X-Forwarded_Proto", "https"],
  ["X-Real-IP", "6.6.6.6"],
  ["X_Real_IP", "6.6.6.6"],
  ["X-Client-IP", "6.6.6.6"],
  ["X-Cluster-Client-IP", "6.6.6.6"],
  ["X.Forwarded.For", "6.6.6.6"],
  ["X.Real.IP", "6.6.6.6"],
  ["X~Forwarded!Host", "evil.test"],
  ["X-Forwarded", "for=6.6.6.6"],
  ["Forwarded-For", "6.6.6.6"],
  ["Client-IP", "6.6.6.6"],
  ["True-Client-IP", "6.6.6.6"],
  ["CF-Connecting-IP", "6.6.6.6"],
  ["Fastly-Client-IP", "6.6.6.6"],
  ["Proxy", "http://evil.test"],
];

/** The forwarding fields that the upstream must get if the client is not a trusted proxy. */
export const own: Header[] = [
  ["x-forwarded-for", "127.0.0.1"],
  ["x-forwarded-host", "proxy.test"],
  ["x-forwarded-port", "80"],
  ["x-forwarded-proto", "http"],
];

/** Returns the forwarding fields, those with a client's address, and `Proxy`: names in lower case, sorted by name. */
export function forwardingFields(headers: Header[]): Header[] {
  return headers
    .filter(([name]) => /forwarded|[^a-z]ip$|^proxy$/i.test(name))
    .map(([name, value]): Header => [name.toLowerCase(), value])
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
}

async function expectRefused(t: Tools, head: string): Promise<void> {
  for (const setup of ["default", "hosted"] as const) {
    const answer = await t.ask(`GET / HTTP/1.1\r\n${head}\r\n\r\n`, setup);
    expect(answer.status, `${setup}: ${head}`).toBe(400);
    expect(t.upstream.calls).toEqual([]);
  }
}

/** Forges an address in this field, and expects that the last address in it is not the forged one. */
async function expectLastAddress(t: Tools, name: string, value: string): Promise<void> {
  await t.ask(request("GET", "/", [[name, value]]));
  expect(t.upstream.calls).toHaveLength(1);
  const last = t.upstream.calls[0]?.all(name).join().split(",").at(-1);
  expect(last).not.toMatch(/6\.6\.6\.6/);
}

export const forwarding = {
  async "Host is the target's, and X-Forwarded-* describes the client"(t: Tools): Promise<void> {
    rfc("9110-7.2-host", "9112-3.2-host-sent");
    await t.ask(request("GET", "/", [["Host", "shop.test:8080"]]));
    const [call] = t.upstream.calls;
    expect(call?.get("host")).toBe(t.upstream.authority);
    expect(forwardingFields(call?.headers ?? [])).toEqual([
      ["x-forwarded-for", "127.0.0.1"],
      ["x-forwarded-host", "shop.test:8080"],
      ["x-forwarded-port", "8080"],
      ["x-forwarded-proto", "http"],
    ]);
  },

  async "CVE-2021-33197: naming X-Forwarded-* in Connection drops the client's values and keeps the proxy's"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.1-connection");
    const nominated =
      "X-Forwarded-For, x-forwarded-host, X_Forwarded_Proto, X-Forwarded-Port, Host";
    await t.ask(request("GET", "/", [["Connection", nominated], ...forged]));
    const [call] = t.upstream.calls;
    expect(call?.get("host")).toBe(t.upstream.authority);
    expect(forwardingFields(call?.headers ?? [])).toEqual(own);
  },

  async "CVE-2021-33197: a field that the proxy adds to a request stays if the client names it in Connection"(
    t: Tools,
  ): Promise<void> {
    await t.ask(request("GET", "/"));
    const added = t.upstream.calls[0]?.names.filter((name) => name !== "connection") ?? [];
    for (const name of added) {
      await t.ask(request("GET", "/", [["Connection", `keep-alive, ${name}`]]));
      expect(t.upstream.calls.at(-1)?.names, name).toEqual(expect.arrayContaining(added));
    }
  },

  async "the last address of X-Forwarded-For is the client's, or the field is absent"(
    t: Tools,
  ): Promise<void> {
    await expectLastAddress(t, "X-Forwarded-For", "6.6.6.6");
  },

  async "the last address of Forwarded is the client's, or the field is absent"(
    t: Tools,
  ): Promise<void> {
    await expectLastAddress(t, "Forwarded", "for=6.6.6.6");
  },

  async "CVE-2026-3635: forged forwarding fields and their _ aliases are removed"(
    t: Tools,
  ): Promise<void> {
    advisory("CVE-2026-35051", "CVE-2026-39858");
    await t.ask(request("GET", "/", forged));
    expect(forwardingFields(t.upstream.calls[0]?.headers ?? [])).toEqual(own);
  },

  async "xfwd: false adds no forwarding fields, and removes those of the client"(
    t: Tools,
  ): Promise<void> {
    await t.ask(request("GET", "/", forged), "plain");
    expect(forwardingFields(t.upstream.calls[0]?.headers ?? [])).toEqual([]);
  },

  async 'xfwd: "forwarded" adds Forwarded in RFC 7239 form, quoted where needed'(
    t: Tools,
  ): Promise<void> {
    rfc("7239-4-once", "7239-4-grammar", "7239-5.4-proto");
    await t.ask(request("GET", "/", [["Host", "shop.test:8080"], ...forged]), "forwarded");
    expect(forwardingFields(t.upstream.calls[0]?.headers ?? [])).toEqual([
      ["forwarded", 'for=127.0.0.1;host="shop.test:8080";proto=http'],
    ]);
  },

  async "CVE-2026-30851: duplicates and _ aliases of fields that the proxy sets or deletes are removed"(
    t: Tools,
  ): Promise<void> {
    const copies: Header[] = [
      "Remote-User",
      "Remote_User",
      "REMOTE_USER",
      "X-User",
      "X_User",
      "x_user",
      "X.User",
      "x~user",
      "X-Filtered",
      "X.Filtered",
    ].map((name): Header => [name, "evil"]);
    await t.ask(request("GET", "/", copies), "identity");
    const found = t.upstream.calls[0]?.headers.filter(([name]) => /user|filtered/i.test(name));
    expect(found).toEqual([["X-User", "alice"]]);
  },

  async "changeOrigin: false forwards the client's Host"(t: Tools): Promise<void> {
    await t.ask(request("GET", "/", [["Host", "shop.test:8080"]]), "hosted");
    expect(t.upstream.calls[0]?.all("host")).toEqual(["shop.test:8080"]);
  },

  async "`host` sets the Host field, and `via` appends to Via"(t: Tools): Promise<void> {
    await t.ask(request("GET", "/", [["Via", "1.0 first"]]), "named");
    const [call] = t.upstream.calls;
    expect(call?.all("host")).toEqual(["shop.example:8443"]);
    expect(call?.all("via").join(", ")).toBe("1.0 first, 1.1 edge");
    await t.ask(request("GET", "/"));
    expect(t.upstream.calls[1]?.all("via")).toEqual([]);
  },

  async "a request with two Host fields is refused"(t: Tools): Promise<void> {
    await expectRefused(t, "Host: proxy.test\r\nHost: evil.test");
    await expectRefused(t, "Host: proxy.test\r\nhost: proxy.test");
  },

  async "a request without Host is refused"(t: Tools): Promise<void> {
    rfc("9112-3.2-host-received");
    await expectRefused(t, "X-A: b");
  },

  async "CVE-2026-33131, CVE-2026-33732: a request whose Host is not an authority is refused"(
    t: Tools,
  ): Promise<void> {
    const hosts = [
      "localhost:3000/abc?",
      "a/b",
      "a?b",
      "a#b",
      "user@evil.test",
      "a\\b",
      "a b",
      "a\tb",
      "evil.test/x?",
      'a"b',
      "<b>",
      "[::1",
      "[::1]x",
      "[:::1]",
      "[::1%25lo]",
      "::1",
      "a:80:90",
      "a:x",
      "a:65536",
      ":80",
      "a%2eb",
      "a%00b",
      "a{b}",
      "a|b",
      "a^b",
      "a`b",
      "\x80",
      "caf\xe9.test",
      "\xc3\xa9.test",
      "a.test\xa0",
    ];
    for (const setup of ["default", "hosted"] as const) {
      for (const host of hosts) {
        const answer = await t.ask(request("GET", "/info", [["Host", host]]), setup);
        expect(answer.status, `${setup}: ${host}`).toBe(400);
        expect(t.upstream.calls).toEqual([]);
      }
    }
  },

  async "a Host that is an authority is forwarded unchanged in X-Forwarded-Host"(
    t: Tools,
  ): Promise<void> {
    for (const host of [
      "a",
      "A.Test:80",
      "a_b-c.d.",
      "127.0.0.1:8080",
      "[::1]",
      "[2001:db8::7]:8443",
    ]) {
      expect((await t.ask(request("GET", "/info", [["Host", host]]))).status, host).toBe(200);
      expect(t.upstream.calls.at(-1)?.all("x-forwarded-host"), host).toEqual([host]);
    }
  },
};
