#!/usr/bin/env node
import process from "node:process";
import type { Server, ServerHandler } from "srvx";
import { createProxy, type CreateProxyOptions } from "#proxy";
import { applyAbsoluteForm } from "./absoluteform.ts";
import { checkOptions, checkTarget, explain } from "./cli/check.ts";
import { answerDemo, renderFirstSteps } from "./cli/demo.ts";
import { type Command, commandDefaults } from "./cli/flags.ts";
import { readVersion, renderHelp } from "./cli/help.ts";
import { listen, stopOnSignals } from "./cli/listen.ts";
import { type CommandLine, parse } from "./cli/parse.ts";
import { isPreloaded } from "./cli/preload.ts";
import { printStats } from "./cli/stats.ts";
import { checkVersion } from "./sockets/versions.ts";

/** Does what the command line says. Returns what is wrong with it, one line each. */
async function run(args: readonly string[]): Promise<string[]> {
  const line = parse(args);
  const command: Command = { ...commandDefaults, ...line.given.command };
  if (command.help) {
    console.log(renderHelp());
    return [];
  }
  if (command.version) {
    console.log(readVersion());
    return [];
  }
  // Bun and Deno pass themselves off as a Node that is newer.
  const old = checkVersion("Node", process.versions.node);
  if (old !== undefined) return [old];
  const problems = [...line.problems, ...checkOptions(line)];
  if (!line.unsure) problems.push(...checkDestination(line.target, command.demo));
  if (problems.length > 0) return problems;
  try {
    await start(line, command);
    return [];
  } catch (error) {
    return [explain(error)];
  }
}

function checkDestination(target: string | undefined, demo: boolean): string[] {
  if (target !== undefined) return checkTarget(target);
  if (demo) return [];
  return ["no target: write fetchway http://127.0.0.1:4000, or try fetchway --demo"];
}

async function start({ target, given }: CommandLine, command: Command): Promise<void> {
  const demo = target === undefined ? await listen(answerDemo, 0, "127.0.0.1") : undefined;
  const proxy = createProxy({
    ...given.proxy,
    pool: { reuseBuffers: !isPreloaded(process), ...given.pool },
    target: target ?? demo?.url,
  } as CreateProxyOptions);
  const answer: ServerHandler = (request) => {
    applyAbsoluteForm(request);
    return proxy.fetch(request, request.runtime?.deno?.info ?? request.runtime?.bun?.server);
  };
  const server = await listen(answer, command.port, command.host);
  // On other runtimes, `proxy.fetch` gets upgrades like any request.
  if ("attach" in proxy) proxy.attach(server);
  printStats(proxy, command.stats);
  stopOnSignals(server, proxy, command.stopTimeout);

  const address = originOf(server);
  const to = target === undefined ? `a demo upstream on ${demo && originOf(demo)}` : show(target);
  // What listens on all addresses is reached by one of them.
  const near = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
  const steps = target === undefined ? renderFirstSteps(near) : [`curl -i ${near}/`];
  const lines = [
    `fetchway listens on ${address} and forwards to ${to}`,
    ...(target === undefined ? ["Try it from another terminal; Ctrl+C stops it.", ""] : []),
    ...steps.map((step) => `  ${step}`),
  ];
  console.log(lines.join("\n"));
}

function originOf(server: Server): string {
  return new URL(server.url ?? "").origin;
}

/** A target for the banner: what its query says may be a secret. */
function show(target: string): string {
  if (target.startsWith("unix:")) return target;
  const { origin, pathname, search } = new URL(target);
  return `${origin}${pathname === "/" ? "" : pathname}${search === "" ? "" : "?…"}`;
}

const problems = await run(process.argv.slice(2));
if (problems.length > 0) {
  const lines = problems.map((problem) => `fetchway: ${problem}\n`);
  process.stderr.write(lines.join(""), () => process.exit(2));
}
