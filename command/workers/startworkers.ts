/** Starts the command with workers. This process is their parent. */
import cluster from "node:cluster";
import { basename } from "node:path";
import process from "node:process";
import type { NameServerOption, Settings } from "../config/settings.ts";
import { describeMadeSecret } from "../config/stickycookies.ts";
import { watchFiles } from "../config/watchfiles.ts";
import { UsageError } from "../flags/read.ts";
import { coloursOf } from "../log/lineforms.ts";
import { printError, printNotice, printWarning } from "../log/ownmessages.ts";
import { chooseLogForm } from "../log/requestlog.ts";
import { renderBanner, renderFewFiles, renderHint } from "../serve/banner.ts";
import {
  type CertificatePaths,
  watchCertificate,
  type WatchedCertificate,
} from "../serve/certificate.ts";
import { createMetrics, openStatus, prepareRecording } from "../serve/observe.ts";
import type { Front } from "../serve/listen.ts";
import { printStats } from "../serve/printstats.ts";
import { runAgain } from "../serve/runagain.ts";
import { handleSignals } from "../serve/signals.ts";
import { claimSocket, readSocketPath } from "../serve/socketfile.ts";
import { exitCodeOf, printCut, printRunning } from "../serve/stop.ts";
import { parseAdminAddress } from "../status/adminaddress.ts";
import { countWorkers } from "./countworkers.ts";
import { Supervisor, type WorkerFailure } from "./supervisor.ts";
import { toTexts } from "./workerlink.ts";

/**
 * The server options that the parent applies. A change of one of these takes full effect only when the command is restarted.
 */
const OF_PARENT = [
  "port",
  "host",
  "workers",
  "workerTimeout",
  "stopTimeout",
  "log",
  "admin",
  "stats",
  "record",
  "recordMaxEntries",
  "recordMaxBytes",
] as const;

/**
 * Starts the workers, and serves the status page for all of them.
 * @param path the config file
 * @param demo the origin of the demo upstream
 * @param secret the secret for the sticky cookies of routes that configure none
 * @param nameOption names the options of the server in messages
 * @param doubts the warnings about the flags and the config file, which have been printed
 */
export async function startWorkers(
  settings: Settings,
  path: string | undefined,
  demo: string | undefined,
  secret: string,
  nameOption: NameServerOption,
  doubts: readonly string[],
): Promise<void> {
  const { server } = settings;
  const { port, host, stopTimeout } = server;
  // Under another program's cluster, as in the cluster mode of pm2, that program has the listening sockets.
  if (cluster.isWorker) {
    throw new UsageError(
      "--workers: another program runs this command as a worker; use --workers 1",
    );
  }
  const count = countWorkers(server.workers);
  const log = server.log === "auto" ? chooseLogForm(process.stdout) : server.log;
  const supervisor = new Supervisor(
    {
      port,
      host,
      stopTimeout,
      count,
      log,
      colours: coloursOf(process.stdout, process.stderr),
      demo,
      secret,
      record: server.record,
      admin: server.admin,
    },
    server.workerTimeout,
  );
  const { poolStats, clientStats, usage } = supervisor.totals;
  const refresh = (): Promise<void> => supervisor.refresh();

  if (server.record !== undefined) supervisor.recording = await prepareRecording(server);
  let status: string | undefined;
  let isListening = false;
  const admin = server.admin === undefined ? undefined : parseAdminAddress(server.admin);
  if (admin !== undefined) {
    const metrics = createMetrics(poolStats);
    Object.assign(metrics, { clientStats, usage });
    metrics.describeWorkers = () => supervisor.describeWorkers();
    supervisor.metrics = metrics;
    status = await openStatus(admin, { metrics, readiness: () => supervisor.readiness, refresh });
  }

  const before = toTexts(server);
  let certificate: WatchedCertificate | undefined;
  let watched: CertificatePaths = {};
  /**
   * Watches the files of the workers' certificate. Called again after a reload, when the config file may name other
   * files.
   */
  function followCertificate({ cert, key }: CertificatePaths): void {
    if (cert === watched.cert && key === watched.key) return;
    watched = { cert, key };
    certificate?.close();
    certificate =
      cert === undefined
        ? undefined
        : watchCertificate(watched, nameOption, replaceBecause("the certificate has changed"));
  }
  /** The reasons for the next replacement of the workers. */
  const reasons = new Set<string>();
  const replace = runAgain(async () => {
    const why = [...reasons].join(", ");
    reasons.clear();
    // Workers that are starting read the files anyway.
    if (!isListening) return;
    const next = await supervisor.replace(why);
    if (next === undefined || path === undefined) return;
    followCertificate(next.server);
    for (const doubt of next.doubts) if (!doubts.includes(doubt)) printWarning(doubt);
    for (const option of OF_PARENT) {
      if (next.server[option] === before[option]) continue;
      printWarning(`${basename(path)}: server.${option} has changed: restart the command for that`);
    }
  });

  function replaceBecause(reason: string): () => void {
    return () => {
      reasons.add(reason);
      replace();
    };
  }

  handleSignals({
    stop: () => void stop(),
    end: (after, code) => void end(after, code),
    reload: replaceBecause("SIGHUP"),
  });
  let isEnding = false;
  async function stop(): Promise<void> {
    const cut = await supervisor.stop(printRunning);
    if (isEnding) return;
    printCut(cut, stopTimeout);
    if (supervisor.wasKilled) {
      printError("workers that did not answer were killed with all their connections");
    }
    process.exit(supervisor.wasKilled ? 1 : exitCodeOf(cut));
  }
  async function end(after: number, code: number): Promise<void> {
    isEnding = true;
    printCut(await supervisor.end(), after);
    process.exit(code);
  }

  const socketPath = readSocketPath(host);
  const releaseClaim = socketPath === undefined ? undefined : await claimSocket(socketPath);
  let front: Pick<Front, "address" | "redirect">;
  try {
    front = await supervisor.start();
    supervisor.recording?.open();
  } catch (error) {
    const { exitCode = 2, reason, message } = error as Error & Partial<WorkerFailure>;
    if (reason !== "") printError(message);
    await supervisor.end();
    process.exit(exitCode);
  }
  releaseClaim?.();
  isListening = true;
  printStats({ stats: poolStats, refresh }, server.stats);
  followCertificate(server);
  if (path !== undefined) watchFiles([path], replaceBecause(`${basename(path)} has changed`));
  printNotice(renderBanner(front, settings, demo), renderHint(front.address, settings, demo));
  const made = describeMadeSecret(settings, secret);
  if (made !== undefined) printNotice(made);
  printNotice(`  ${count} workers`);
  const few = renderFewFiles(server, count);
  if (few !== undefined) printNotice(few);
  if (status !== undefined) printNotice(`  status page: ${status}/`);
}
