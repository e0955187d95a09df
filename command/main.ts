#!/usr/bin/env node
import process from "node:process";
import { checkLine } from "./config/checkline.ts";
import { explainAll } from "./config/reload.ts";
import { renderHelp } from "./flags/help.ts";
import { checkNode, VERSION } from "./flags/ownpackage.ts";
import { parse } from "./flags/parse.ts";
import { start } from "./serve/start.ts";

/** Runs a command line. Returns the mistakes in it, one line each. */
async function run(args: readonly string[]): Promise<string[]> {
  const line = parse(args);
  const { help, version, config } = line.given.line;
  if (help !== undefined && help !== false) {
    console.log(renderHelp(help === "all"));
    return [];
  }
  if (version === true) {
    console.log(VERSION);
    return [];
  }
  // On Bun and Deno, this check passes: they report the version of a newer Node.
  const old = checkNode(process.versions.node);
  if (old !== undefined) return [old];
  try {
    const { routes, problems } = checkLine(line);
    if (problems.length > 0) return problems;
    await start(line, routes, config);
    return [];
  } catch (error) {
    return [...explainAll(error)];
  }
}

async function main(): Promise<void> {
  const problems = await run(process.argv.slice(2));
  if (problems.length === 0) return;
  const lines = problems.map((problem) => `fetchway: ${problem}\n`);
  process.stderr.write(lines.join(""), () => process.exit(2));
}

// Without `await` here, bundlers can make a CommonJS module of the command, as single executables need it.
void main();
