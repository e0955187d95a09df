/** Apps as targets, called by each runtime as it calls them; test/miniflare.test.ts has those of Workers. */
import { describe, expect, test } from "vitest";
import { cases } from "./_inprocess.ts";
import { startProgram } from "./_program.ts";

const ROOT = new URL("..", import.meta.url).href;

const runtimes: Record<string, [entry: string, ...args: string[]]> = {
  node: ["node", "--input-type=module", "--eval"],
  bun: ["bun", "--eval"],
  deno: ["deno", "eval", "--quiet"],
};

/** Runs all cases as a program of the runtime's own. */
async function run(runtime: string, entry: string, args: string[]): Promise<typeof expected> {
  const code = `
    import { createProxy } from "${ROOT}runtimes/${entry}.ts";
    import { runCases } from "${ROOT}test/_inprocess.ts";
    console.log("outcomes:" + JSON.stringify(await runCases(createProxy)));
  `;
  await using program = startProgram(runtime, [...args, code]);
  const [, outcomes = ""] = await program.printed(/^outcomes:(.+)$/m);
  return JSON.parse(outcomes) as typeof expected;
}

const expected: Record<string, string | null> = Object.fromEntries(
  Object.keys(cases).map((name) => [name, null]),
);

describe.each(Object.entries(runtimes))("on %s", (runtime, [entry, ...args]) => {
  test("every case holds", async () => {
    expect(await run(runtime, entry, args)).toEqual(expected);
  });
});

test("through the entry for any runtime every case holds", async () => {
  expect(await run("node", "fetch", ["--input-type=module", "--eval"])).toEqual(expected);
});
