/** `npm run bench:protocols`: measures what `npm run bench` leaves out: TLS on either side, HTTP/2 to the upstream, undici. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { toStamp } from "../code.ts";
import { makeCertificate } from "../../test/helpers/certificate.ts";
import type { Command } from "../commands.ts";
import type { Contestant } from "../contestants.ts";
import { readCommandLine } from "../commandline.ts";
import { emphasize, judge, show } from "../goals.ts";
import { freePort, pin, Program } from "../program.ts";
import {
  type Base,
  BASE_TITLES,
  compare,
  contestantOf,
  cpuOf,
  toTitle,
  valuesOf,
} from "../ratios.ts";
import { describeMachine, toPercent, toRow } from "../report.ts";
import { readRoundFlags } from "../roundflags.ts";
import { measure, type Measurement, type Tls } from "../rounds.ts";
import { median, spread } from "../statistics.ts";
import { workloads } from "../workloads.ts";

const CONNECTIONS = 64;

/** The goal for the first contestant of a theme. */
interface Goal {
  readonly base: Base;
  readonly most: number;
}

/** What is measured in one table. */
interface Theme {
  /** The name for `--only`. */
  readonly name: string;
  readonly title: string;
  /** What is compared, in a sentence or two. */
  readonly text: string;
  readonly contestants: readonly Contestant[];
  readonly workloads: readonly string[];
  readonly goals: readonly Goal[];
  /** Whether clients, and whether the upstream, use TLS. */
  readonly client: boolean;
  readonly upstream: boolean;
  readonly isHttp2?: true;
}

const named = (name: string): Contestant => contestantOf(name) as Contestant;

/** Returns a contestant that asks its upstream for HTTP/2. */
function byHttp2(name: string): Contestant {
  const one = named(name);
  return {
    ...one,
    command: async (place) => [...(await one.command(place)), "http2"] as unknown as Command,
  };
}

const proxies = ["node", "httpxy-server", "http-proxy-3", "nginx"].map(named);
const oldVersion: Contestant = {
  ...named("node"),
  name: "node-http1",
  title: "Fetchway, node:http, HTTP/1.1 instead",
};

const THEMES: readonly Theme[] = [
  {
    name: "client",
    title: "TLS from the client",
    text: "Clients connect to the proxy by HTTPS; the upstream is plain HTTP.",
    contestants: proxies,
    workloads: ["get-1k", "get-64k"],
    goals: [{ base: "peer", most: 1 }],
    client: true,
    upstream: false,
  },
  {
    name: "upstream",
    title: "TLS to the upstream",
    text: "The proxy connects to the upstream by HTTPS, keeps its connections, and checks the certificate; clients use plain HTTP.",
    contestants: proxies,
    workloads: ["get-1k", "get-64k"],
    goals: [{ base: "peer", most: 1 }],
    client: false,
    upstream: true,
  },
  {
    name: "http2",
    title: "HTTP/2 to the upstream",
    text: "Both versions go over TLS to the same upstream. The floor is `node:http` with undici's `dispatch` and `allowH2`, without any gateway rules. No Node peer and no nginx of this version speaks HTTP/2 to upstreams.",
    contestants: [byHttp2("node"), oldVersion, byHttp2("node-undici"), byHttp2("floor")],
    workloads: ["get-1k"],
    goals: [{ base: "floor", most: 1.1 }],
    client: false,
    upstream: true,
    isHttp2: true,
  },
  {
    name: "undici",
    title: "`fetchway/undici`",
    text: "HTTP/1.1 without TLS. The floor is `node:http` with undici's `dispatch` straight into the response, without any gateway rules.",
    contestants: ["node-undici", "node", "floor", "httpxy-server"].map(named),
    workloads: ["get-1k"],
    goals: [
      { base: "floor", most: 1.1 },
      { base: "peer", most: 1 },
    ],
    client: false,
    upstream: false,
  },
];

const help = `Usage: npm run bench:protocols -- [flags]

  --quick           one round of GET 1 KB, without undici; writes no files
  --only <names>    some of ${THEMES.map(({ name }) => name).join(",")}
  --rounds <n>      interleaved rounds, 5 by default
  --seconds <n>     length of a round, 1 by default

A run without --quick and --only writes bench/protocols.md and bench/protocols.json.`;

