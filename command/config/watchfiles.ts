/** Notices that files have changed. */
import { readFileSync, readlinkSync, stat, type Stats, statSync, watch } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { quoteInput } from "#fetchway/options";
import { printWarning } from "../log/ownmessages.ts";
import { isSame } from "./settings.ts";

/** Milliseconds between two polls of a file. Polls find the changes for which the system reports no event. */
const POLL_INTERVAL = 2000;
/**
 * Milliseconds for which the contents must stay the same before they are used, because editors write a file in several steps.
 */
const SETTLE_TIME = 50;

/**
 * Calls a function when the text of one of the files has changed. While one of them is missing or empty, the call waits,
 * because a program is probably replacing that file.
 *
 * Events of the folder report most changes immediately. They miss changes of a single mounted file, of the target of a
 * symbolic link, and on network file systems, so each file is polled every two seconds as well.
 * @returns a function that ends the watch
 */
export function watchFiles(
  paths: readonly string[],
  onChange: () => void,
  interval: number = POLL_INTERVAL,
): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const checkSoon = (): void => void (timer ??= setTimeout(check, SETTLE_TIME));
  // Start watching before the contents are read, so that no change in between is missed.
  const ends = paths.flatMap((path) => [
    poll(path, interval, checkSoon),
    watchFolder(dirname(resolve(path)), checkSoon),
  ]);
  let used = paths.map(readOrEmpty);
  let last = used;

  function check(): void {
    timer = undefined;
    const texts = paths.map(readOrEmpty);
    if (!isSame(texts, last)) {
      last = texts;
      return checkSoon();
    }
    if (texts.includes("") || isSame(texts, used)) return;
    used = texts;
    onChange();
  }

  return () => {
    clearTimeout(timer);
    for (const end of ends) end();
  };
}

/**
 * Polls the state of a file. Each call of `stat` waits for the previous one. On a network file system that hangs, overlapping
 * calls would block one thread after another.
 */
function poll(path: string, interval: number, onChange: () => void): () => void {
  let before = statSync(path, { throwIfNoEntry: false });
  let isEnded = false;
  let isReported = false;
  let timer = setTimeout(check, interval).unref();
  function check(): void {
    // If there is no file, `now` is undefined.
    stat(path, (_, now?: Stats) => {
      if (isEnded) return;
      timer = setTimeout(check, interval).unref();
      if (isSame(toStamp(now), toStamp(before))) {
        // A program that replaces a file may remove it first, so report a missing file only at the second poll without it.
        if (now === undefined && !isReported) {
          isReported = true;
          printWarning(
            `${basename(path)} is missing${describeLink(path)}: what it contained stays in use`,
          );
        }
        return;
      }
      isReported = false;
      // A single file may be mounted, as in a container. If it is replaced outside of the mount, the mount still shows the old
      // file, whose number of links is then 0.
      if (now?.nlink === 0 && before?.nlink !== 0) {
        printWarning(
          `${basename(path)} has been replaced, but the mount of this one file still shows the old one: mount its folder, or restart the container after a change`,
        );
      }
      before = now;
      onChange();
    });
  }
  return () => {
    isEnded = true;
    clearTimeout(timer);
  };
}

/** Returns what a message about a missing file adds if its path is a symbolic link: where the link leads; otherwise `""`. */
export function describeLink(path: string): string {
  try {
    return `: it is a link to ${quoteInput(readlinkSync(path))}, which does not exist`;
  } catch {
    return "";
  }
}

function toStamp(state: Stats | undefined): readonly unknown[] {
  return [state?.dev, state?.ino, state?.size, state?.mtimeMs, state?.ctimeMs, state?.nlink];
}

/** Watches a folder. If the system cannot watch it, changes are noticed at the next poll. */
function watchFolder(folder: string, onChange: () => void): () => void {
  try {
    const watcher = watch(folder, onChange).unref();
    watcher.on("error", () => {});
    return () => watcher.close();
  } catch {
    return () => {};
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
