/**
 * Emits `dist`: one file for each entry, shared files for the code that several entries need, and the declarations. One
 * file for each source would take twice as long to load.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";

const root = import.meta.dirname;
const dist = join(root, "dist");
const { name, version, engines, imports, exports, bin } = JSON.parse(
  readFileSync(join(root, "package.json"), "utf8"),
) as {
  name: string;
  version: string;
  engines: object;
  imports: { "#fetchway": Record<string, string> };
  exports: Record<string, { default?: string | object }>;
  bin: Record<string, string>;
};

rmSync(dist, { recursive: true, force: true });
const tsc = join(root, "node_modules/typescript/bin/tsc");
const { status } = spawnSync(process.execPath, [tsc, "-p", join(root, "tsconfig.build.json")], {
  stdio: "inherit",
});
// Print nothing more, because tsc has printed its errors.
if (status !== 0) process.exit(1);

/** Inserts the part of package.json that the command uses, so that the command need not read that file at run time. */
const ownPackage: Plugin = {
  name: "own-package",
  setup(bundler) {
    const contents = JSON.stringify({ version, engines });
    bundler.onLoad({ filter: /package\.json$/ }, () => ({ contents, loader: "json" }));
  },
};

const toSource = (path: string): string => path.replace("./dist/", "./").replace(/\.js$/, ".ts");
const subpaths = Object.values(exports).flatMap(({ default: path }) =>
  typeof path === "string" ? path : [],
);
const entries = [...subpaths, ...Object.values(bin)].map(toSource);
await build({
  absWorkingDir: root,
  entryPoints: [...new Set([...Object.values(imports["#fetchway"]), ...entries])],
  outbase: root,
  outdir: dist,
  bundle: true,
  splitting: true,
  chunkNames: "shared/[name]-[hash]",
  format: "esm",
  platform: "neutral",
  target: "es2024",
  packages: "external",
  external: ["node:*"],
  // In the sources, `#fetchway` resolves to the source of an entry. The installed package imports itself by its own name,
  // whose `exports` select the compiled entry by the same conditions.
  alias: { "#fetchway": name },
  plugins: [ownPackage],
  logLevel: "warning",
});
for (const file of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
  if (!file.endsWith(".d.ts")) continue;
  const path = join(dist, file);
  const code = readFileSync(path, "utf8")
    .replaceAll(/"#fetchway([^"]*)"/g, `"${name}$1"`)
    // `Uint8Array` has no type parameter before TypeScript 5.7.
    .replaceAll("Uint8Array<ArrayBuffer>", "Uint8Array");
  // Without @types/node, TypeScript cannot resolve Node's modules, and reports that if `skipLibCheck` is off. The comment
  // below then makes their types `any`. With @types/node, it has no effect.
  const ignore = "// @ts-ignore: the app need not have @types/node";
  writeFileSync(path, code.replaceAll(/^import .* from "node:.*";$/gm, `${ignore}\n$&`));
}
