import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type ViteUserConfig, type ViteUserConfigFnObject } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

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

function isHost({ moduleId }: TestSpecification): boolean {
  return /\/hosts\.[^/]+$/.test(moduleId);
}

/**
 * Runs the suite of each host first: these files take longest. By its own rule, vitest begins with the largest files,
 * and would run them last, when most of its processes have nothing left to do.
 */
class HostsFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- vitest's, not an array's
    const sorted = await super.sort(files);
    return [...sorted.filter(isHost), ...sorted.filter((file) => !isHost(file))];
  }
}

// The tests start many Node processes. With compiled code from a cache, a start of the command takes a third of the time.
process.env["NODE_COMPILE_CACHE"] ??= join(import.meta.dirname, "node_modules/.cache/compiled");

/** Tests that start processes, or send much over sockets, which `npm run test:quick` leaves out. */
const SLOW = [
  "attachcontinue,bench,body.unframed,cli,clienttimeouts,deno,deployments,dns,examples,growth,http2,inprocess,install",
  "leaks,miniflare,pipeline,pool,readme.run,reuse,stale,storm,transport,undici.entry,upgradesocket,upload,upstreams.runtimes,upstreams.simulation,websocket,work",
  "wrapped",
].join(",");
const HOSTS = "bun,deno,fetch-*,h3,hono,slow,srvx,undici,undici-*,workerd";

const config: ViteUserConfigFnObject = defineConfig(({ mode }) => ({
  plugins:
    existsSync(join(folder, "node_modules/srvx")) && process.env["HOST_FILES"] ? [frameworks] : [],
  test: {
    include: ["test/**/*.test.ts"],
    ...(mode === "quick" && {
      exclude: [`test/{${SLOW}}.*`, `test/hosts.{${HOSTS}}.*`],
    }),
    // Each test file runs in its own process, so that the state it leaves behind cannot affect the next file.
    pool: "forks",
    // Most tests wait for sockets and timers: more processes than cores finish earlier.
    maxWorkers: 4,
    sequence: { sequencer: HostsFirst },
    // Only code that runs in the processes of the tests themselves is counted, which are all on Node.
    coverage: {
      provider: "v8",
      include: ["{src,runtimes,integrations,command}/**/*.ts"],
      reporter: ["text-summary", "html"],
      reportOnFailure: true,
    },
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
}));

export default config;
