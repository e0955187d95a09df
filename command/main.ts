#!/usr/bin/env node
import process from "node:process";
import { checkLine } from "./config/checkline.ts";
import { explainAll } from "./config/reload.ts";
import { renderHelp } from "./flags/help.ts";
import { checkNode, VERSION } from "./flags/ownpackage.ts";
import { parse } from "./flags/parse.ts";
import { afterMessages, printError, useJsonMessages } from "./log/ownmessages.ts";
import { start } from "./serve/start.ts";

/** Runs a command line. Returns the mistakes in it, one line each. */
async function run(args: readonly string[]): Promise<string[]> {
  if (args[0] === "replay") {
    const { runReplay } = await import("./replay/runreplay.ts");
    return runReplay(args.slice(1)).then(
      () => [],
      (error: unknown) => [...explainAll(error)],
    );
  }
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
  // On Bun and Deno, this check passes, because they report the version of a Node that is new enough.
  const old = checkNode(process.versions.node);
  if (old !== undefined) return [old];
  // If only the config file sets `log`, the form is not known yet. The output of `--inspect` is for people, so it
  // is never JSON.
  if (line.given.server.log === "json" && line.given.line.inspect === undefined) useJsonMessages();
  try {
    const { routes, problems, doubts } = checkLine(line);
    if (problems.length > 0) return problems;
    await start(line, routes, config, doubts);
    return [];
  } catch (error) {
    return [...explainAll(error)];
  }
}

async function main(): Promise<void> {
  const problems = await run(process.argv.slice(2));
  if (problems.length === 0) return;
  for (const problem of problems) printError(problem);
  afterMessages(() => process.exit(2));
}

// Without `await` here, bundlers can compile the command to CommonJS, which single executables need.
void main();