interface Run {
  readonly rounds: number;
  readonly seconds: number;
  readonly workloads: readonly string[] | undefined;
  readonly directory: string;
  readonly certificate: string;
}

const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

async function measureTheme(theme: Theme, run: Run): Promise<Measurement[]> {
  const { certificate, directory, rounds, seconds } = run;
  const port = await freePort();
  const upstream = await Program.start(
    pin([process.execPath, fileOf(theme.isHttp2 ? "target.ts" : "../target.ts")], "others"),
    port,
    theme.upstream ? { CERTIFICATE: certificate } : {},
    theme.upstream,
  );
  const tls: Tls = { certificate, serves: theme.client };
  const results: Measurement[] = [];
  try {
    for (const name of theme.workloads) {
      const workload = workloads.find((each) => each.name === name);
      if (workload === undefined || run.workloads?.includes(name) === false) continue;
      say(`\n${theme.title}, ${workload.title}`);
      const some = await measure(workload, theme.contestants, {
        rounds,
        seconds,
        connections: CONNECTIONS,
        target: `${theme.upstream ? "https" : "http"}://127.0.0.1:${port}`,
        directory,
        ...((theme.client || theme.upstream) && { tls }),
        // A handshake costs as much as several requests, and some proxies close idle connections earlier than others.
        primes: theme.upstream,
        progress: (contestant, what) =>
          say(
            `  ${contestant.title.padEnd(40)} ${typeof what === "string" ? what : `${what.cpu.toFixed(1)} µs`}`,
          ),
      });
      results.push(...some);
    }
  } finally {
    await upstream.stop();
  }
  return results;
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

function titleOf(theme: Theme, name: string): string {
  if (contestantOf(name) !== undefined) return toTitle(name);
  return `**${theme.contestants.find((each) => each.name === name)?.title ?? name}**`;
}

const titleOfWorkload = (name: string): string =>
  workloads.find((each) => each.name === name)?.title ?? name;

/** Returns the table of one theme: a row for each contestant, two columns for each workload. */
function toTable(theme: Theme, results: readonly Measurement[]): string {
  const measured = theme.workloads.filter((name) =>
    results.some(({ workload }) => workload === name),
  );
  const [{ contestant: first } = { contestant: "" }] = results;
  const rows = theme.contestants.map(({ name }) => {
    const cells = measured.flatMap((workload) => {
      const one = results.find((each) => each.contestant === name && each.workload === workload);
      const own = results.find((each) => each.contestant === first && each.workload === workload);
      if (one === undefined || own === undefined || one.failed !== undefined)
        return ["–", "–", "–"];
      const cpu = median(cpuOf(one));
      const { ratio } = compareTwo(own, one);
      return [
        `${cpu.toFixed(1)} ± ${toPercent(spread(cpuOf(one)) / cpu)}`,
        name === first ? "" : ratio.toFixed(2),
        median(valuesOf(one, "rps")).toFixed(0),
      ];
    });
    return toRow([titleOf(theme, name), ...cells]);
  });
  const head = measured.flatMap((workload) => [
    `${titleOfWorkload(workload)}: CPU µs`,
    "first row ÷ this",
    "requests/s",
  ]);
  return [toRow(["", ...head]), toRow(["---", ...head.map(() => "--:")]), ...rows].join("\n");
}

function compareTwo(one: Measurement, other: Measurement): { ratio: number } {
  const each = cpuOf(one).map((cpu, i) => cpu / (cpuOf(other)[i] ?? Number.NaN));
  return { ratio: median(each) };
}

function toGoals(themes: ReadonlyMap<Theme, readonly Measurement[]>): string {
  const rows = Array.from(themes, ([theme, results]) =>
    theme.goals.flatMap(({ base, most }) =>
      results
        .filter(({ contestant }) => contestant === theme.contestants[0]?.name)
        .flatMap((one) => {
          const measured = compare(results, one, base);
          if (measured === undefined) return [];
          const what = `${theme.title}, ${titleOfWorkload(one.workload)}`;
          return [
            toRow([
              what,
              BASE_TITLES[base],
              most.toFixed(2),
              show(measured),
              emphasize(judge(measured, most)),
            ]),
          ];
        }),
    ),
  ).flat();
  const head = ["", "CPU per request, ratio", "goal", "measured", ""];
  return [toRow(head), "| --- | --- | --: | --: | --- |", ...rows].join("\n");
}

function toMarkdown(
  themes: ReadonlyMap<Theme, readonly Measurement[]>,
  { rounds, seconds }: Run,
): string {
  const taking = Array.from(themes.keys()).flatMap(({ contestants }) => contestants);
  const { versions, date, cpu, code, pinned, generator } = describeMachine(taking);
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  const sections = Array.from(themes, ([theme, results]) => {
    const failures = results.flatMap(({ contestant, workload, failed }) =>
      failed === undefined
        ? []
        : [
            `- ${titleOf(theme, contestant)}, ${titleOfWorkload(workload)}: **no figures**, ${failed}`,
          ],
    );
    return [`## ${theme.title}`, theme.text, toTable(theme, results), ...failures].join("\n\n");
  });
  return `# TLS, HTTP/2, and undici

Made by \`npm run bench:protocols\` with the ${toStamp(code)}: Node ${versions["node"]}, ${others.map(([name, version]) => `${name} ${version}`).join(", ")}; ${date}.
${cpu}, load by ${generator} over ${CONNECTIONS} connections; ${pinned ? "the proxy alone on its core" : "nothing pinned to a core"}; ${rounds} interleaved rounds of ${seconds} s.

## How to read it

[README.md](README.md) measures plain HTTP/1.1 on both sides; each table here changes one thing. **CPU µs** is the CPU time
of the proxy's processes, user and system, for one request; figures are medians of interleaved rounds, ± is half the distance
between the quartiles, and a ratio is the median of the ratios of neighbouring rounds. A ratio below 1 says that the first row
needs less CPU time than the row in which it stands. Differences below 5 % are noise. With TLS, all use TLS 1.3 and the
defaults of their OpenSSL. Connections are kept on both sides: those to the upstream are established before a round begins,
the ${CONNECTIONS} of the clients at its beginning.

${sections.join("\n\n")}

## Goals

${toGoals(themes)}
`;
}

function isOurs(name: string): boolean {
  return (contestantOf(name)?.role ?? "fetchway") === "fetchway";
}

async function main(): Promise<void> {
  const known = THEMES.map(({ name }) => name);
  const options = readCommandLine("bench:protocols", help, (args) =>
    readRoundFlags(args, { known }),
  );
  if (options === undefined) return;
  const { quick, names = known.filter((name) => !quick || name !== "undici") } = options;
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const certificate = join(directory, "certificate.pem");
  const { cert, key } = await makeCertificate();
  writeFileSync(certificate, `${key}\n${cert}`);
  const run: Run = {
    rounds: options.rounds ?? (quick ? 1 : 5),
    seconds: options.seconds ?? 1,
    workloads: quick ? ["get-1k"] : undefined,
    directory,
    certificate,
  };
  const themes = new Map<Theme, readonly Measurement[]>();
  for (const theme of THEMES) {
    if (names.includes(theme.name)) themes.set(theme, await measureTheme(theme, run));
  }
  const text = toMarkdown(themes, run);
  console.log(text);
  const results = Array.from(themes, ([{ name: theme }, measured]) =>
    measured.map((one) => ({
      theme,
      contestant: one.contestant,
      workload: one.workload,
      ...(one.failed === undefined
        ? { cpu: cpuOf(one).map((cpu) => Number(cpu.toPrecision(4))) }
        : { failed: one.failed }),
    })),
  ).flat();
  if (options.complete) {
    const files = [fileOf("../protocols.md"), fileOf("../protocols.json")] as const;
    writeFileSync(files[0], text);
    const { rounds, seconds } = run;
    writeFileSync(files[1], JSON.stringify({ rounds, seconds, results }));
    execFileSync(fileOf("../../node_modules/.bin/oxfmt"), files, { stdio: "ignore" });
  }
  if (results.some((one) => "failed" in one && isOurs(one.contestant))) process.exitCode = 1;
}

await main();
