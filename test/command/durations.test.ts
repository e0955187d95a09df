/** Durations such as `10s`, in flags and in config files. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { normalizeConfig } from "../../command/config/normalizeconfig.ts";
import { readConfig } from "../../command/config/loadconfig.ts";
import type { Config } from "../../command/config.ts";
import { serverSchema } from "../../command/flags/commandoptions.ts";
import { parseDuration } from "../../command/flags/duration.ts";
import { flags } from "../../command/flags/flags.ts";
import { parse } from "../../command/flags/parse.ts";
import { startProgram } from "../helpers/program.ts";
import {
  poolSchema,
  proxySchema,
  type Kind,
  type Table,
  upstreamSchema,
} from "../../src/options.ts";

const target = "http://127.0.0.1:4000";

test.each([
  ["500ms", 500],
  ["10s", 10_000],
  ["2m", 120_000],
  ["1h", 3_600_000],
  ["", undefined],
  ["1500", undefined],
  ["s", undefined],
  ["-1s", undefined],
  ["1.5s", undefined],
  ["1 s", undefined],
  ["10S", undefined],
  ["1h30m", undefined],
  ["10sec", undefined],
])("the duration %j has %j milliseconds", (text, milliseconds) => {
  expect(parseDuration(text)).toBe(milliseconds);
});

describe("flags with a duration", () => {
  const timed = flags.filter(({ value }) => value === "<time>");

  test("the flags with a duration are found among all flags", () =>
    expect(timed.length).toBeGreaterThan(15));

  test.each(timed.map((flag) => [flag.name, flag] as const))(
    "--%s takes a duration such as 10s",
    (name, { scope, option }) => {
      const { given, problems } = parse([target, `--${name}`, "10s"]);
      expect(problems).toEqual([]);
      expect(given[scope][option]).toBe(10_000);
      expect(parse([target, `--${name}=1500`]).given[scope][option]).toBe(1500);
      expect(parse([target, `--${name}=10x`]).problems).toEqual([
        `--${name} "10x": use milliseconds, or a duration such as 500ms, 10s, 2m or 1h`,
      ]);
    },
  );
});

test("a time without a unit that is probably meant in seconds causes one warning at startup", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  const path = join(folder, "times.json");
  const config = {
    server: { port: 0, keepAliveTimeout: 65, stopTimeout: "10ms", workers: 2 },
    retry: { delay: 5 },
    attemptTimeout: 50,
    connectTimeout: 0,
    routes: [{ match: "/", target, pool: { timeout: 30 } }],
  };
  writeFileSync(path, JSON.stringify(config));
  const given = ["--timeout", "10", "--tunnel-timeout", "500", "--idle-timeout", "20ms"];
  const route = `/api=${target} --timeout 20`;
  const args = ["command/main.ts", "--config", path, ...given, "--route", route];
  await using program = startProgram("node", args);
  await program.printed(/listens on /);
  rmSync(folder, { recursive: true });
  expect(program.output().match(/fetchway: .* is \d+ ms.*/g)).toEqual([
    "fetchway: --timeout 10 is 10 ms; for seconds write 10s",
    "fetchway: --timeout 20 is 20 ms; for seconds write 20s",
    'fetchway: times.json: server.keepAliveTimeout: 65 is 65 ms; for seconds write "65s"',
    'fetchway: times.json: routes[0].pool.timeout: 30 is 30 ms; for seconds write "30s"',
  ]);
});

/** Every duration of a config file. `satisfies` makes the compiler check that `Config` accepts a text for each. */
const everywhere = {
  timeout: "1s",
  connectTimeout: "1s",
  idleTimeout: "1s",
  tunnelTimeout: "1s",
  tunnelCloseTimeout: "1s",
  attemptTimeout: "1s",
  wait: "1s",
  retry: { delay: "1s" },
  pool: {
    timeout: "1s",
    connectTimeout: "1s",
    freeSocketTimeout: "1s",
    socketTTL: "1s",
    queueTimeout: "1s",
    minRateGrace: "1s",
    keepAliveInitialDelay: "1s",
    dns: { ttl: "1s" },
  },
  balance: {
    slowStart: "1s",
    queueTimeout: "1s",
    minRateGrace: "1s",
    outliers: { interval: "1s", ejectionTime: "1s", maxEjectionTime: "1s" },
    check: { path: "/", interval: "1s", timeout: "1s" },
    resolve: { interval: "1s" },
  },
  server: {
    stopTimeout: "1s",
    workerTimeout: "1s",
    headersTimeout: "1s",
    bodyTimeout: "1s",
    sendTimeout: "1s",
    keepAliveTimeout: "1s",
  },
} satisfies Config;

/** Returns the paths of the options of a table that are durations. */
function findDurations(table: Table, prefix = ""): string[] {
  const find = ({ name, members, parts = [] }: Kind<never>, path: string): string[] => [
    ...(name === "milliseconds" ? [path] : []),
    ...(members === undefined ? [] : findDurations(members, `${path}.`)),
    ...parts.flatMap((part) => find(part, path)),
  ];
  return Object.entries(table).flatMap(([name, { kind }]) => find(kind, `${prefix}${name}`));
}

/** Returns the paths of the members of an object that are equal to `value`. */
function findPaths(given: object, value: unknown, prefix = ""): string[] {
  return Object.entries(given).flatMap(([name, each]) => {
    if (each === value) return [`${prefix}${name}`];
    return typeof each === "object" ? findPaths(each as object, value, `${prefix}${name}.`) : [];
  });
}

describe("a config file with durations", () => {
  let folder = "";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const known = [
    ...findDurations(proxySchema),
    ...findDurations(poolSchema, "pool."),
    ...findDurations(upstreamSchema, "balance."),
    ...findDurations(serverSchema, "server."),
  ].toSorted();

  test("the list of durations is complete", () => {
    expect(findPaths(everywhere, "1s").toSorted()).toEqual(known);
  });

  test("each duration is read as a number of milliseconds", async () => {
    const routes = [{ match: "/api", target, ...everywhere, server: undefined }];
    const path = join(folder, "fetchway.config.json");
    writeFileSync(path, JSON.stringify({ ...everywhere, target, routes }));
    const read = await readConfig(path);
    expect(findPaths(read, 1000).toSorted()).toEqual(
      [
        ...known,
        ...known.filter((each) => !each.startsWith("server.")).map((each) => `routes.0.${each}`),
      ].toSorted(),
    );
    expect(findPaths(read, "1s")).toEqual([]);
  });

  test("sizes such as 10mb are read as numbers of bytes", async () => {
    const path = join(folder, "sizes.json");
    const sizes: Config = {
      bodyLimit: "10mb",
      replayLimit: "512k",
      server: { maxHeaderSize: "32kb" },
    };
    writeFileSync(path, JSON.stringify({ target, ...sizes }));
    expect(await readConfig(path)).toMatchObject({
      bodyLimit: 10_485_760,
      replayLimit: 524_288,
      server: { maxHeaderSize: 32_768 },
    });
  });

  test("all other values are kept, also instances of classes", () => {
    class App {
      fetch(): Response {
        return new Response();
      }
    }
    const app = new App();
    const config = { target: app, route: "1s", routes: [{ match: "/", target: app }] };
    expect(normalizeConfig(config)).toEqual(config);
    expect((normalizeConfig({ ...config, timeout: "1s" }) as { target: App }).target).toBe(app);
    for (const wrong of [undefined, null, "1s", [], { routes: "1s" }, { pool: "1s" }]) {
      expect(normalizeConfig(wrong)).toBe(wrong);
    }
  });
});
