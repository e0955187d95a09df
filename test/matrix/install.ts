/** Installs other versions of Node and of the frameworks in a scratch folder, and compiles the hosts for them. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { ON_NODE } from "../hosts/_hosts.ts";
import { compareVersions } from "../hosts/_node.ts";

const root = join(import.meta.dirname, "../..");
/** The scratch folder. Git ignores it, and `npm ci` removes it. */
const scratch = join(root, "node_modules/.cache/fetchway-matrix");

export const FRAMEWORKS = ["srvx", "h3", "hono", "@hono/node-server"] as const;

const { engines, dependencies, devDependencies } = JSON.parse(
  readFileSync(join(root, "package.json"), "utf8"),
) as {
  engines: { node: string };
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
};

/** The versions that package.json pins. */
export const pinned: Readonly<Record<string, string>> = { ...devDependencies, ...dependencies };

/** The path of the command: from the root of the project or, if it is compiled, from the folder above the hosts. */
export const COMMAND = "command/main.ts";

function npm(...args: string[]): string {
  // Under `npm run`, npm sets variables with its own options, which this call must not inherit.
  const env = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
  return execFileSync("npm", [...args, "--loglevel=error"], {
    encoding: "utf8",
    env: Object.fromEntries(env),
    cwd: scratch,
    stdio: ["ignore", "pipe", "inherit"],
  });
}

/** Finds the versions of Node to test: the minimum of `engines`, and the newest version of each major. */
export function findNodes(majors: readonly number[]): string[] {
  mkdirSync(scratch, { recursive: true });
  const least = /^>=(\d+\.\d+\.\d+)$/.exec(engines.node)?.[1];
  if (least === undefined) throw new Error(`engines.node is ${engines.node}: use >=x.y.z`);
  const all = (JSON.parse(npm("view", "node", "versions", "--json")) as string[])
    .filter((version) => /^\d+\.\d+\.\d+$/.test(version))
    .toSorted(compareVersions);
  const newest = majors.map((major) => {
    const version = all.findLast((each) => each.startsWith(`${major}.`));
    if (version === undefined) throw new Error(`npm has no Node ${major}`);
    return version;
  });
  return [...new Set([least, ...newest])];
}

export function findFrameworks(): Record<string, string> {
  mkdirSync(scratch, { recursive: true });
  return Object.fromEntries(FRAMEWORKS.map((name) => [name, npm("view", name, "version").trim()]));
}

/**
 * Installs exactly these versions in a separate folder, unless they are already there.
 * @returns the folder
 */
function install(name: string, packages: Record<string, string>): string {
  const folder = join(scratch, name);
  const done = join(folder, "done");
  if (existsSync(done)) return folder;
  mkdirSync(folder, { recursive: true });
  // The package `node` downloads its binary in an install script.
  const manifest = { private: true, allowScripts: { node: true }, dependencies: packages };
  writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
  npm("install", "--prefix", folder, "--no-audit", "--no-fund");
  writeFileSync(done, "");
  return folder;
}

/**
 * Installs a version of Node.
 * @returns the path of its binary
 */
export function installNode(version: string): string {
  const folder = install(`node-${version}`, { node: version });
  return join(folder, "node_modules/node/bin/node");
}

/**
 * Compiles the hosts on Node into a folder from which they find the frameworks of these versions.
 * @returns the folder
 */
export async function compileHosts(frameworks: Record<string, string>): Promise<string> {
  const name = FRAMEWORKS.map((each) => frameworks[each]).join("-");
  const isPinned = FRAMEWORKS.every((each) => frameworks[each] === pinned[each]);
  // The pinned versions are already in the project's own node_modules.
  const folder = isPinned ? join(scratch, "pinned") : install(`frameworks-${name}`, frameworks);
  const outdir = join(folder, "test");
  await build({
    absWorkingDir: root,
    entryPoints: ON_NODE.map((host) => `test/hosts/${host}.ts`)
      .concat("test/work/_host.ts", "test/storm/wrap.ts", "examples/transport/index.ts")
      .concat(COMMAND),
    outbase: ".",
    outdir: folder,
    chunkNames: "test/[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    // The oldest supported Node supports this syntax.
    target: "es2023",
    external: FRAMEWORKS.slice(),
    // The example imports the installed package, so take the sources instead.
    alias: {
      "fetchway/errors": join(root, "src/explain/errors.ts"),
      "fetchway/transport": join(root, "src/transport.ts"),
      fetchway: join(root, "runtimes/node.ts"),
    },
    logLevel: "warning",
  });
  for (const each of ["test", "examples", "command"]) {
    writeFileSync(join(folder, each, "package.json"), '{ "type": "module" }');
  }
  return outdir;
}
