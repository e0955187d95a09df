import { expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";

test("deno accepts the package for publishing, finds a doc for every public symbol, and runs the examples", async () => {
  await using program = startProgram("deno", ["task", "check"]);
  await program.ended();
  expect(program.output()).toMatch(/Dry run complete[\s\S]*[1-9]\d* passed \| 0 failed/);
  expect(program.code()).toBe(0);
}, 180_000);
