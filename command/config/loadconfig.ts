/** Reads the config file of the command. */
import { spawnSync } from "node:child_process";
import { readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { quoteInput } from "#fetchway/options";
import { checkConfig, type ConfigFault } from "./checkconfig.ts";
import { normalizeConfig } from "./normalizeconfig.ts";
import { findJsonFault } from "./jsonfault.ts";
import { describeLink } from "./watchfiles.ts";
import type { ReadConfig } from "./settings.ts";

/** The mistakes in a config file, one line each, with the name of the file and, if it is known, the line number. */
export class ConfigError extends Error {
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/**
 * The number of imports so far. Each import has this number in its URL, because a module is evaluated only once for each URL.
 */
let imports = 0;

/**
 * Reads and checks a config file. Modules that the file itself imports are not reloaded.
 * @param onDoubt called with a warning about each value that is valid, but probably a mistake
 * @throws ConfigError that names the file, the fix and, if it can be found, the line
 */
export async function readConfig(
  path: string,
  onDoubt: (warning: string) => void = () => {},
): Promise<ReadConfig> {
  const source = readSource(path);
  const written = path.endsWith(".json")
    ? parseJson(path, source)
    : await importConfig(path, source);
  const config = normalizeConfig(written, (doubt) => onDoubt(`${basename(path)}: ${doubt}`));
  const faults = checkConfig(config);
  if (faults.length > 0) throw toConfigError(path, source, faults);
  return resolvePaths(config as ReadConfig, dirname(path));
}

/** Resolves the paths of the server's files against the folder of the config file. */
function resolvePaths({ server, ...config }: ReadConfig, folder: string): ReadConfig {
  if (server === undefined) return config;
  const resolved = { ...server };
  for (const option of ["cert", "key", "ca", "record"] as const) {
    const path = server[option];
    if (path !== undefined) resolved[option] = resolve(folder, path);
  }
  return { ...config, server: resolved };
}

/**
 * Reads the text of a config file.
 * @throws ConfigError
 */
export function readSource(path: string): string {
  if (!/\.(?:[mc]?[jt]s|json)$/.test(path)) {
    throw new ConfigError([`--config ${quoteInput(path)}: use a .mjs, .js, .ts or .json file`]);
  }
  let source: string;
  try {
    source = readFileSync(path, "utf8");
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    const link = describeLink(path);
    const missing = link === "" ? "there is no such file" : link.replace(": ", "");
    const reason = code === "ENOENT" ? missing : code === "EISDIR" ? "it is a folder" : message;
    throw new ConfigError([`--config ${quoteInput(path)}: ${reason}`]);
  }
  // In UTF-16, an ASCII character has a zero byte beside it. As UTF-8, the byte order mark of UTF-16 is read as two U+FFFD.
  if (/^(?:\uFFFD\uFFFD|.?\0)/.test(source)) {
    throw new ConfigError([`${basename(path)}: it is in UTF-16: save it in UTF-8`]);
  }
  // Some editors on Windows begin a file with a byte order mark, which JSON does not allow.
  return source.replace(/^\uFEFF/, "");
}

function parseJson(path: string, source: string): unknown {
  if (source.trim() === "") throw new ConfigError([`${basename(path)}: the file is empty`]);
  try {
    return JSON.parse(source);
  } catch {
    const index = findJsonFault(source) ?? source.length;
    const found = index < source.length ? JSON.stringify(source[index]) : "the end of the file";
    const hint = /^\s*[}\]]/.test(source.slice(index)) ? "; remove the comma before it?" : "";
    throw new ConfigError([
      `${at(path, lineOf(source, index))}: it is not JSON: ${found} is not expected here${hint}`,
    ]);
  }
}

async function importConfig(path: string, source: string): Promise<unknown> {
  // Node caches the real path behind a link. If the link now leads elsewhere, Node would import the earlier file again.
  const file = realpathSync(path);
  // CommonJS modules, and on Bun all modules, are cached by their path.
  delete createRequire(file).cache[file];
  let loaded: { default?: unknown };
  try {
    loaded = (await import(`${pathToFileURL(file).href}?read=${++imports}`)) as object;
  } catch (error) {
    throw explainImport(path, error);
  }
  if (loaded.default !== undefined) return loaded.default;
  const line = lineMatching(source, /module\.exports|^export /m);
  throw new ConfigError([
    `${at(path, line)}: there is no default export: write export default {…}`,
  ]);
}

/** The members of the errors that runtimes throw if a module cannot be imported. */
interface ImportFailure {
  readonly name?: string;
  readonly message?: string;
  readonly stack?: string;
  readonly code?: string;
  /** On Bun, the place of a syntax error. */
  readonly position?: { readonly line: number } | null;
  /** On Bun, the syntax errors if there are several. */
  readonly errors?: readonly ImportFailure[];
}

