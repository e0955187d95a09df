/** The line that an app without a hook for failures gets on Node, Bun and Deno, outside production. */
import { expect, test } from "vitest";
import { startProgram } from "../helpers/program.ts";

const PROGRAM = "test/runtimes/_failurelines.program.ts";
const LINES = [
  /^quiet$/,
  /^fetchway: connection_refused: 127\.0\.0\.1:\d+ \(is it running\?\) \[at most one line a minute; `log: false` turns it off\]$/,
  /^fetchway: http_response_incomplete: 127\.0\.0\.1:\d+ closed the connection in the middle of the response \(see its log\)$/,
  /^fetchway: connection_refused: localhost:\d+ at (?:127\.0\.0\.1 and ::1|::1 and 127\.0\.0\.1|127\.0\.0\.1) \(is it running\?\)$/,
  // Bun's `fetch` reports a reset instead of a closed connection.
  /^fetchway: http_response_incomplete: 127\.0\.0\.1:\d+ (?:closed the connection in the middle of the response|reset the connection) \(see its log\)$/,
];

/** Runs the program, and returns the lines of its output. */
async function run(tool: string, args: string[], mode: string | undefined): Promise<string[]> {
  await using program = startProgram(tool, [...args, PROGRAM], { NODE_ENV: mode });
  await program.ended();
  expect(program.code(), program.output()).toBe(0);
  return program.output().trim().split("\n");
}

function expectLines(lines: readonly string[]): void {
  expect(lines).toHaveLength(LINES.length);
  LINES.forEach((line, i) => expect(lines[i]).toMatch(line));
}

const TOOLS: [tool: string, args: string[]][] = [
  ["node", []],
  ["bun", []],
  ["deno", ["run", "--no-prompt", "--allow-net", "--allow-env=NODE_ENV"]],
];

test.each(TOOLS)(
  "on %s, without a hook for failures, the first failure of each kind at an upstream is printed in one line",
  async (tool, args) => {
    expectLines(await run(tool, args, undefined));
  },
);

test.each(TOOLS)("on %s, nothing is printed if NODE_ENV is production", async (tool, args) => {
  expect(await run(tool, args, "production")).toEqual(["quiet"]);
});

test("on Deno without the permission to read NODE_ENV, the lines are printed, without an error or a prompt", async () => {
  expectLines(await run("deno", ["run", "--no-prompt", "--allow-net"], "production"));
});
