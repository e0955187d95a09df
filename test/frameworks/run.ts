/**
 * Installs the newest versions of frameworks, runs the code blocks of README and docs/frameworks.md in them, checks what
 * they forward, and writes the table of docs/frameworks.md. The project itself has none of these packages.
 *
 *     npm run test:frameworks [-- --apps koa,nuxt] [--folder /tmp/apps]
 *
 * Each app is in a temporary folder, with Fetchway from a packed tarball; with `--folder`, the apps stay there, and what
 * is installed is used again. The exit code is 1 if a cell differs from the page's, or an app fails.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { startProgram } from "../helpers/program.ts";
import { toTable } from "../project/_readme.ts";
import { listen } from "../helpers/serve.ts";
import { pause } from "../helpers/wait.ts";
import { type App, apps, TARGET, textOf } from "./apps.ts";
import { checks, NOT_HERE, type Running, THROWN, Upstream } from "./checks.ts";

const root = join(import.meta.dirname, "../..");
const page = join(root, "docs/frameworks.md");
const MARKED = /(<!-- frameworks -->\n)([^]*?)(\n<!-- \/frameworks -->)/;
/** The limit of each command, in milliseconds. */
const LIMIT = 300_000;

const { values } = parseArgs({
  options: { apps: { type: "string" }, folder: { type: "string" } },
});
const asked = values.apps?.toLowerCase().split(",");
const chosen = Object.entries(apps).filter(
  ([name]) => asked?.some((each) => name.toLowerCase().includes(each)) ?? true,
);
if (chosen.length === 0) throw new Error(`--apps: use some of ${Object.keys(apps).join(", ")}`);
const scratch = values.folder ?? mkdtempSync(join(tmpdir(), "fetchway-frameworks-"));

// `npm run` sets variables with npm's options, which the other calls of npm must not inherit.
const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
const QUIET = {
  ASTRO_TELEMETRY_DISABLED: "1",
  NEXT_TELEMETRY_DISABLED: "1",
  NUXT_TELEMETRY_DISABLED: "1",
  WRANGLER_SEND_METRICS: "false",
};

/** Runs a command to its end. @throws Error with its output, if it fails or takes too long */
function run(cwd: string, command: string, args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    env: { ...Object.fromEntries(inherited), ...QUIET, CI: "1", NO_COLOR: "1" },
    encoding: "utf8",
    timeout: LIMIT,
    killSignal: "SIGKILL",
  });
  if (status === 0) return stdout;
  throw new Error(`${command} ${args.join(" ")}: exit code ${status}\n${stdout}${stderr}`);
}

const npm = (cwd: string, ...args: string[]): string =>
  run(cwd, "npm", [...args, "--loglevel=error", "--no-audit", "--no-fund"]);

/** Returns the arguments that run a program of the app, or the project's own Node or Bun. */
function programOf(folder: string, [name = "", ...args]: readonly string[]): [string, string[]] {
  if (name === "node" || name === "bun") return [name, args];
  return ["node", [join(folder, "node_modules/.bin", name), ...args]];
}

/** Replaces the target by a function, so that the check of exceptions finds a hook that throws. */
function withTarget(code: string, port: number): string {
  const origin = `http://127.0.0.1:${port}`;
  const target = `(({ url }: { url: string }) => {
    if (url.endsWith("/throw")) throw new Error("${THROWN}");
    return "${origin}";
  })`;
  return code.includes("createProxy") || code.includes("proxyFetch")
    ? code.replaceAll(`"${TARGET}"`, target)
    : code.replaceAll(TARGET, origin);
}

/** Writes the files of an app, and installs what it needs. */
function prepare(app: App, folder: string, port: number, upstreamPort: number): void {
  mkdirSync(folder, { recursive: true });
  const write = (file: string, text: string): void => {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  };
  if (!existsSync(join(folder, "node_modules"))) {
    write("package.json", '{ "private": true, "type": "module" }');
    npm(folder, "install", tarball, "@types/node", ...app.packages);
  }
  write("tsconfig.json", TSCONFIG);
  for (const [file, source] of Object.entries(app.files)) {
    let code = textOf(source);
    for (const [text, other] of Object.entries(app.replaced ?? {})) {
      if (typeof source !== "string") code = code.replaceAll(text, other);
    }
    write(file, withTarget(code, upstreamPort).replaceAll("3000", String(port)));
  }
}

const TSCONFIG = JSON.stringify({
  compilerOptions: {
    target: "es2023",
    module: "preserve",
    lib: ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
    jsx: "react-jsx",
    types: ["node"],
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
  },
  exclude: ["node_modules", ".*", "dist", "build"],
});