function explainImport(path: string, thrown: unknown): ConfigError {
  if (typeof thrown !== "object" || thrown === null) {
    return new ConfigError([`${basename(path)}: it throws ${String(thrown)}`]);
  }
  const { errors: [first = thrown] = [] } = thrown as ImportFailure;
  return explainFailure(path, first);
}

function explainFailure(path: string, failure: ImportFailure): ConfigError {
  if (failure.code === "ERR_UNKNOWN_FILE_EXTENSION") {
    const fix = "use a .mjs file, or Node 22.18 or newer";
    return new ConfigError([
      `${basename(path)}: this version of Node cannot read TypeScript: ${fix}`,
    ]);
  }
  if (failure.code === "ERR_UNKNOWN_BUILTIN_MODULE") {
    return new ConfigError([
      `${basename(path)}: this single executable cannot import files: use a .json file`,
    ]);
  }
  if (/(?:Cannot find (?:package|module)|Import) ["']fetchway["'/]/.test(failure.message ?? "")) {
    const fix = "run npm install fetchway in its folder, or leave defineConfig out";
    return new ConfigError([`${basename(path)}: it cannot import fetchway: ${fix}`]);
  }
  const name = basename(path);
  const moduleName = name.replace(/\.c?([jt]s)$/, ".m$1");
  const isModule = /outside a module|token 'export'/.test(failure.message ?? "");
  if (failure.name === "SyntaxError" && isModule && moduleName !== name) {
    const why = "Node takes it for CommonJS, by its name or its package.json, but it is a module";
    return new ConfigError([`${name}: ${why}: name it ${moduleName}`]);
  }
  // Remove the colours from Deno's messages, and the source line below their first line.
  const message = stripVTControlCharacters(failure.message ?? "");
  const [first = ""] = message.split("\n");
  const line = failure.position?.line ?? findLine(path, failure, message);
  return new ConfigError([`${at(path, line)}: ${first.replace(/^SyntaxError: /, "")}`]);
}

/**
 * Returns the first line number of the config file that the message or the stack of a failure contains. For a syntax error
 * without a line number, it asks `node --check`.
 */
function findLine(
  path: string,
  { stack = "", name }: ImportFailure,
  message: string,
): number | undefined {
  const file = escapeRegExp(basename(path));
  const place = new RegExp(`[/\\\\]${file}(?:\\?read=\\d+)?:(\\d+)`);
  const found = place.exec(message) ?? place.exec(stripVTControlCharacters(stack));
  if (found !== null || name !== "SyntaxError")
    return found === null ? undefined : Number(found[1]);
  const shown = place.exec(checkSyntax(resolve(path)));
  return shown === null ? undefined : Number(shown[1]);
}

/**
 * Returns the output of `node --check` about a syntax error. The error that Node throws lacks the position, unlike the
 * errors of other runtimes.
 */
function checkSyntax(file: string): string {
  try {
    const env = { ...process.env, NODE_OPTIONS: "" };
    return spawnSync(process.execPath, ["--check", file], { encoding: "utf8", env }).stderr;
  } catch {
    // Node's permission model may forbid child processes.
    return "";
  }
}

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

// ── the lines of wrong options ──

function toConfigError(path: string, source: string, faults: readonly ConfigFault[]): ConfigError {
  return new ConfigError(
    faults.map((fault) => `${at(path, findFaultLine(source, fault))}: ${fault.text}`),
  );
}

function at(path: string, line: number | undefined): string {
  return line === undefined ? basename(path) : `${basename(path)}:${line}`;
}

function lineOf(source: string, index: number): number {
  return source.slice(0, index).split("\n").length;
}

function lineMatching(source: string, pattern: RegExp): number | undefined {
  const index = source.search(pattern);
  return index < 0 ? undefined : lineOf(source, index);
}

/**
 * Finds the line of a wrong option. Code may compute a config, so a line is returned only if the name of the option occurs
 * exactly once in the file, or for an option of a route, if the file has one `match` for each route.
 */
function findFaultLine(source: string, { key, route, routes }: ConfigFault): number | undefined {
  const keys = key === undefined ? [] : indexesOf(source, key);
  if (keys.length === 1) return lineOf(source, keys[0] as number);
  const matches = route === undefined ? [] : indexesOf(source, "match");
  if (route === undefined || matches.length !== routes) return undefined;
  const [begin = 0, own = 0, end = source.length] = [
    matches[route - 1],
    matches[route],
    matches[route + 1],
  ];
  // Most files begin a route with `match`. If the option is not found after `match`, it may precede `match`.
  const after = keys.filter((index) => index >= own && index < end);
  const before = keys.filter((index) => index > begin && index < own);
  const [found = own] = after.length > 0 ? after : before;
  return lineOf(source, found);
}

/** Returns the indexes at which a file has a property of that name. */
function indexesOf(source: string, key: string): number[] {
  const property = new RegExp(`(?<![\\w$.-])(["']?)${escapeRegExp(key)}\\1\\s*:`, "g");
  return Array.from(source.matchAll(property), ({ index }) => index);
}
