/** Puts the parts of the command together: settings, routes, server. */
import { basename } from "node:path";
import process from "node:process";
import { readConfig } from "../config/loadconfig.ts";
import { assertRouted, type Compose, reloadConfig } from "../config/reload.ts";
import {
  nameAsWritten,
  type NameServerOption,
  type Settings,
  toSettings,
} from "../config/settings.ts";
import { describeMadeSecret, fillCookies, makeSecret } from "../config/stickycookies.ts";
import type { LineSettings } from "../flags/commandoptions.ts";
import type { CommandLine } from "../flags/parse.ts";
import { UsageError } from "../flags/read.ts";
import type { GivenRoute } from "../flags/routeflag.ts";
import { readBalanceFlags } from "../flags/severalupstreams.ts";
import { readInspected } from "../inspect/inspectedrequest.ts";
import { findMissingLimits, readExempt } from "../limits/clientlimits.ts";
import { printNotice, printWarning, useJsonMessages } from "../log/ownmessages.ts";
import { noteTlsVersions } from "../log/tlsversions.ts";
import { countWorkers } from "../workers/countworkers.ts";
import { joinParent } from "../workers/workerlink.ts";
import { renderBanner, renderFewFiles, renderHint } from "./banner.ts";
import { readCertificate, readTrust, reloadCertificate } from "./certificate.ts";
import { addCors } from "./cors.ts";
import { answerDemo } from "./demo.ts";
import { listen } from "./listen.ts";
import { LOOPBACK } from "./loopback.ts";
import { Observers } from "./observe.ts";
import { refuseOwnAddress } from "./ownaddress.ts";
import { printStats } from "./printstats.ts";
import { checkRedirect } from "./redirecthttp.ts";
import { Router } from "./routes.ts";
import { handleSignals } from "./signals.ts";
import { checkSocketMode, nameSocketClients, readSocketPath } from "./socketfile.ts";
import { createStop } from "./stop.ts";

/**
 * Starts what a command line asks for: the server, or the inspection of a request.
 * @param doubts the warnings about the command line
 */
