import { readdirSync } from "node:fs";
import type { LineSettings } from "../flags/commandoptions.ts";
import { type CommandLine, parse } from "../flags/parse.ts";
import { type GivenRoute, isOfRoute, readRoute, splitWords } from "../flags/routeflag.ts";
import { readInspected } from "../inspect/inspectedrequest.ts";
import { findMissingLimits } from "../limits/clientlimits.ts";
import { explain, findProblems, findTargetProblems } from "./problems.ts";

/**
 * Checks a command line, and reads its routes.
 * @returns the routes, and all mistakes and warnings, one line each
 */
export function checkLine(line: CommandLine): {
  routes: GivenRoute[];
  problems: string[];
  doubts: string[];
} {
  const problems = [...line.problems, ...findProblems(line)];
  const routes: GivenRoute[] = [];
  const { demo, config, route: texts = [] } = line.given.line;
  for (const read of texts.map(readRoute)) {
    if (Array.isArray(read)) problems.push(...read);
    else routes.push(read);
  }
  const doubts = [line, ...texts.map((text) => parse(splitWords(text)))].flatMap(
    (each) => each.doubts,
  );
  const taken = new Set<string>();
  for (const { match, when } of routes) {
    for (const pattern of match) {
      const key = JSON.stringify([pattern, when]);
      if (taken.has(key)) problems.push(`--route ${pattern}: another --route has the same path`);
      taken.add(key);
    }
  }
  for (const [flag, label] of line.labels) {
    if (isOfRoute(flag)) problems.push(`${label}: write it inside of the quotes of --route`);
  }
  const names = Object.keys(line.given.server);
  problems.push(...findMissingLimits(names, (option) => labelOf(line, option)));
  problems.push(...checkInspected(line.given.line));
  if (line.given.server.host?.startsWith("unix:") && line.given.server.port !== undefined) {
    problems.push(`${labelOf(line, "port")} does nothing beside --host unix:…; leave it out`);
  }
  // Without `record`, which a config file may set as well, the other options for recording do nothing.
  if (line.given.server.record === undefined && config === undefined) {
    const alone = names.filter((name) => name.startsWith("record"));
    problems.push(
      ...alone.map((option) => `${labelOf(line, option)} does nothing without --record`),
    );
  }
  if (line.unsure) return { routes, problems, doubts };
  problems.push(...findTargetProblems(line.targets));
  const isRouted = line.target !== undefined || texts.length > 0 || config !== undefined || demo;
  // Another mistake may be why there is no target, as in `-c fetchway.config.mjs`. Report that mistake alone.
  if (!isRouted && problems.length === 0) problems.push(`no target: write ${suggestTarget()}`);
  return { routes, problems, doubts };
}

function checkInspected({ inspect, inspectHeader }: LineSettings): string[] {
  if (inspect === undefined) {
    return inspectHeader === undefined
      ? []
      : ["--inspect-header does nothing without --inspect; to set a field, use --header"];
  }
  try {
    readInspected(inspect, inspectHeader);
    return [];
  } catch (error) {
    return [explain(error)];
  }
}

function labelOf({ labels }: CommandLine, option: string): string {
  for (const [flag, label] of labels) if (flag.option === option) return label;
  return option;
}

/**
 * Suggests a command line. If the current directory has a config file, the suggestion names it, because the command reads
 * only a config file that `--config` names.
 */
function suggestTarget(): string {
  const found = readdirSync(".").find((name) =>
    /^fetchway\.config\.(?:[mc]?[jt]s|json)$/.test(name),
  );
  return found === undefined
    ? "fetchway http://127.0.0.1:4000, or try fetchway --demo"
    : `fetchway --config ${found}, or fetchway http://127.0.0.1:4000`;
}
