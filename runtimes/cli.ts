#!/usr/bin/env node
import type { IncomingMessage } from "node:http";
import process from "node:process";
import type { Server, ServerHandler } from "srvx";
import { createProxy, type CreateProxyOptions } from "#proxy";
import type { TlsOptions } from "../src/request/target.ts";
import { compileTrust } from "../src/request/trust.ts";
import { applyAbsoluteForm } from "./absoluteform.ts";
import { type Command, commandDefaults } from "./cli/commandoptions.ts";
import { answerDemo, renderFirstSteps } from "./cli/demo.ts";
import { readVersion, renderHelp } from "./cli/help.ts";
import { readAuthorities, readCertificate, reloadOnSignal } from "./cli/certificate.ts";
import { findMissingLimits, hasTooManyFields } from "./cli/clientlimits.ts";
import { addCors } from "./cli/cors.ts";
import { listen } from "./cli/listen.ts";
import { type CommandLine, parse } from "./cli/parse.ts";
import { isPreloaded } from "./cli/preload.ts";
import { printStats } from "./cli/printstats.ts";
import { explain, findProblems, findTargetProblem } from "./cli/problems.ts";
import { stopOnSignals } from "./cli/stop.ts";
import { checkVersion } from "./sockets/versions.ts";

/** Runs a command line. Returns the mistakes in it, one line each. */
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
  // On Bun and Deno, this check passes: they report the version of a newer Node.
  const old = checkVersion("Node", process.versions.node);
  if (old !== undefined) return [old];
  const problems = [...line.problems, ...findProblems(line)];
  if (!line.unsure) problems.push(...checkDestination(line.target, command.demo));
  problems.push(
    ...findMissingLimits(Object.keys(line.given.command), (option) => labelOf(line, option)),
  );
  if (problems.length > 0) return problems;
  try {
    await start(line, command);
    return [];
  } catch (error) {
    return [explain(error)];
  }
}

function labelOf({ labels }: CommandLine, option: string): string {
  for (const [flag, label] of labels) if (flag.option === option) return label;
  return option;
}

function checkDestination(target: string | undefined, demo: boolean): string[] {
  if (target !== undefined) return findTargetProblem(target);
  if (demo) return [];
  return ["no target: write fetchway http://127.0.0.1:4000, or try fetchway --demo"];
}

async function start({ target, given }: CommandLine, command: Command): Promise<void> {
  const demo =
    target === undefined ? await listen(answerDemo, { port: 0, host: "127.0.0.1" }) : undefined;
  const certificate = readCertificate(command);
  const proxy = createProxy({
    ...given.proxy,
    pool: { reuseBuffers: !isPreloaded(process), tls: readTrust(command), ...given.pool },
    target: target ?? demo?.server.url,
  } as CreateProxyOptions);
  const answer: ServerHandler = (request) => {
    applyAbsoluteForm(request);
    return proxy.fetch(request, request.runtime?.deno?.info ?? request.runtime?.bun?.server);
  };
  // Node's server hands upgrades over by an event, the others call `fetch`; Bun's needs handlers besides.
  const { websocket } = proxy as { websocket?: unknown };
  const front = await listen(addCors(answer, command), {
    ...command,
    limits: command,
    certificate,
    websocket,
    isExempt: compileTrust((given.proxy["trustProxy"] ?? false) as boolean | string[]),
  });
  const { server, connections } = front;
  if ("attach" in proxy) {
    const match = (req: IncomingMessage): boolean => {
      connections?.noteUpgrade(req);
      // With too many fields, the request is an ordinary one, and refused.
      return !hasTooManyFields(req, command);
    };
    proxy.attach(server, { match });
  }
  printStats(proxy, command.stats);
  stopOnSignals(front, proxy, command.stopTimeout);
  if (certificate !== undefined) reloadOnSignal(server, command);

  const address = originOf(server);
  const to =
    target === undefined ? `a demo upstream on ${demo && originOf(demo.server)}` : show(target);
  // If the server listens on all addresses, show the address of the loopback interface, by which it can be reached.
  const near = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
  const steps = target === undefined ? renderFirstSteps(near) : [`curl -i ${near}/`];
  const lines = [
    `fetchway listens on ${address} and forwards to ${to}`,
    ...(target === undefined ? ["Try it from another terminal; Ctrl+C stops it.", ""] : []),
    ...steps.map((step) => `  ${step}`),
  ];
  console.log(lines.join("\n"));
}

/** Returns the TLS options for connections to upstreams. */
function readTrust({ ca, insecure }: Command): TlsOptions | undefined {
  if (insecure) {
    console.error(
      "fetchway: --insecure accepts any certificate: others on the network can read and change what goes to the upstream",
    );
    return { rejectUnauthorized: false };
  }
  return ca === undefined ? undefined : { ca: readAuthorities(ca) };
}

function originOf(server: Server): string {
  return new URL(server.url ?? "").origin;
}

/** Renders a target for the banner, without its query, which may hold a secret. */
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