export async function start(
  { targets, given }: CommandLine,
  routes: readonly GivenRoute[],
  path: string | undefined,
  doubts: string[],
): Promise<void> {
  const worker = await joinParent();
  if (worker?.begin.log === "json") useJsonMessages();
  const proxy = { ...given.proxy, ...(Object.keys(given.pool).length > 0 && { pool: given.pool }) };
  const target = targets.length > 1 ? targets : targets[0];
  const balance = readBalanceFlags(given.balance);
  const spread = Object.keys(balance).length === 0 ? {} : { balance };
  const flags = { server: given.server, proxy, routes, target, ...spread };
  let demo = worker?.begin.demo;
  const secret = worker?.begin.secret ?? makeSecret();
  /** Where the server listens. A reload does not change that, even if the config file names another port or host. */
  let listening: Pick<Settings["server"], "host" | "port"> | undefined = worker?.given;
  const compose: Compose = (file, onDoubt) => {
    const name = nameAsWritten(given.server, file);
    const tls = readTrust({ ...file.server, ...given.server }, name, onDoubt);
    const base = tls === undefined ? {} : { tls };
    const composed = toSettings(flags, file, base);
    // The demo upstream gets the requests that no route matches.
    const isDemo = demo !== undefined && !takesAll(composed);
    const full = isDemo ? toSettings({ ...flags, target: demo }, file, base) : composed;
    listening ??= full.server;
    for (const address of [listening, full.server]) refuseOwnAddress(address, full.routes);
    return fillCookies(full, secret);
  };
  const onDoubt = (doubt: string): void => void doubts.push(doubt);
  const file = path === undefined ? {} : await readConfig(path, onDoubt);
  if (given.line.demo === true && demo === undefined && !takesAll(toSettings(flags, file))) {
    ({ address: demo } = await listen(answerDemo, { port: 0, host: LOOPBACK }));
  }
  const settings = compose(file, onDoubt);
  if (path !== undefined) assertRouted(basename(path), settings);
  const [missing] = findMissingLimits(Object.keys(file.server ?? {}), (name) => `server.${name}`);
  if (missing !== undefined) throw new UsageError(missing);
  const nameOption = nameAsWritten(given.server, file);
  checkSocketMode(given.server, file);
  const server = worker === undefined ? settings.server : { ...settings.server, ...worker.given };
  const isInspection = given.line.inspect !== undefined;
  const isJson = server.log === "json" && !isInspection;
  if (isJson) useJsonMessages();
  // The parent prints the warnings of its workers.
  if (worker === undefined) for (const doubt of doubts) printWarning(doubt);
  if (isInspection) return printInspection(given.line, settings, nameOption);

  if (worker === undefined && countWorkers(server.workers) > 1) {
    const { startWorkers } = await import("../workers/startworkers.ts");
    return startWorkers(settings, path, demo, secret, nameOption, doubts);
  }
  const observers = new Observers(server, worker?.begin.colours);
  const openRecording = await observers.record(server, worker?.addEntry);
  const isOnSocket = readSocketPath(server.host) !== undefined;
  const router = new Router(
    settings.routes,
    (options) => observers.prepare(isOnSocket ? nameSocketClients(options) : options),
    observers.rescue,
  );
  const status = worker === undefined ? await observers.listen(() => router.stats()) : undefined;
  checkRedirect(server, nameOption);
  const certificate = readCertificate(server, nameOption);
  let isExempt = readExempt(settings.trustProxy);
  const front = await listen(addCors(router.answer, server), {
    ...server,
    limits: server,
    certificate,
    websocket: router.websocket,
    isExempt: (address) => isExempt(address),
    worker: worker?.begin,
    report: observers.report,
  });
  openRecording();
  if (isJson && certificate !== undefined) noteTlsVersions(front.server);
  router.attach(front.server, front.admitUpgrade);
  if (worker !== undefined) {
    const configured = settings.server;
    const reload =
      path === undefined
        ? undefined
        : async (): Promise<void> => router.update(compose(await readConfig(path)).routes);
    return worker.serve({ front, router, observers, server, configured, doubts, reload });
  }
  observers.setListening(() => front.slow?.stats());
  printStats(router, server.stats);
  const reloads: (() => void)[] = [];
  if (certificate !== undefined) reloads.push(reloadCertificate(front.server, server, nameOption));
  if (path !== undefined) {
    const use = (next: Settings): void => {
      router.update(next.routes);
      isExempt = readExempt(next.trustProxy);
    };
    reloads.push(reloadConfig(path, settings, compose, use));
  }
  const { stop, end } = createStop(front, router, server.stopTimeout, () => observers.close());
  handleSignals({
    stop() {
      observers.setStopping();
      stop();
    },
    end,
    reload() {
      for (const reload of reloads) reload();
    },
  });
  printNotice(renderBanner(front, settings, demo), renderHint(front.address, settings, demo));
  const made = describeMadeSecret(settings, secret);
  if (made !== undefined) printNotice(made);
  const few = front.connections && renderFewFiles(server);
  if (few !== undefined) printNotice(few);
  if (status !== undefined) printNotice(`  status page: ${status}/`);
}

/** Prints what a request would become, and ends the process. */
async function printInspection(
  { inspect = "", inspectHeader }: LineSettings,
  settings: Settings,
  nameOption: NameServerOption,
): Promise<void> {
  const { capture, nameServer, renderInspection } = await import("../inspect/inspect.ts");
  const { server } = settings;
  checkRedirect(server, nameOption);
  const certificate = readCertificate(server, nameOption);
  const inspected = readInspected(inspect, inspectHeader, nameServer(server));
  const text = renderInspection(inspected, await capture(inspected, settings, certificate));
  process.stdout.write(`${text}\n`, () => process.exit(0));
}

function takesAll({ routes }: Settings): boolean {
  return routes.some(({ match, when }) => when === undefined && match.includes("/"));
}
