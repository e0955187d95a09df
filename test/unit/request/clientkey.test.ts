/** The key of a request's client, by which waiting requests are grouped. */
import { expect, test } from "vitest";
import type { HeaderList } from "../../../src/fields/headers.ts";
import { type ClientRules, clientKeyOf } from "../../../src/request/clientkey.ts";
import { type Incoming, WebIncoming } from "../../../src/request/incoming.ts";
import { createTrust } from "../../../src/request/trust.ts";

function keyOf(
  address: string | undefined,
  headers: HeaderList = [],
  rules: ClientRules = {},
): string | undefined {
  const request = new Request("http://a.test/", { headers: { "x-own": "198.51.100.9" } });
  const incoming: Incoming = new WebIncoming(request, address, "1.1", headers);
  return clientKeyOf(incoming, rules, "context");
}

const trusts = createTrust(["10.0.0.0/8", "fd00::/8"]);
const FORWARDED = ["X-Forwarded-For", "203.0.113.1, 192.0.2.7, 10.9.9.9"];

test.each<[string, string | undefined, string | undefined]>([
  ["IPv4", "192.0.2.7", "192.0.2.7"],
  ["IPv4 in the form of IPv6", "::ffff:192.0.2.7", "192.0.2.7"],
  ["a network of IPv6", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2/64"],
  ["the same network", "2001:db8:1:2::1", "2001:db8:1:2/64"],
  ["another network", "2001:db8:1:3::1", "2001:db8:1:3/64"],
  ["an unknown address", undefined, undefined],
  ["a text that is no address", "unix:", "unix:"],
])("%s: a client with the address %s has the key %s", (_, address, key) => {
  expect(keyOf(address)).toBe(key);
});

test("forwarding fields do not change the key without trustProxy, or if the peer is not trusted", () => {
  expect(keyOf("10.0.0.1", FORWARDED)).toBe("10.0.0.1");
  expect(keyOf("198.51.100.1", FORWARDED, { trusts })).toBe("198.51.100.1");
});

test.each<[string, HeaderList, string]>([
  ["the last address that is not trusted", FORWARDED, "192.0.2.7"],
  ["the first address if all are trusted", ["x-forwarded-for", "10.2.2.2,10.3.3.3"], "10.2.2.2"],
  [
    "the last of several fields",
    ["X-Forwarded-For", "192.0.2.1", "X-FORWARDED-FOR", "192.0.2.2"],
    "192.0.2.2",
  ],
  ["the address without its port", ["X-Forwarded-For", "192.0.2.7:4711"], "192.0.2.7"],
  ["the network of an IPv6 address", ["X-Forwarded-For", "2001:db8:0:1::5"], "2001:db8:0:1/64"],
  [
    "the last address of Forwarded",
    ["Forwarded", 'for=192.0.2.1, for="[2001:db8::1]:1"'],
    "2001:db8:0:0/64",
  ],
  ["a name in Forwarded", ["Forwarded", "for=_hidden"], "_hidden"],
  [
    "X-Forwarded-For if Forwarded is there as well",
    [...FORWARDED, "Forwarded", "for=198.51.100.2"],
    "192.0.2.7",
  ],
  ["the proxy's address if there are no forwarding fields", ["Accept", "*/*"], "10.0.0.1"],
  ["the proxy's address if Forwarded is malformed", ["Forwarded", "for=;;"], "10.0.0.1"],
])("the key of a client behind a trusted proxy is made of %s", (_, headers, key) => {
  expect(keyOf("10.0.0.1", headers, { trusts })).toBe(key);
});

test("the key is made of the address that clientAddress returns", () => {
  const own = (request: Request, context: unknown): string | undefined =>
    context === "context" ? (request.headers.get("x-own") ?? undefined) : undefined;
  expect(keyOf("10.0.0.1", FORWARDED, { trusts, clientAddress: own })).toBe("198.51.100.9");
});

test("if clientAddress returns the address of a trusted proxy, the key is made of the forwarding fields", () => {
  const proxy = (): string => "10.0.0.2";
  expect(keyOf(undefined, FORWARDED, { trusts, clientAddress: proxy })).toBe("192.0.2.7");
  expect(keyOf("198.51.100.1", FORWARDED, { trusts, clientAddress: proxy })).toBe("10.0.0.2");
});

test("a request has no key if clientAddress throws or returns undefined", () => {
  const broken = (): never => {
    throw new Error("of the app");
  };
  expect(keyOf("192.0.2.1", [], { clientAddress: broken })).toBeUndefined();
  const unknown = (): undefined => undefined;
  expect(keyOf("192.0.2.1", [], { clientAddress: unknown })).toBeUndefined();
});
