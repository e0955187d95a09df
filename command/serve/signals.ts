/** The signals of the command: to stop, or to reload its files. */
import process from "node:process";
import { isatty } from "node:tty";

/** Milliseconds within which two signals count as one: under npm, one Ctrl+C arrives from the terminal and from npm. */
const SAME_SIGNAL = 250;
/**
 * Milliseconds from SIGHUP until the terminal is checked again: a shell that is closed passes the signal on before its terminal
 * is gone.
 */
const CLOSE_TIME = 1000;

/** What the command does on signals. */
export interface SignalActions {
  /** Finishes running requests and tunnels, and ends the process. It is called once. */
  readonly stop: () => void;
  /**
   * Ends the process immediately, on a second signal. `after` is the number of milliseconds since the first signal, and
   * `code` the exit code.
   */
  readonly end: (after: number, code: number) => void;
  /** Reloads the files of the command. */
  readonly reload: () => void;
}

/** The signals that stop the command. The number is the exit code if a second signal ends the process. */
const STOP_SIGNALS = { SIGINT: 130, SIGTERM: 143 };
/**
 * The signals that stop the command on Windows. Ctrl+Break sends SIGBREAK. A closed console sends SIGHUP, and a few seconds
 * later, Windows ends the process.
 */
const WINDOWS_STOP_SIGNALS = { ...STOP_SIGNALS, SIGBREAK: 149, SIGHUP: 129 };

/**
 * Installs the signal handlers. Except on Windows, SIGHUP has two meanings: the terminal has closed, which stops the command,
 * or the operator requests a reload of the files. Without a terminal, it always requests a reload.
 */
export function handleSignals(
  { stop, end, reload }: SignalActions,
  platform: NodeJS.Platform = process.platform,
): void {
  let since: number | undefined;
  let isEnding = false;
  const begin = (): void => {
    if (since !== undefined) return;
    since = performance.now();
    stop();
  };
  const isWindows = platform === "win32";
  const signals = Object.entries(isWindows ? WINDOWS_STOP_SIGNALS : STOP_SIGNALS);
  for (const [signal, code] of signals) {
    process.on(signal, () => {
      const after = since === undefined ? 0 : performance.now() - since;
      if (since === undefined) begin();
      else if (after > SAME_SIGNAL && !isEnding) {
        isEnding = true;
        end(after, code);
      }
    });
  }
  if (isWindows) return;

  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  const leave = (): void => {
    silenceConsole();
    begin();
  };
  process.on("SIGHUP", () => {
    const isClosed = (): boolean => !terminals.some((fd) => isatty(fd));
    if (terminals.length === 0) requestReload();
    else if (isClosed()) leave();
    else setTimeout(() => (isClosed() ? leave() : requestReload()), CLOSE_TIME);
  });
  function requestReload(): void {
    if (since === undefined) reload();
  }
}

/** Turns off the console: once the terminal has closed, Deno's console throws, even when Deno itself prints a warning. */
function silenceConsole(): void {
  for (const name of ["error", "log", "warn"] as const) console[name] = () => {};
}
