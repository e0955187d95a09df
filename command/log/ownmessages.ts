/**
 * The messages of the command about itself: what it does, warnings, and what went wrong.
 *
 * As text, notices are on stdout, and everything else is on stderr. With `--log json`, each message is a line of
 * JSON on stdout, like the lines of the requests, so that a log collector can parse every line, in order. stderr
 * stays empty, because some collectors treat each line on stderr as an error.
 */
import process from "node:process";
import { isatty } from "node:tty";
import { format } from "node:util";
import { escapeControls } from "#fetchway/errors";
import { renderJson } from "./escape.ts";

/** How urgent a message is. */
export type Level = "info" | "warn" | "error";

/** Whether stdin is a terminal, where the user can press Ctrl+C. */
export const hasTerminal: boolean = isatty(0);

let isJson = false;
/** The listeners with which the runtime prints warnings; none if it must not print them (Node's `--no-warnings`). */
const ofRuntime = process.listeners("warning");
/** Prints a line on stdout, even after `useJsonMessages` has replaced the functions of the console. */
let printLine = (line: string): void => console.log(line);

/** Prints what the command does, such as the address on which it listens. `hint` is for people, and is left out of JSON. */
export function printNotice(text: string, hint = ""): void {
  print("info", isJson || hint === "" ? text : `${text}\n${hint}`, false);
}

/** Prints figures that the user has asked for. */
export function printFigures(text: string): void {
  print("info", text, true);
}

export function printWarning(text: string): void {
  print("warn", text, true);
}

/** Prints what went wrong. */
export function printError(text: string): void {
  print("error", text, true);
}

function print(level: Level, text: string, isForStderr: boolean): void {
  try {
    if (isJson) printLine(renderMessage(level, text));
    else if (isForStderr) console.error(renderMessage(level, text));
    else printLine(text);
  } catch {
    // Deno throws if the terminal has closed. Nobody could read the text then.
  }
}

/** Renders a message without its last line break: as JSON, which is for stdout, or as text for stderr. */
export function renderMessage(level: Level, text: string, asJson: boolean = isJson): string {
  if (asJson) return renderJson({ time: new Date().toISOString(), level, message: text.trim() });
  const lines = text.split("\n");
  return lines.map((line) => `fetchway: ${escapeControls(line)}`).join("\n");
}

/** Calls a function when all messages have been written, before the process ends. */
export function afterMessages(done: () => void): void {
  (isJson ? process.stdout : process.stderr).write("", done);
}

/**
 * Prints all further messages as JSON on stdout, including what hooks of a config file print with the console, Node's
 * warnings, and the exception that ends the process.
 */
export function useJsonMessages(): void {
  if (isJson) return;
  const { log } = console;
  printLine = log.bind(console);
  isJson = true;
  const levels = {
    debug: "info",
    info: "info",
    log: "info",
    warn: "warn",
    error: "error",
  } as const;
  for (const [name, level] of Object.entries(levels)) {
    console[name as keyof typeof levels] = (...values) => print(level, format(...values), true);
  }
  for (const listener of ofRuntime) {
    process.off("warning", listener);
    process.on("warning", ({ name, message }) => printWarning(`${name}: ${message}`));
  }
  process.on("uncaughtException", (error) => {
    printError(format(error));
    process.exit(1);
  });
}
