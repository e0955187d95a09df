#!/usr/bin/env node
import { basename } from "node:path";
import process from "node:process";
import { readCertificate, readTrust, reloadOnSignal } from "./cli/certificate.ts";
import { findMissingLimits, readExempt } from "./cli/clientlimits.ts";
import { checkLine } from "./cli/checkline.ts";
import { addCors } from "./cli/cors.ts";
import { answerDemo, renderFirstSteps } from "./cli/demo.ts";
import { readVersion, renderHelp } from "./cli/help.ts";
import { type Front, listen } from "./cli/listen.ts";
import { readConfig } from "./cli/loadconfig.ts";
import { Observers } from "./cli/observe.ts";
import { type CommandLine, parse } from "./cli/parse.ts";
import { isPreloaded } from "./cli/preload.ts";
import { printStats } from "./cli/printstats.ts";
import { UsageError } from "./cli/read.ts";
import { assertRouted, explainAll, reloadConfig } from "./cli/reload.ts";
import type { GivenRoute } from "./cli/routeflag.ts";
import { Router } from "./cli/routes.ts";
import { type RouteSettings, type Settings, toSettings } from "./cli/settings.ts";
import { stopOnSignals } from "./cli/stop.ts";
import type { Config } from "./config.ts";
import { checkVersion } from "./sockets/versions.ts";

/** Runs a command line. Returns the mistakes in it, one line each. */
async function run(args: readonly string[]): Promise<string[]> {
  const line = parse(args);
  const { help, version, config } = line.given.line;
  if (help !== undefined && help !== false) {
    console.log(renderHelp(help === "all"));
    return [];
  }
  if (version === true) {
    console.log(readVersion());
    return [];
  }
  // On Bun and Deno, this check passes: they report the version of a newer Node.
  const old = checkVersion("Node", process.versions.node);
  if (old !== undefined) return [old];
  const { routes, problems } = checkLine(line);
  if (problems.length > 0) return problems;
  try {
    await start(line, routes, config);
    return [];
  } catch (error) {
    return [...explainAll(error)];
  }
}

async function start(
  { target, given }: CommandLine,
  routes: readonly GivenRoute[],
  path: string | undefined,
): Promise<void> {
  const reuseBuffers = !isPreloaded(process);
  const proxy = { ...given.proxy, ...(Object.keys(given.pool).length > 0 && { pool: given.pool }) };
  const flags = { server: given.server, proxy, routes, target };
  let demo: Front | undefined;
  const compose = (file: Config): Settings => {
    const tls = readTrust({ ...file.server, ...given.server });
    const base = { reuseBuffers, ...(tls && { tls }) };
    const composed = toSettings(flags, file, base);
    // The demo takes the requests that no route takes.
    const isDemo = demo !== undefined && !takesAll(composed);
    return isDemo
      ? toSettings({ ...flags, target: originOf(demo as Front) }, file, base)
      : composed;
  };
  const file = path === undefined ? {} : await readConfig(path);
  if (given.line.demo === true && !takesAll(toSettings(flags, file))) {
    demo = await listen(answerDemo, { port: 0, host: "127.0.0.1" });
  }
  const settings = compose(file);
  if (path !== undefined) assertRouted(basename(path), settings);
  const [missing] = findMissingLimits(Object.keys(file.server ?? {}), (name) => `server.${name}`);
  if (missing !== undefined) throw new UsageError(missing);

  const { server } = settings;
  const observers = new Observers(server);
  const router = new Router(settings.routes, observers.prepare);
  const status = await observers.listen(() => router.stats());
  const certificate = readCertificate(server);
  const front = await listen(addCors(router.answer, server), {
    ...server,
    limits: server,
    certificate,
    websocket: router.websocket,
    isExempt: readExempt({ ...file, ...given.proxy }),
  });
  router.attach(front.server, front.admitUpgrade);
  observers.setListening(() => front.slow?.stats());
  printStats(router, server.stats);
  stopOnSignals(front, router, server.stopTimeout, () => observers.close());
  if (certificate !== undefined) reloadOnSignal(front.server, server);
  if (path !== undefined) reloadConfig(path, settings, compose, router);
  console.log(renderBanner(originOf(front), settings, demo && originOf(demo)));
  if (status !== undefined) console.log(`  status page: ${status}/`);
}

function takesAll({ routes }: Settings): boolean {
  return routes.some(({ match }) => match.includes("/"));
}

/**
 * Renders what the command prints when it listens.
 * @param demo the address of the demo upstream, if there is one
 */
function renderBanner(address: string, { routes }: Settings, demo: string | undefined): string {
  const [first] = routes as [RouteSettings];
  const isOne = routes.length === 1 && first.match.join() === "/";
  const to = demo === undefined ? show(first.options.target) : `a demo upstream on ${demo}`;
  // If the server listens on all addresses, show the address of the loopback interface, by which it can be reached.
  const near = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
  const steps = demo === undefined ? [`curl -i ${near}/`] : renderFirstSteps(near);
  const lines = [
    `fetchway listens on ${address} and forwards ${isOne ? `to ${to}` : `by ${routes.length} routes`}`,
    ...(isOne ? [] : renderRoutes(routes)),
    ...(demo === undefined ? [] : ["Try it from another terminal; Ctrl+C stops it.", ""]),
    ...(isOne || demo !== undefined ? steps.map((step) => `  ${step}`) : []),
  ];
  return lines.join("\n");
}

function renderRoutes(routes: readonly RouteSettings[]): string[] {
  const width = Math.max(...routes.map(({ match }) => match.join(", ").length));
  return routes.map(
    ({ match, options }) => `  ${match.join(", ").padEnd(width)}  ${show(options.target)}`,
  );
}

function originOf({ server }: Front): string {
  return new URL(server.url ?? "").origin;
}

/** Renders a target for the banner, without its query, which may hold a secret. */
function show(target: RouteSettings["options"]["target"]): string {
  if (typeof target === "function") return "a function";
  if (typeof target === "object" && "fetch" in target) return "an app in this process";
  const url = typeof target === "object" && "url" in target ? target.url : target;
  if (typeof url === "string" && url.startsWith("unix:")) return url;
  const { origin, pathname, search } = new URL(url);
  return `${origin}${pathname === "/" ? "" : pathname}${search === "" ? "" : "?…"}`;
}

const problems = await run(process.argv.slice(2));
if (problems.length > 0) {
  const lines = problems.map((problem) => `fetchway: ${problem}\n`);
  process.stderr.write(lines.join(""), () => process.exit(2));
}
