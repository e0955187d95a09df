/** The header of the PROXY protocol for connections to upstreams. */
import { describe, expect, test } from "vitest";
import { parseHeader } from "../../../command/limits/proxyheader.ts";
import { type Endpoints, makeHeader } from "../../../runtimes/sockets/clientheader.ts";

const IPV4: Endpoints = {
  localAddress: "10.0.0.1",
  localPort: 1234,
  remoteAddress: "10.0.0.2",
  remotePort: 443,
};
const IPV6: Endpoints = { ...IPV4, localAddress: "fd00::1", remoteAddress: "fd00::2" };
const UNIX: Endpoints = { remoteAddress: undefined, remotePort: undefined };
const SIGNATURE = "0d0a0d0a000d0a515549540a";

describe("headers of version 1", () => {
  test.each([
    ["an IPv4 client", "192.0.2.7", IPV4, "TCP4 192.0.2.7 10.0.0.2 0 443"],
    ["an IPv6 client", "2001:DB8::7", IPV6, "TCP6 2001:db8::7 fd00::2 0 443"],
    ["an IPv4 client and an IPv6 upstream", "192.0.2.7", IPV6, "TCP4 192.0.2.7 0.0.0.0 0 443"],
    ["an IPv6 client and an IPv4 upstream", "2001:db8::7", IPV4, "TCP6 2001:db8::7 :: 0 443"],
    ["an IPv4 client in IPv6 form", "::ffff:192.0.2.7", IPV4, "TCP4 192.0.2.7 10.0.0.2 0 443"],
    ["a client with a zone", "fe80::7%eth0", IPV6, "TCP6 fe80::7 fd00::2 0 443"],
    ["a client, and a Unix socket", "192.0.2.7", UNIX, "TCP4 192.0.2.7 0.0.0.0 0 0"],
    ["no client", undefined, IPV4, "TCP4 10.0.0.1 10.0.0.2 1234 443"],
    ["no client, and a Unix socket", undefined, UNIX, "UNKNOWN"],
    ["a name instead of an address", "client.example", IPV4, "TCP4 10.0.0.1 10.0.0.2 1234 443"],
    ["a list of addresses", "192.0.2.7, 192.0.2.8", IPV4, "TCP4 10.0.0.1 10.0.0.2 1234 443"],
    ["an address with a line break", "192.0.2.7\r\n", IPV4, "TCP4 10.0.0.1 10.0.0.2 1234 443"],
  ])("`makeHeader` makes the right header for %s", (_, client, ends, line) => {
    expect(Buffer.from(makeHeader("v1", client, ends)).toString()).toBe(`PROXY ${line}\r\n`);
  });
});

describe("headers of version 2", () => {
  const none = "0".repeat(32);
  test.each([
    ["an IPv4 client", "192.0.2.7", IPV4, "2111000cc00002070a000002000001bb"],
    ["an IPv4 client and an IPv6 upstream", "192.0.2.7", IPV6, "2111000cc000020700000000000001bb"],
    [
      "an IPv6 client",
      "2001:db8::7",
      IPV6,
      `2121002420010db8${"7".padStart(24, "0")}fd00${"2".padStart(28, "0")}000001bb`,
    ],
    [
      "an IPv6 client and an IPv4 upstream",
      "2001:db8::7",
      IPV4,
      `2121002420010db8${"7".padStart(24, "0")}${none}000001bb`,
    ],
    ["no client", undefined, IPV4, "20000000"],
    ["a name instead of an address", "client.example", UNIX, "20000000"],
  ])("`makeHeader` makes the right header for %s", (_, client, ends, digits) => {
    expect(Buffer.from(makeHeader("v2", client, ends)).toString("hex")).toBe(SIGNATURE + digits);
  });
});

test.each(["v1", "v2"] as const)("the command can parse headers of version %s", (version) => {
  for (const client of ["192.0.2.7", "2001:db8::7", "::", "0.0.0.0", "::ffff:1.2.3.4"]) {
    const header = Buffer.from(makeHeader(version, client, IPV4));
    const parser = parseHeader();
    let at = 0;
    let step = parser.next();
    while (!step.done) step = parser.next(header.subarray(at, (at += step.value)));
    expect([step.value, at]).toEqual([client.replace("::ffff:", ""), header.length]);
  }
});
