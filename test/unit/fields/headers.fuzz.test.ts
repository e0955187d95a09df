import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { NameSet } from "../../../src/fields/headers.ts";
import { REQUEST_ASSERTIONS, REQUEST_DROPPED } from "../../../src/fields/hopbyhop.ts";
import { cleanRequestHeaders } from "../../../src/request/outgoing.ts";
import { cleanResponseHeaders } from "../../../src/response/clean.ts";
import { fakeRequest, fakeResponse } from "../../helpers/fakes.ts";

const words = (text: string): string[] => text.split(" ");

/**
 * The hop-by-hop fields of RFC 9110 §7.6.1 and related standards. This list repeats the one in src/, so that the two check each
 * other.
 */
const HOP_BY_HOP = words(
  "connection keep-alive proxy-connection te trailer transfer-encoding upgrade http2-settings",
);
const REQUEST_ENDS = words(
  "expect host content-length proxy-authorization forwarded x-real-ip x-client-ip x-cluster-client-ip",
);
const RESPONSE_ENDS = words("alt-svc proxy-authenticate");

const lower = (name: string): string => name.toLowerCase().replaceAll("_", "-");

const name = fc
  .tuple(
    fc.oneof(
      fc.constantFrom(...HOP_BY_HOP, ...REQUEST_ENDS, ...RESPONSE_ENDS),
      fc.constantFrom("x-forwarded-for", "x-forwarded-x", "content-type"),
      fc.stringMatching(/^[a-c_-]{1,3}$/),
    ),
    fc.array(fc.nat(3), { minLength: 20, maxLength: 20 }),
  )
  .map(([plain, dice]) =>
    plain.replaceAll(/./g, (letter, at: number) => {
      const roll = dice[at];
      return roll === 0 ? letter.toUpperCase() : roll === 1 && letter === "-" ? "_" : letter;
    }),
  );
const value = fc.stringMatching(/^[!-~\u00a0-\u00ff]{0,8}$/);

/** Generates hostile header lists, except those with which the whole message is refused. */
const lists = fc
  .array(fc.tuple(name, value, fc.array(name, { maxLength: 3 })), { maxLength: 12 })
  .map((fields) => {
    const once = new Set<string>();
    return fields.flatMap(([field, text, nominated]) => {
      const plain = field.toLowerCase();
      if (plain === "connection") return [field, nominated.join(" ,")];
      if (plain === "transfer-encoding") return [field, "chunked"];
      if (plain !== "host" && plain !== "content-length") return [field, text];
      if (once.has(plain)) return [];
      once.add(plain);
      return [field, plain === "host" ? "a.test" : "7"];
    });
  });

/** Returns the fields that are neither in `endHere`, nor have one of the prefixes, nor are named in Connection. */
function survivors(list: string[], endHere: string[], prefixes: string[]): string[] {
  const pairs = Array.from({ length: list.length / 2 }, (_, i) => list.slice(i * 2, i * 2 + 2));
  const gone = new Set(endHere);
  for (const [field = "", text = ""] of pairs) {
    if (field.toLowerCase() !== "connection") continue;
    for (const option of text.split(",")) gone.add(lower(option.trim()));
  }
  return pairs
    .filter(
      ([field = ""]) =>
        !gone.has(lower(field)) && !prefixes.some((prefix) => lower(field).startsWith(prefix)),
    )
    .flat();
}

const dropped = new NameSet(REQUEST_DROPPED, REQUEST_ASSERTIONS);

describe("fuzzed header lists", () => {
  test("of a request lose hop-by-hop fields and those named in Connection, and keep all others", () => {
    const endHere = [...HOP_BY_HOP, ...REQUEST_ENDS];
    fc.assert(
      fc.property(lists, (list) => {
        expect(cleanRequestHeaders(list, dropped).headers).toEqual(
          survivors(list, endHere, ["x-forwarded-"]),
        );
      }),
      { numRuns: 3_000 },
    );
  });

  test("of a response lose hop-by-hop fields and those named in Connection, and keep all others", () => {
    const endHere = [...HOP_BY_HOP, ...RESPONSE_ENDS];
    fc.assert(
      fc.property(lists, (list) => {
        const named = (i: number, field: string): boolean =>
          i % 2 === 0 && list[i]?.toLowerCase() === field;
        const chunked = list.some((_, i) => named(i, "transfer-encoding"));
        // A Content-Length beside Transfer-Encoding is dropped, because it need not be the length of the body.
        const sized = list.filter((_, i) => !chunked || !named(i - (i % 2), "content-length"));
        expect(cleanResponseHeaders(fakeResponse({ headers: list }), fakeRequest())).toEqual(
          survivors(sized, endHere, []),
        );
      }),
      { numRuns: 3_000 },
    );
  });
});
