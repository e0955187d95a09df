import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type ViteUserConfig } from "vitest/config";

type Plugin = NonNullable<ViteUserConfig["plugins"]>[number];

/** The folder with other versions of the frameworks, where the matrix has installed some beside the compiled hosts. */
const folder = join(process.env["HOST_FILES"] ?? "", "..");

/** Finds the frameworks in that folder. */
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
    // A process for each file: what one leaves behind cannot disturb the next.
    pool: "forks",
    // Servers and their upstreams want a core too.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});

export default config;
