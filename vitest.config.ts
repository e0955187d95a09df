import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type ViteUserConfig } from "vitest/config";

type Plugin = NonNullable<ViteUserConfig["plugins"]>[number];

/** The folder in which the matrix has installed other versions of the frameworks, beside the compiled hosts. */
const folder = join(process.env["HOST_FILES"] ?? "", "..");

/** Resolves imports of the frameworks to the versions in that folder. */
const frameworks: Plugin = {
  name: "frameworks",
  enforce: "pre",
  resolveId(id) {
    if (!/^(?:srvx|h3|hono|@hono\/node-server)(?:\/|$)/.test(id)) return undefined;
    return this.resolve(id, join(folder, "package.json"), { skipSelf: true });
  },
};

const config: ViteUserConfig = defineConfig({
  plugins:
    existsSync(join(folder, "node_modules/srvx")) && process.env["HOST_FILES"] ? [frameworks] : [],
  test: {
    include: ["test/**/*.test.ts"],
    // Each test file runs in its own process, so that the state it leaves behind cannot affect the next file.
    pool: "forks",
    // Most tests wait for sockets and timers: more processes than cores finish earlier.
    maxWorkers: 4,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});

export default config;
