/** The conversion of the opening handshake of a WebSocket between HTTP/2 and HTTP/1.1. */
import { describe, expect, test } from "vitest";
import { getHeader, getHeaders, type HeaderList } from "../../../src/fields/headers.ts";
import {
  assertKey,
  toHandshake,
  toSwitch,
  withoutHttp1,
} from "../../../src/websocket/extendedconnect.ts";
import { acceptOf, isKey } from "../../../src/websocket/handshake.ts";

const VERSION = ["sec-websocket-version", "13"];

describe("toHandshake", () => {
  test("adds the fields that only HTTP/1.1 has, with a new key for each handshake", () => {
    const fields = [...VERSION, "sec-websocket-key", "x", "upgrade", "h2c", "x-other", "1"];
    const made = toHandshake(fields);
    expect(made.slice(0, 8)).toEqual([
      ...VERSION,
      "x-other",
      "1",
      "Connection",
      "Upgrade",
      "Upgrade",
      "websocket",
    ]);
    const keys = [made, toHandshake(fields)].map((each) => getHeaders(each, "sec-websocket-key"));
    expect(keys.flat()).toHaveLength(2);
    expect(keys.flat().every(isKey)).toBe(true);
    expect(keys[0]).not.toEqual(keys[1]);
  });

  test.each<[name: string, ...values: string[]]>([
    ["sec-websocket-protocol", "chat"],
    ["sec-websocket-protocol", "chat, v2.chat ,x"],
    ["sec-websocket-protocol", "chat", "v2"],
    ["sec-websocket-extensions", "permessage-deflate; client_max_window_bits"],
    ["sec-websocket-extensions", 'a; b=1; c="q\\"d, e"', "f"],
  ])("accepts %s: %j", (name, ...values) => {
    const fields = [...VERSION, ...values.flatMap((value) => [name, value])];
    expect(getHeaders(toHandshake(fields), name)).toEqual(values);
  });

  test.each<[fields: HeaderList, named: string]>([
    [[], "sec-websocket-version"],
    [["sec-websocket-version", "8"], "sec-websocket-version"],
    [[...VERSION, ...VERSION], "sec-websocket-version"],
    ...["", "a b", "a,,b", "a,", '"a"', "a;b"].map((value): [HeaderList, string] => [
      [...VERSION, "sec-websocket-protocol", value],
      "sec-websocket-protocol",
    ]),
    ...["", "a;", "a; =b", 'a; b="', "a b", "a; b=c d", ","].map((value): [HeaderList, string] => [
      [...VERSION, "sec-websocket-extensions", value],
      "sec-websocket-extensions",
    ]),
  ])("refuses %j with 400", (fields, named) => {
    expect(() => toHandshake(fields)).toThrow(
      expect.objectContaining({ status: 400, message: expect.stringContaining(named) as string }),
    );
  });

  test("checks a long field in linear time", () => {
    const value = `${"a;".repeat(10_000)}"`;
    expect(() => toHandshake([...VERSION, "sec-websocket-extensions", value])).toThrow(/cannot/);
  });
});

test("withoutHttp1 drops the fields that HTTP/2 does not have", () => {
  const fields = ["Sec-WebSocket-Accept", "a", "Upgrade", "websocket", "Connection", "Upgrade"];
  expect(withoutHttp1([...fields, "Sec-WebSocket-Key", "k", "X", "1"])).toEqual(["X", "1"]);
});

test("toSwitch itself answers the key of the handshake, and drops the upstream's Sec-WebSocket-Accept", async () => {
  const key = "dGhlIHNhbXBsZSBub25jZQ==";
  const answer = ["sec-websocket-accept", "wrong", "x-other", "1"];
  const made = await toSwitch(answer, ["Sec-WebSocket-Key", key]);
  expect(getHeaders(made, "sec-websocket-accept")).toEqual([await acceptOf(key)]);
  expect(getHeader(made, "x-other")).toBe("1");
  expect(getHeader(made, "upgrade")).toBe("websocket");
});

test("assertKey refuses a handshake whose key is missing or malformed", () => {
  expect(() => assertKey(["Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="])).not.toThrow();
  for (const list of [[], ["sec-websocket-key", "short"]]) {
    expect(() => assertKey(list)).toThrow(expect.objectContaining({ status: 400 }));
  }
});
