/** Bundles the command into one file, as its users may do. */
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Bundles the command with all its packages.
 * @param condition the export condition of the runtime
 */
export async function bundleCommand(
  outfile: string,
  format: "cjs" | "esm",
  condition: "node" | "deno" = "node",
): Promise<void> {
  const { warnings } = await build({
    absWorkingDir: root,
    entryPoints: ["command/main.ts"],
    outfile,
    format,
    bundle: true,
    platform: "node",
    conditions: [condition],
    logLevel: "silent",
  });
  // esbuild warns, for example, that `import.meta` is empty in a CommonJS module.
  if (warnings.length > 0) throw new Error(warnings.map(({ text }) => text).join("\n"));
}
