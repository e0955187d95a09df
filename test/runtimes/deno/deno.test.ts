import { expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";

test("`deno task check` passes: the package can be published, its symbols are documented, and the examples run", async () => {
  await using program = startProgram("deno", ["task", "check"]);
  await program.ended();
  expect(program.output()).toMatch(/Dry run complete[\s\S]*[1-9]\d* passed \| 0 failed/);
  expect(program.code()).toBe(0);
}, 180_000);
