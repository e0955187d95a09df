/** Emits `dist`: the sources as JavaScript with declarations, in the same folders. */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = import.meta.dirname;
const dist = join(root, "dist");

rmSync(dist, { recursive: true, force: true });
const tsc = join(root, "node_modules/typescript/bin/tsc");
const { status } = spawnSync(process.execPath, [tsc, "-p", join(root, "tsconfig.build.json")], {
  stdio: "inherit",
});
// tsc has said what is wrong.
if (status !== 0) process.exit(1);

// `#proxy` maps the sources. What is installed finds the same entry by the same
// conditions under the package's own name.
const { name } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { name: string };
for (const file of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
  if (!/\.(?:js|d\.ts)$/.test(file)) continue;
  const path = join(dist, file);
  const code = readFileSync(path, "utf8");
  if (code.includes('"#proxy"')) writeFileSync(path, code.replaceAll('"#proxy"', `"${name}"`));
}
