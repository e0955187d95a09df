/**
 * Runs the tests of the hosts on Node, those of the Node entry (in `test/runtimes/node/`, and `*.node.test.ts`), those of
 * the command, and a storm, with other versions of Node and of the frameworks.
 *
 *     npm run test:matrix [-- --nodes 22.12.0,26.1.0] [--hosts node,srvx] [--exchanges 2000]
 *
 * In tests of the hosts, Vitest runs on the project's own Node, and the compiled hosts run on the other version. Tests
 * of the Node entry have their servers in the process of Vitest, so Vitest itself runs on the other version.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  COMMAND,
  compileHosts,
  findFrameworks,
  findNodes,
  FRAMEWORKS,
  installNode,
  pinned,
} from "./install.ts";
import { type HostName, ON_NODE } from "../hosts/_hosts.ts";

const root = join(import.meta.dirname, "../..");

const { values } = parseArgs({
  options: {
    nodes: { type: "string" },
    hosts: { type: "string", default: ON_NODE.join(",") },
    exchanges: { type: "string", default: "2000" },
  },
});
const hosts = values.hosts.split(",");
const unknown = hosts.find((name) => !ON_NODE.includes(name as HostName));
if (unknown !== undefined) throw new Error(`--hosts ${unknown}: use some of ${ON_NODE.join(", ")}`);

interface Row {
  node: string;
  frameworks: string;
  passed: number;
  /** The tests that this version of Node cannot run. */
  skipped: string[];
  failed: string[];
  /** The exit code of Vitest. It is also not 0 if a test file cannot be loaded. */
  code: number;
}

/** The part of the report of Vitest's JSON reporter that this program reads. */
interface Report {
  testResults: {
    name: string;
    message: string;
    assertionResults: { fullName: string; status: string }[];
  }[];
}

/**
 * Runs a program of this project with hosts on the given Node.
 * @param binary the Node binary on which the program itself runs
 * @returns the program's exit code and output
 */
