/** Notices that the config file has changed. */
import { type FSWatcher, watch } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import process from "node:process";
import { runAgain } from "../serve/runagain.ts";
import { readSource } from "./loadconfig.ts";

/** Milliseconds to wait after an event, because editors write a file in several steps. */
const SETTLE_TIME = 50;

/**
 * Calls a function when the text of a file has changed, and on SIGHUP in any case. A call waits for the one before, and
 * serves all changes and signals until it begins.
 *
 * It watches the folder, because editors and container platforms replace the file by another one of the same name.
 */
export function watchConfig(path: string, onChange: () => Promise<void>): void {
  let source = readOrEmpty(path);
  let timer: ReturnType<typeof setTimeout> | undefined;

  const reload = runAgain(onChange);
  const look = (): void => {
    const before = source;
    source = readOrEmpty(path);
    // An empty file is one that an editor is about to write.
    if (source !== before && source !== "") reload();
  };
  process.on("SIGHUP", () => {
    source = readOrEmpty(path);
    reload();
  });
  try {
    const watcher: FSWatcher = watch(dirname(resolve(path)), () => {
      clearTimeout(timer);
      timer = setTimeout(look, SETTLE_TIME);
    });
    watcher.on("error", (error) => warn(path, error));
  } catch (error) {
    warn(path, error as Error);
  }
}

function readOrEmpty(path: string): string {
  try {
    return readSource(path);
  } catch {
    return "";
  }
}

function warn(path: string, { message }: Error): void {
  console.error(
    `fetchway: ${basename(path)} is not watched (${message}): send SIGHUP after a change`,
  );
}
