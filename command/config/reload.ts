/** Reloads the config file while the command runs. */
import { basename } from "node:path";
import { UsageError } from "../flags/read.ts";
import { printError, printNotice, printWarning } from "../log/ownmessages.ts";
import { type CertificatePaths, readCertificate } from "../serve/certificate.ts";
import { runAgain } from "../serve/runagain.ts";
import { ConfigError, readConfig } from "./loadconfig.ts";
import { explain } from "./problems.ts";
import { isSame, type ReadConfig, type Settings } from "./settings.ts";
import { watchFiles } from "./watchfiles.ts";

/** The options of the server that can change without a restart. */
const LIVE: ReadonlySet<string> = new Set(["ca", "insecure"]);

/** Makes settings from a config file and the flags. `onDoubt` is called with a warning about each doubtful option. */
export type Compose = (file: ReadConfig, onDoubt?: (warning: string) => void) => Settings;

/**
 * Reloads a config file when it changes. If the file has a mistake, or no route, the running routes are kept.
 * @param use applies the settings, except the options of the server; throws if the routes have a mistake
 * @returns a function that reloads the file whether it has changed or not
 */
export function reloadConfig(
  path: string,
  settings: Settings,
  compose: Compose,
  use: (next: Settings) => void,
): () => void {
  const name = basename(path);
  let current = settings;

  async function apply(): Promise<void> {
    const next = compose(await readConfig(path, printWarning), printWarning);
    assertRouted(name, next);
    use(next);
    const kept = next.routes.filter((route) => current.routes.some((each) => isSame(each, route)));
    printNotice(`${name} has been reloaded: ${describeRoutes(next.routes.length, kept.length)}`);
    for (const option of findChanged(current.server, next.server)) {
      const refusal = option === "cert" || option === "key" ? refuse(next.server) : undefined;
      const fix =
        refusal === undefined
          ? ": restart the command for that"
          : `, but a restart would fail: ${refusal}`;
      printWarning(`${name}: server.${option} has changed${fix}`);
    }
    // The server still has the options with which it was started, so compare the next reload with these, not with
    // `next.server`.
    current = { ...next, server: current.server };
  }

  const reload = runAgain(async () => {
    try {
      await apply();
    } catch (error) {
      for (const problem of explainAny(error)) printError(problem);
      printError(`${name} is not applied: the routes stay as they are`);
    }
  });
  watchFiles([path], reload);
  return reload;
}

/**
 * Makes sure that the settings have a route.
 * @throws UsageError that names the file if they have none
 */
export function assertRouted(name: string, { routes }: Settings): void {
  if (routes.length === 0) throw new UsageError(`${name}: there is no route: add target or routes`);
}

/**
 * Returns the messages of an error, one line each. A `ConfigError` may have several.
 * @throws the error itself, if it is no mistake of the user
 */
export function explainAll(error: unknown): readonly string[] {
  return error instanceof ConfigError ? error.problems : [explain(error)];
}

/** Like `explainAll`, but returns a message for every error, because no reload may end the process. */
function explainAny(error: unknown): readonly string[] {
  try {
    return explainAll(error);
  } catch {
    return [String(error)];
  }
}

/** Returns why the command would not start with the certificate of a config file; undefined if it would. */
function refuse(server: CertificatePaths): string | undefined {
  try {
    readCertificate(server, (option) => `server.${option}`);
    return undefined;
  } catch (error) {
    return explain(error);
  }
}

function findChanged(before: object, after: object): string[] {
  const [one, other] = [before, after] as Record<string, unknown>[];
  return Object.keys({ ...one, ...other }).filter(
    (option) => !LIVE.has(option) && !isSame(one?.[option], other?.[option]),
  );
}

function describeRoutes(all: number, kept: number): string {
  const routes = `${all} route${all === 1 ? "" : "s"}`;
  return kept === all ? `${routes}, unchanged` : `${routes}, ${all - kept} of them new or changed`;
}
