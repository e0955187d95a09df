/** Advisories about header fields that the upstream could take for fields of the proxy, although a client sent them. */
import { expect } from "vitest";
import type { Tools } from "./_suite.ts";
import { chunk, request, type Header } from "../helpers/wire.ts";
import { own, forwardingFields } from "./forwarding.ts";

/** The characters other than `_` that PHP, CGI and others replace in a name by `_`. */
const FOLDED = "!#$%&'*+.^`|~".split("");

/** The fields that the proxy adds, by the name of the setup with which it adds them. */
const ADDED = {
  default: ["Host", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto"],
  forwarded: ["Forwarded"],
  traced: ["Via"],
  timed: ["Traceparent"],
  identity: ["X-User"],
  hooked: ["X-Hooked"],
  trusting: ["X-Forwarded-For"],
} as const;

/** Returns the names with this character in place of each `-`. */
function spell(names: readonly string[], character: string): string[] {
  return names.map((name) => name.replaceAll("-", () => character));
}

export const advisedFields = {
  async "CVE-2026-88011: aliases of fields that the proxy sets or deletes are dropped, with a dot or _ in place of -"(
    t: Tools,
  ): Promise<void> {
    const names = ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"];
    const aliases = [...names, "X-User", "Remote-User", "X-Filtered"];
    for (const spelling of [".", "_"]) {
      const fields = spell(aliases, spelling).map((name): Header => [name, "evil"]);
      await t.ask(request("GET", "/", fields), "identity");
      const call = t.upstream.calls.at(-1);
      expect(call?.headers.filter(([, value]) => value.includes("evil"))).toEqual([]);
      expect(call?.all("x-user")).toEqual(["alice"]);
    }
  },

  async "CVE-2026-88011: aliases of fields that the proxy sets or deletes are dropped or refused, with any punctuation for -"(
    t: Tools,
  ): Promise<void> {
    for (const character of FOLDED) {
      const fields = spell(["X-Forwarded-For", "X-Real-IP", "X-User", "X-Filtered"], character);
      const evil = fields.map((name): Header => [name, "evil"]);
      const answer = await t.ask(request("GET", "/", evil), "identity");
      // A server may refuse the request, or drop the field.
      const call = t.refusedOrOne(answer);
      const passed = call?.headers.filter(([, value]) => value.includes("evil")) ?? [];
      expect(passed, character).toEqual([]);
      await t.upstream.reset();
    }
  },

  async "CVE-2026-88004: trailer fields that could be read as fields of the proxy are dropped"(
    t: Tools,
  ): Promise<void> {
    const names = ["X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "X-User", "X-Filtered"];
    for (const character of ["-", "_", "."]) {
      const client = await t.connect("identity");
      const lines = spell(names, character).map((name) => `${name}: evil\r\n`);
      const head = request("POST", "/", [["Transfer-Encoding", "chunked"]]);
      client.send(head, chunk("hello"), "0\r\n", ...lines, "X-Sum: 1\r\n\r\n");
      const answer = await client.read();
      // Bun's server refuses every request with trailers.
      if (t.host.name.endsWith("bun") && answer.status === 400) continue;
      expect(answer.status).toBe(200);
      const trailers = t.upstream.calls.at(-1)?.trailers ?? [];
      expect(trailers.filter(([name]) => name.toLowerCase() !== "x-sum")).toEqual([]);
    }
  },

  async "GHSA-f59h-q822-g45g: `filterHeaders` drops each spelling of a name"(
    t: Tools,
  ): Promise<void> {
    const names = ["X-Filtered", "x-filtered", "X_Filtered", "X_FILTERED", "x_filtered"];
    await t.ask(
      request(
        "GET",
        "/",
        names.map((name): Header => [name, "evil"]),
      ),
      "identity",
    );
    expect(t.upstream.calls[0]?.names.filter((name) => name.includes("filtered"))).toEqual([]);
  },

  async "CVE-2026-33805, GHSA-62c8-mh53-4cqv, GHSA-92mv-8f8w-wq52: a field that the proxy adds reaches the upstream although Connection names it"(
    t: Tools,
  ): Promise<void> {
    for (const [setup, names] of Object.entries(ADDED)) {
      for (const name of names) {
        for (const option of [
          name,
          name.toLowerCase(),
          name.toUpperCase(),
          spell([name], "_")[0],
        ]) {
          const fields: Header[] = [
            ["Connection", `keep-alive, ${option}`],
            ["Connection", `${option}`],
          ];
          await t.ask(request("GET", "/", fields), setup as "default");
          const values = t.upstream.calls.at(-1)?.all(name) ?? [];
          expect(values.filter(Boolean), `${setup}: ${option}`).toHaveLength(1);
        }
      }
    }
  },

  async "GHSA-7r4p-vjf4-gxv4: a field that a hook sets only for some paths never has the client's value"(
    t: Tools,
  ): Promise<void> {
    const users: (string[] | undefined)[] = [];
    for (const path of ["/alice", "/anyone"]) {
      await t.ask(
        request("GET", path, [
          ["X-User", "root"],
          ["X_User", "root"],
        ]),
        "guarded",
      );
      const call = t.upstream.calls.at(-1);
      users.push(call?.all("x-user"), call?.all("x_user"));
    }
    expect(users).toEqual([["alice"], [], [], []]);
  },

  async "CVE-2026-47674: a trusted range contains an IPv6 address in each of its spellings, or in none"(
    t: Tools,
  ): Promise<void> {
    for (const [sent, kept] of [
      // Each spelling of 127.0.0.1 is a trusted proxy, so the address to the left of it is the client's.
      ["6.6.6.6, 203.0.113.7, 0:0:0:0:0:ffff:7f00:1", "203.0.113.7, 0:0:0:0:0:ffff:7f00:1"],
      ["6.6.6.6, 203.0.113.7, ::FFFF:127.0.0.1", "203.0.113.7, ::FFFF:127.0.0.1"],
      ["6.6.6.6, 203.0.113.7, 0000::ffff:7F00:0001", "203.0.113.7, 0000::ffff:7F00:0001"],
      // A mapped address outside of the trusted range is not a trusted proxy.
      ["6.6.6.6, 0:0:0:0:0:ffff:cb00:7107", "0:0:0:0:0:ffff:cb00:7107"],
      // `::7f00:1` is another address than 127.0.0.1, because it lacks `ffff`.
      ["6.6.6.6, 0:0:0:0:0:0:7f00:1", "0:0:0:0:0:0:7f00:1"],
    ] as const) {
      await t.ask(request("GET", "/", [["X-Forwarded-For", sent]]), "ranged");
      const value = t.upstream.calls.at(-1)?.all("x-forwarded-for").join(", ");
      expect(value, sent).toBe(`${kept}, 127.0.0.1`);
    }
    await t.ask(request("GET", "/", [["X-Forwarded-For", "::ffff:7f00:1"]]), "rangedElsewhere");
    expect(forwardingFields(t.upstream.calls.at(-1)?.headers ?? [])).toEqual(own);
  },
};
