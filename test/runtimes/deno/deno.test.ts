import { expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";

test("`deno task check` passes: the package can be published, its symbols are documented, and the examples run", async () => {
  await using program = startProgram("deno", ["task", "check"]);
  // Deno checks the types of every entry. This needs 9 s of CPU time, but lasts much longer while other tests use all cores.
  await program.ended(280_000);
  expect(program.output()).toMatch(/Dry run complete[\s\S]*[1-9]\d* passed \| 0 failed/);
  expect(program.code()).toBe(0);
}, 300_000);
