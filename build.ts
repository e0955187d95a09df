/**
 * Emits `dist`: one file for each entry, shared files for the code that several entries need, and the declarations. One
 * file for each source would take twice as long to load.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build, type Plugin } from "rolldown";

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
  load: {
    filter: { id: /package\.json$/ },
    handler: () => ({ code: JSON.stringify({ version, engines }), moduleType: "json" }),
  },
};

const toSource = (path: string): string => path.replace("./dist/", "./").replace(/\.js$/, ".ts");
const subpaths = Object.values(exports).flatMap(({ default: path }) =>
  typeof path === "string" ? path : [],
);
const sources = [
  ...Object.values(imports["#fetchway"]),
  ...[...subpaths, ...Object.values(bin)].map(toSource),
];
await build({
  cwd: root,
  input: Object.fromEntries(sources.map((path) => [path.replace(/^\.\/|\.ts$/g, ""), path])),
  platform: "neutral",
  external: /^[#@a-z]/,
  transform: { target: "es2024" },
  // No tree shaking: the bundler of an app removes unused code, and here it would also move expressions to where they are used.
  treeshake: false,
  plugins: [ownPackage],
  output: {
    dir: dist,
    // In the sources, `#fetchway` resolves to the source of an entry. The installed package imports itself by its own name,
    // whose `exports` select the compiled entry by the same conditions.
    paths: (path) => path.replace("#fetchway", name),
    chunkFileNames: "shared/[name]-[hash].js",
    // Every entry loads the core, so it is one file: `proxy.ts` with all that it imports.
    codeSplitting: { groups: [{ name: "core", test: /\/src\/proxy\.ts$/ }] },
    // Leave the doc strings out of the JavaScript, because the declarations have them.
    comments: { jsdoc: false },
    minify: false,
    minifyInternalExports: false,
  },
});
for (const path of Object.values(bin)) chmodSync(join(root, path), 0o755);
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