function versionOf(folder: string, { packages: [first = ""] }: App): string {
  const name = first.replace(/(?<=.)@.*$/, "");
  const manifest = readFileSync(join(folder, "node_modules", name, "package.json"), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}

async function checkTypes(folder: string, { types = "tsconfig.json" }: App): Promise<string> {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  run(folder, process.execPath, [tsc, "--noEmit", "-p", types, "--pretty", "false"]);
  return "yes";
}

/** Waits until the app forwards a request, and returns where it went. */
async function findBase(port: number, upstream: Upstream, isOver: () => boolean): Promise<string> {
  const deadline = performance.now() + 60_000;
  while (performance.now() < deadline && !isOver()) {
    const request = fetch(`http://127.0.0.1:${port}/api/ready`, {
      signal: AbortSignal.timeout(5000),
    });
    const response = await request.catch(() => undefined);
    await response?.body?.cancel();
    if (response?.status === 200) {
      const { req } = await upstream.call("/ready");
      return req.url?.replace(/\/ready$/, "") ?? "";
    }
    await pause(100);
  }
  throw new Error("the app forwards no request");
}

async function findPort(): Promise<number> {
  const placeholder = createServer();
  const port = await listen(placeholder);
  placeholder.close();
  return port;
}

/** Returns the message of an error. A long one, such as the output of a command, loses its middle. */
function describe(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.length < 4000 ? message : `${message.slice(0, 2000)}\n…\n${message.slice(-2000)}`;
}

/** Runs an app with all checks, and returns the row of the table. */
async function runApp(name: string, app: App): Promise<string[]> {
  const folder = join(scratch, name.toLowerCase().replaceAll(/\W+/g, "-"));
  await using upstream = new Upstream();
  const cells: string[] = [];
  const note = (title: string, error: unknown): string => {
    console.error(`${name}, ${title}: ${describe(error)}`);
    return "no";
  };
  const upstreamPort = await upstream.listen();
  const port = await findPort();
  prepare(app, folder, port, upstreamPort);
  for (const command of app.build ?? []) {
    const [tool, args] = programOf(folder, command);
    run(folder, join(root, "node_modules/.bin", tool), args);
  }
  const [tool, args] = programOf(
    folder,
    app.start.map((arg) => (arg === "PORT" ? String(port) : arg)),
  );
  const env = { ...QUIET, PORT: String(port), HOST: "127.0.0.1", NODE_ENV: "production" };
  await using program = startProgram(tool, args, { ...env, ...app.env }, folder);
  try {
    const base = await findBase(port, upstream, () => program.code() !== undefined);
    const running: Running = { port, upstream, base, output: () => program.output() };
    for (const [title, check] of Object.entries(checks)) {
      const cell = await check(running).catch((error: unknown) => note(title, error));
      cells.push(title === "WebSockets" && cell === NOT_HERE ? (app.webSockets ?? cell) : cell);
    }
  } catch (error) {
    throw new Error(`${String(error)}\n${program.output()}`, { cause: error });
  }
  cells.push(await checkTypes(folder, app).catch((error: unknown) => note("types", error)));
  return [`${name} ${versionOf(folder, app)}`, ...summarize(cells)];
}

/** Returns the cells about WebSockets and about everything else that is not "yes". */
function summarize(cells: readonly string[]): string[] {
  const titled = [...Object.keys(checks), "types"].map((title, i) => [title, cells[i] ?? ""]);
  const others = titled.filter(([title, cell]) => title !== "WebSockets" && cell !== "yes");
  const [, sockets = ""] = titled.find(([title]) => title === "WebSockets") ?? [];
  return [sockets, others.map((each) => each.join(": ")).join("; ")];
}

/** Puts the row of an app into the page's table, and returns whether a cell has changed. */
function writeRow(name: string, row: string[]): boolean {
  const text = readFileSync(page, "utf8");
  const [, open = "", table = "", close = ""] = MARKED.exec(text) ?? [];
  const lines = table.split("\n").map((line) => line.split("|").slice(1, -1));
  const cells = lines.map((line) => line.map((cell) => cell.trim()));
  const rows = new Map(
    Object.keys(apps).map((each) => [
      each,
      cells.find(([first = ""]) => first.replace(/ \S+$/, "") === each),
    ]),
  );
  const before = rows.get(name) ?? [];
  rows.set(name, row);
  const shown = [...rows.values()].filter((each) => each !== undefined);
  const updated = toTable([["", "WebSockets", "what differs"], ...shown]);
  writeFileSync(
    page,
    text.replace(MARKED, () => `${open}\n${updated}${close}`),
  );
  return before.slice(1).join() !== row.slice(1).join();
}

mkdirSync(scratch, { recursive: true });
npm(root, "run", "build");
const packed = npm(root, "pack", "--ignore-scripts", "--pack-destination", scratch);
const tarball = join(scratch, packed.trim());
let isChanged = false;
for (const [name, app] of chosen) {
  try {
    const row = await runApp(name, app);
    isChanged = writeRow(name, row) || isChanged;
    console.log(row.join(" | "));
  } catch (error) {
    isChanged = true;
    console.error(`${name}: ${describe(error)}`);
  }
}
if (values.folder === undefined) rmSync(scratch, { recursive: true });
process.exitCode = isChanged ? 1 : 0;
