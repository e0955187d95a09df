import { expect, test } from "vitest";
import { hostVersion, isInRange } from "../hosts/_node.ts";
import { explainBytes, makeBody } from "./blocks.ts";
import { canDo, FEATURES, limits } from "./limits.ts";
import { locate, makeResponse } from "./message.ts";
import { type Abilities, planSession } from "./planner.ts";

const all: Abilities = { has: () => true, intrusions: true };
const sessions = Array.from({ length: 500 }, (_, index) => planSession(1, index, all));

test("the same seed creates the same plans, and another seed creates other plans", () => {
  expect(planSession(1, 77, all)).toEqual(sessions[77]);
  expect(planSession(2, 77, all)).not.toEqual(sessions[77]);
});

test("the plans contain every kind of exchange", () => {
  const exchanges = sessions.flatMap((session) => session.exchanges);
  const kinds = (value: (each: (typeof exchanges)[number]) => unknown): number =>
    new Set(exchanges.map(value)).size;
  expect(kinds(({ method }) => method)).toBe(6);
  expect(kinds(({ request }) => request.framing)).toBe(3);
  expect(kinds(({ response }) => response.framing)).toBe(4);
  expect(kinds(({ ending }) => ending.kind)).toBe(3);
  expect(kinds(({ intrusion }) => intrusion)).toBe(9);
  expect(new Set(sessions.map(({ leave }) => leave?.phase)).size).toBe(4);
  expect(sessions.some(({ pipelined }) => pipelined)).toBe(true);
  expect(exchanges.some(({ early }) => early)).toBe(true);
  expect(Math.max(...exchanges.map(({ response }) => response.size))).toBeGreaterThan(1_000_000);
});

test("a truncated message lacks at least its last byte", () => {
  for (const { exchanges } of sessions.slice(0, 50)) {
    for (const exchange of exchanges) {
      const wire = makeResponse(exchange);
      if (exchange.ending.kind !== "cut") continue;
      expect(locate(exchange.ending.at, wire)).toBeLessThan(wire.bytes.length);
    }
  }
});

test("`explainBytes` finds and reports a wrong byte", () => {
  const body = makeBody("s", 42, 1000);
  expect(body.toString("latin1", 0, 32)).toBe("s0000002a.00000\ns0000002a.00001\n");
  expect(explainBytes(body, body.subarray(100, 700), 100)).toBe(undefined);
  expect(explainBytes(body, makeBody("s", 43, 1000), 0)).toContain("response body of exchange 43");
  expect(explainBytes(body, makeBody("q", 42, 1000), 0)).toContain("request body of exchange 42");
  expect(explainBytes(body, body.subarray(1, 900), 0)).toContain("a hole or a repetition");
  expect(explainBytes(body, Buffer.alloc(40), 0)).toContain("no block at all");
  expect(explainBytes(body, Buffer.concat([body, body]), 0)).toContain("1000 bytes more");
  const hole = Buffer.concat([body.subarray(0, 320), body.subarray(352)]);
  expect(explainBytes(body, hole, 0)).toContain("byte 334 of 1000 (block 20) is wrong");
});

test("each entry of `limits` has a known feature and a reason, and no host lists a feature twice", () => {
  const keys = limits.map(({ host, feature }) => `${host} ${feature}`);
  expect(new Set(keys).size).toBe(keys.length);
  for (const { host, feature, reason, node } of limits) {
    expect(FEATURES).toContain(feature);
    expect(node !== undefined || !canDo(host, feature)).toBe(true);
    expect(reason).toContain(" ");
  }
  expect(canDo("node", "pipelining")).toBe(true);
});

test("a range of Node versions includes the version `from`, but not the version `below`", () => {
  expect(isInRange("22.3.0", { below: "24" })).toBe(true);
  expect(isInRange("24.0.0", { below: "24" })).toBe(false);
  expect(isInRange("24.0.0", { from: "24" })).toBe(true);
  expect(isInRange("22.10.0", { from: "22.9.1" })).toBe(true);
  expect(isInRange("26.1.0", { from: "22.9", below: "26.1" })).toBe(false);
  expect(isInRange(hostVersion, {})).toBe(true);
});
