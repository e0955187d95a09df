import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  defineConfig,
  type TestProjectInlineConfiguration,
  type ViteUserConfig,
} from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { type HostName, hostNames, HOSTS, OWN } from "./test/hosts/_hosts.ts";

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

/** The files that take longest, mostly because they wait. */
const LONGEST = [
  "suite/hosts",
  "command/workers",
  "sockets/pool.dns",
  "command/limits",
  "runtimes/leaks",
  "sockets/transport.options",
  "work/count",
  "command/record",
  "command/socket",
  "node/pipelining",
].map((name) => `/${name}.test.ts`);

function rank({ moduleId }: TestSpecification): number {
  const at = LONGEST.findIndex((end) => moduleId.endsWith(end));
  return at < 0 ? LONGEST.length : at;
}

/**
 * Starts the files that take longest first. By default, vitest starts the largest files first, and would run these last,
 * when most of its processes are idle.
 */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- vitest's, not an array's
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}

// The tests start many Node processes. With compiled code from a cache, the command starts in a third of the time. V8
// counts code from a cache less precisely.
if (process.argv.includes("--coverage")) process.env["NODE_DISABLE_COMPILE_CACHE"] = "1";
else
  process.env["NODE_COMPILE_CACHE"] ??= join(import.meta.dirname, "node_modules/.cache/compiled");

/**
 * The hosts on which `npm test` runs the suite: those in the tables of docs/ that have Fetchway's own client. CI runs it on the
 * others as well (`npm run test:more`).
 */
const IN_TEST: ReadonlySet<HostName> = new Set(
  OWN.filter((name) => HOSTS[name].column !== undefined),
);

/** Long files about what few changes concern. `npm test` leaves them out, and CI runs them (`npm run test:more`). */
const MORE = [
  "command/inspect.real",
  "command/jsonlog",
  "command/overload",
  "command/replay",
  "compare/faulty",
  "runtimes/deno/deno",
  "runtimes/leaks",
  "runtimes/pipelining.fuzz",
  "runtimes/sockets/http2/grpc",
  "runtimes/unread",
  "runtimes/websocket/load",
  "storm/storm",
  "work/count",
  "work/hosts",
].map((name) => `test/${name}.test.ts`);

/** A project: the test files of these rooms, which are folders of `test/`. */
function toProject(
  name: string,
  rooms: string[],
  test: object = {},
): TestProjectInlineConfiguration {
  return {
    extends: true,
    test: { name, include: rooms.map((room) => `test/${room}/**/*.test.ts`), ...test },
  };
}

const config: ViteUserConfig = defineConfig({
  plugins:
    existsSync(join(folder, "node_modules/srvx")) && process.env["HOST_FILES"] ? [frameworks] : [],
  test: {
    projects: [
      ...hostNames.map((host) =>
        toProject(IN_TEST.has(host) ? `suite:${host}` : `more:${host}`, ["suite"], {
          env: { HOST: host },
        }),
      ),
      toProject("unit", ["unit", "house"]),
      toProject("node", ["runtimes/node"]),
      toProject("runtimes", ["runtimes", "work", "compare"], {
        exclude: ["test/runtimes/node/**", ...MORE],
      }),
      toProject("command", ["command", "integrations"], { exclude: MORE }),
      toProject("more:long", [], { include: MORE }),
      toProject("more:project", ["project"]),
    ],
    // Each test file runs in its own process, so that the state it leaves behind cannot affect the next file.
    pool: "forks",
    // Most tests wait for sockets and timers: more processes than cores finish earlier.
    maxWorkers: 10,
    sequence: { sequencer: LongestFirst },
    // Coverage counts only code that runs in the processes of the tests themselves, which all run on Node.
    coverage: {
      provider: "v8",
      include: ["{src,runtimes,integrations,command}/**/*.ts"],
      reporter: ["text-summary", "html"],
      reportOnFailure: true,
    },
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // Only a test that hangs reaches it, as with `patience` in test/helpers/wait.ts.
    expect: { poll: { timeout: 30_000 } },
  },
});

export default config;