function runOn(
  node: string,
  files: string,
  args: string[],
  binary: string = process.execPath,
): { code: number; output: string } {
  const { status, stdout } = spawnSync(binary, args, {
    cwd: root,
    env: {
      ...process.env,
      HOST_NODE: installNode(node),
      HOST_FILES: files,
      HOST_COMMAND: join(files, "..", COMMAND.replace(/ts$/, "js")),
    },
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  return { code: status ?? 1, output: stdout };
}

/**
 * The tests of the Node entry, among them those of code that depends on undocumented parts of Node and of the
 * frameworks.
 */
const inProcess = [
  "--project=node",
  "--project=runtimes",
  "--project=command",
  "test/runtimes/node/",
  ".node.test.ts",
];

/**
 * Whether a test file starts the command only through `_command.ts`, which runs the compiled file that `HOST_COMMAND` names. A
 * file that names `command/main.ts` runs the TypeScript sources, which old versions of Node cannot run.
 */
function startsCommand(path: string): boolean {
  const code = readFileSync(join(root, path), "utf8");
  return code.includes('"./_command.ts"') && !code.includes('"command/main.ts"');
}

/**
 * The tests of the command, `--workers` included, which start the command on the other version, and those of its permissions.
 */
const COMMAND_TESTS = readdirSync(join(root, "test/command"))
  .filter((name) => name.endsWith(".test.ts") && !name.endsWith(".node.test.ts"))
  .map((name) => `test/command/${name}`)
  .filter(startsCommand)
  .concat("test/runtimes/permissions.test.ts");
/**
 * Further versions for the command: on these, a message to a worker is lost if it comes before the worker listens for messages,
 * and a server with TLS ignores its options for HTTP/1.1.
 */
const OF_COMMAND = ["22.12.0", "23.11.0", "24.0.0"];

function emptyRow(node: string, frameworks: string): Row {
  return { node, frameworks, passed: 0, skipped: [], failed: [], code: 0 };
}

function runTests(node: string, frameworks: string, files: string): Row {
  const row = emptyRow(node, frameworks);
  // Test the behaviour of the hosts, and also which fast paths they use.
  const suites = hosts.map((host) => `--project=suite:${host}`);
  runVitest(row, files, suites, process.execPath);
  runVitest(row, files, ["test/work/hosts.test.ts"], process.execPath);
  runVitest(row, files, inProcess, installNode(node));
  runVitest(row, files, COMMAND_TESTS, process.execPath);
  return row;
}

function runCommand(node: string, files: string): Row {
  const row = emptyRow(node, "none");
  runVitest(row, files, COMMAND_TESTS, process.execPath);
  return row;
}

/** Runs test files, and adds the numbers of passed and failed tests to the row. */
function runVitest(row: Row, files: string, tests: string[], binary: string): void {
  const output = join(files, "../report.json");
  rmSync(output, { force: true });
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const args = [vitest, "run", ...tests, "--reporter=json", `--outputFile=${output}`];
  const { code } = runOn(row.node, files, args, binary);
  row.code ||= code;
  if (!existsSync(output)) {
    row.failed.push(`no report of ${tests.join(" ")}`);
    return;
  }
  const { testResults } = JSON.parse(readFileSync(output, "utf8")) as Report;
  for (const { name, message, assertionResults } of testResults) {
    const file = /[\w.]+(?=\.test\.ts$)/.exec(name)?.[0] ?? name;
    if (assertionResults.length === 0) row.failed.push(`${file}: ${message}`);
    for (const { fullName, status } of assertionResults) {
      if (status === "passed") row.passed++;
      else
        row[status === "skipped" ? "skipped" : "failed"].push(`${file}: ${fullName} (${status})`);
    }
  }
}

/** Runs a short storm on each host. Each storm counts as a test. */
function runStorms(row: Row, files: string): Row {
  for (const name of hosts.flatMap((host) => [host, `${host}:wrapped`])) {
    const args = ["test/storm/run.ts", "--hosts", name, "--exchanges", values.exchanges];
    const { code, output } = runOn(row.node, files, args);
    if (code === 0) row.passed++;
    else row.failed.push(`storm: ${output.trim().replaceAll("\n", "\n    ")}`);
    row.code ||= code;
  }
  return row;
}

function summarize({ node, frameworks, passed, skipped, failed, code }: Row): string {
  const numbers = { passed, failed: failed.length, skipped: skipped.length };
  const counts = Object.entries(numbers).map(
    ([name, count]) => `${String(count).padStart(5)} ${name}`,
  );
  return `Node ${node.padEnd(8)} frameworks ${frameworks.padEnd(6)} ${counts.join("")}  exit ${code}`;
}

const nodes = values.nodes?.split(",") ?? findNodes([22, 24, 26]);
const newest = findFrameworks();
const files = await compileHosts(pinned);
const rows: Row[] = [];
function add(row: Row): void {
  rows.push(row);
  const named = [...row.failed, ...row.skipped].map((name) => `    ${name}`);
  console.log([summarize(row), ...named].join("\n"));
}
for (const node of nodes) add(runStorms(runTests(node, "pinned", files), files));
for (const node of values.nodes === undefined ? OF_COMMAND : []) add(runCommand(node, files));

const newer = FRAMEWORKS.filter((name) => newest[name] !== pinned[name]);
if (newer.length === 0) console.log("the newest frameworks are the pinned ones");
else {
  console.log(`newest: ${newer.map((name) => `${name} ${newest[name]}`).join(", ")}`);
  const compiled = await compileHosts(newest);
  // Run the newest frameworks on the newest Node and on the project's own Node.
  for (const node of new Set([nodes.at(-1) as string, process.versions.node])) {
    add(runStorms(runTests(node, "newest", compiled), compiled));
  }
}

console.log(["", ...rows.map(summarize)].join("\n"));
process.exitCode = rows.every(({ code }) => code === 0) ? 0 : 1;
