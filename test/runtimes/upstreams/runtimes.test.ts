/** Three upstreams under load on Node, Bun and Deno, of which one is killed, hangs, becomes slow, answers 500 or flaps. */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";
import type { Fault, Outcome } from "./_upstreams.program.ts";

const PROGRAM = join(import.meta.dirname, "_upstreams.program.ts");

describe.each([
  ["node", [PROGRAM]],
  ["bun", [PROGRAM]],
  ["deno", ["run", "-A", PROGRAM]],
] as const)("on %s", (command, args) => {
  test("if one of three upstreams is bad, no request that may be sent again fails", async () => {
    await using program = startProgram(command, [...args]);
    await program.ended();
    const lines = program.output().match(/^\{.*\}$/gm) ?? [];
    const outcomes = lines.map((line) => JSON.parse(line) as Outcome);
    expect(outcomes, program.output()).toHaveLength(6);
    const of = (fault: Fault, attemptTimeout: number): Outcome =>
      outcomes.find(
        (each) => each.fault === fault && each.attemptTimeout === attemptTimeout,
      ) as Outcome;
    for (const each of outcomes) {
      // Uploads arrive once or, if they could not be sent, not at all.
      expect(
        each.timesSeen.every((times) => times === 1),
        JSON.stringify(each),
      ).toBe(true);
      expect(each.active, each.fault).toBe(0);
      expect(Object.keys(each.lastGets), JSON.stringify(each)).toEqual(["200"]);
      if (each.fault !== "flaps") expect(each.state, each.fault).toBe("ejected");
    }
    // After the ejection, no request goes to the ejected upstream, so the latency is about as low as before the fault. The
    // machine has the same load before and after the fault.
    for (const each of outcomes.filter(({ fault }) => fault !== "flaps")) {
      expect(each.countAfter, JSON.stringify(each)).toBeGreaterThan(100);
      expect(each.strayed, JSON.stringify(each)).toBe(0);
      const limit = Math.max(4 * each.p99Before, 2_000);
      expect(each.p99After, JSON.stringify(each)).toBeLessThan(limit);
    }
    for (const each of outcomes.filter(
      ({ attemptTimeout, fault }) => attemptTimeout > 0 || fault !== "hangs",
    )) {
      expect(Object.keys(each.gets), JSON.stringify(each)).toEqual(["200"]);
    }
    // Without attemptTimeout, requests that were sent to the hanging upstream before its ejection fail.
    expect(of("hangs", 0).gets[504]).toBeLessThan(20);
    // After the ejection, no request waits for the slow upstream.
    expect(of("slow", 1_500).slowest).toBeLessThan(2_500);
  });
});
