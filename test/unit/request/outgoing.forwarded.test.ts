import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { addForwarded, type ClientFacts } from "../../../src/request/outgoing.ts";

const client: ClientFacts = { address: "192.0.2.7", secure: false, host: "shop.test:8080" };

function forwarded(
  style: "x-forwarded" | "forwarded" | "none",
  over: Partial<ClientFacts> = {},
  inbound: string[] = [],
  trusted = inbound.length > 0,
): string[] {
  const headers = [...inbound];
  addForwarded(headers, style, trusted, { ...client, ...over });
  return headers;
}

describe("the style x-forwarded", () => {
  test("adds address, scheme, host and port", () => {
    const fields = [
      ["X-Forwarded-For", "192.0.2.7"],
      ["X-Forwarded-Proto", "http"],
      ["X-Forwarded-Host", "shop.test:8080"],
      ["X-Forwarded-Port", "8080"],
    ];
    expect(forwarded("x-forwarded")).toEqual(fields.flat());
  });

  test.each([
    ["shop.test", false, "80"],
    ["shop.test", true, "443"],
    ["[2001:db8::1]", false, "80"],
    ["[2001:db8::1]:81", true, "81"],
  ])("the port of the host %s, secure: %s, is %s", (host, secure, port) => {
    const headers = forwarded("x-forwarded", { host, secure });
    expect(headers.slice(-2)).toEqual(["X-Forwarded-Port", port]);
    expect(headers[3]).toBe(secure ? "https" : "http");
  });

  test("omits values that are not known", () => {
    expect(forwarded("x-forwarded", { address: undefined, host: undefined })).toEqual([
      "X-Forwarded-Proto",
      "http",
    ]);
  });

  test("appends the address to a trusted peer's chain, and keeps the peer's other fields", () => {
    const inbound = ["x-forwarded-for", "1.1.1.1", "A", "1", "X-FORWARDED-FOR", "2.2.2.2, 3.3.3.3"];
    const asked = ["x-forwarded-proto", "https", "X-Forwarded-Host", "a", "X-Forwarded-Port", "1"];
    const list = ["X-Forwarded-For", "1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7"];
    expect(forwarded("x-forwarded", {}, [...inbound, ...asked])).toEqual([
      "A",
      "1",
      ...asked,
      ...list,
    ]);
  });

  test.each([
    [["X-Forwarded-Proto", "https"], "shop.test", "443"],
    [["X-Forwarded-Proto", "https , http"], "shop.test", "443"],
    [["X-Forwarded-Proto", "https\xa0"], "shop.test", "80"],
    [["X-Forwarded-Host", "shop.example:8443"], "shop.test:8080", "8443"],
    [["X-Forwarded-Host", "shop.example:8443, inner"], "shop.test:8080", "8443"],
    [["X-Forwarded-Host", "shop.example"], "shop.test:8080", "80"],
    [["X-Forwarded-Host", "shop.example", "X-Forwarded-Proto", "https"], "shop.test:8080", "443"],
  ])("with the trusted fields %j and Host %s, the port is %s", (inbound, host, port) => {
    const headers = forwarded("x-forwarded", { host }, inbound);
    expect(headers.slice(-2)).toEqual(["X-Forwarded-Port", port]);
  });

  test("forwarding fields of an untrusted peer do not change the added fields", () => {
    const headers = forwarded("x-forwarded", {}, ["X-Forwarded-Proto", "https"], false);
    expect(headers.slice(-2)).toEqual(["X-Forwarded-Port", "8080"]);
    expect(headers.filter((each) => each === "X-Forwarded-Proto")).toHaveLength(2);
  });

  test("empty lines of a chain add no empty members to the list", () => {
    rfc("9110-5.6.1.1-empty-sent");
    const inbound = ["", "1.1.1.1", " "].flatMap((value) => ["X-Forwarded-For", value]);
    expect(forwarded("x-forwarded", {}, inbound).slice(0, 2)).toEqual([
      "X-Forwarded-For",
      "1.1.1.1, 192.0.2.7",
    ]);
  });

  test("leaves out the zone of an IPv6 address", () => {
    expect(forwarded("x-forwarded", { address: "fe80::1%eth0" })[1]).toBe("fe80::1");
  });
});

describe("the style forwarded", () => {
  test.each<[Partial<ClientFacts>, string]>([
    [{}, 'for=192.0.2.7;host="shop.test:8080";proto=http'],
    [{ host: "shop.test", secure: true }, "for=192.0.2.7;host=shop.test;proto=https"],
    [{ address: "2001:db8::1", host: undefined }, 'for="[2001:db8::1]";proto=http'],
    [{ address: undefined, host: undefined }, "for=unknown;proto=http"],
    [{ address: "_hidden", host: undefined }, "for=_hidden;proto=http"],
    [{ address: "fe80::1%eth0", host: undefined }, 'for="[fe80::1]";proto=http'],
    [{ address: "[2001:db8::1]:80", host: undefined }, 'for="[2001:db8::1]:80";proto=http'],
    [{ host: "[2001:db8::1]:81" }, 'for=192.0.2.7;host="[2001:db8::1]:81";proto=http'],
    [{ by: "edge", host: undefined }, "for=192.0.2.7;by=_edge;proto=http"],
    [{ host: 'a"b\\c' }, 'for=192.0.2.7;host="a\\"b\\\\c";proto=http'],
    // `clientAddress` may return text from a header field. Such text must not add parameters to the element.
    [{ address: "1.1.1.1;proto=https", host: undefined }, 'for="1.1.1.1;proto=https";proto=http'],
    [{ address: "1.1.1.1, for=2.2.2.2", host: undefined }, 'for="1.1.1.1, for=2.2.2.2";proto=http'],
  ])("turns the facts %j into the element %s", (facts, element) => {
    rfc("7239-6.1-ipv6", "7239-4-grammar");
    expect(forwarded("forwarded", facts)).toEqual(["Forwarded", element]);
  });

  test("appends an element to the list of a trusted peer", () => {
    const facts = { host: undefined };
    expect(forwarded("forwarded", facts, ["forwarded", "for=a", "Forwarded", "for=b"])).toEqual([
      "Forwarded",
      "for=a, for=b, for=192.0.2.7;proto=http",
    ]);
  });
});

test("the style of xfwd: false adds no field, and changes none", () => {
  expect(forwarded("none", {}, ["X-Forwarded-For", "1"])).toEqual(["X-Forwarded-For", "1"]);
});
