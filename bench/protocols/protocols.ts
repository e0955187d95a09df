/** `npm run bench -- protocols`: measures what `cpu` leaves out: TLS on either side, HTTP/2 to the upstream, undici. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeCertificate } from "../../test/helpers/certificate.ts";
import { toStamp } from "../code.ts";
import { type Contestant, contestantsOf, variantOf } from "../contestants.ts";
import { type Bench, defineBench, names, roundFlags } from "../flags.ts";
import { makeDirectory, say } from "../program.ts";
import {
  type Base,
  BASE_TITLES,
  compare,
  cpuOf,
  emphasize,
  judge,
  show,
  toTitle,
  valuesOf,
} from "../ratios.ts";
import {
  describeMachine,
  describePinning,
  describeRounds,
  listVersions,
  toFailure,
  toPercent,
  toTable,
  writeBetween,
} from "../report.ts";
import { measure, type Measurement, requireFigures } from "../rounds.ts";
import { median, ratios, spread } from "../statistics.ts";
import { titleOfWorkload, type Workload, workloadsOf } from "../workloads.ts";

const CONNECTIONS = 64;

/** The subject of one table. */
interface Theme {
  /** The name for `--only`. */
  readonly name: string;
  readonly title: string;
  /** The description of the comparison. */
  readonly text: string;
  readonly contestants: readonly Contestant[];
  readonly workloads: readonly Workload[];
  /** The goals of the first contestant: its highest ratio to each base. */
  readonly goals: Readonly<Partial<Record<Base, number>>>;
  /** The side on which the proxy uses TLS; undefined for none. */
  readonly tls?: "clients" | "upstream";
  readonly upstream?: URL;
}

/** Returns a contestant that uses HTTP/2 to its upstream. */
function overHttp2(contestant: Contestant): Contestant {
  return variantOf(contestant, contestant, (command) => [...command, "http2"]);
}

const proxies = contestantsOf("node", "httpxy-server", "http-proxy-3", "nginx");
const [node, nodeUndici, floor] = contestantsOf("node", "node-undici", "floor") as [
  Contestant,
  Contestant,
  Contestant,
];
const overHttp1 = variantOf(
  node,
  { name: "node-http1", title: "Fetchway, node:http, HTTP/1.1 instead" },
  (command) => command,
);

const THEMES: readonly Theme[] = [
  {
    name: "client",
    title: "TLS from the client",
    text: "Clients connect to the proxy by HTTPS; the upstream is plain HTTP.",
    contestants: proxies,
    workloads: workloadsOf("get-1k", "get-64k"),
    goals: { peer: 1 },
    tls: "clients",
  },
  {
    name: "upstream",
    title: "TLS to the upstream",
    text: "The proxy connects to the upstream by HTTPS, keeps its connections, and checks the certificate; clients use plain HTTP.",
    contestants: proxies,
    workloads: workloadsOf("get-1k", "get-64k"),
    goals: { peer: 1 },
    tls: "upstream",
  },
  {
    name: "http2",
    title: "HTTP/2 to the upstream",
    text: "Both versions go over TLS to the same upstream. The floor is `node:http` with undici's `dispatch` and `allowH2`, without any gateway rules. No Node peer and no nginx of this version speaks HTTP/2 to upstreams.",
    contestants: [overHttp2(node), overHttp1, overHttp2(nodeUndici), overHttp2(floor)],
    workloads: workloadsOf("get-1k"),
    goals: { floor: 1 },
    tls: "upstream",
    upstream: new URL("target.ts", import.meta.url),
  },
  {
    name: "undici",
    title: "`fetchway/undici`",
    text: "HTTP/1.1 without TLS. The floor is `node:http` with undici's `dispatch` straight into the response, without any gateway rules.",
    contestants: contestantsOf("node-undici", "node", "floor", "httpxy-server"),
    workloads: workloadsOf("get-1k"),
    goals: { floor: 1.1, peer: 1 },
  },
];

/** A table's subject with its figures. */
interface Measured extends Theme {
  readonly results: readonly Measurement[];
}

interface Rounds {
  readonly rounds: number;
  readonly seconds: number;
}

async function measureTheme(
  theme: Theme,
  certificate: string,
  { rounds, seconds }: Rounds,
): Promise<Measured> {
  const { title, contestants, workloads, upstream, tls } = theme;
  say(`\n${title}`);
  const isUpstreamSecure = tls === "upstream";
  const results = await measure({
    contestants,
    workloads,
    connections: [CONNECTIONS],
    rounds,
    seconds,
    ...(upstream && { upstream }),
    ...(tls && { tls: { certificate, serves: tls === "clients", isUpstreamSecure } }),
    // Open connections before each round: a handshake costs as much as several requests, and some proxies close
    // idle connections early.
    primes: isUpstreamSecure,
  });
  return { ...theme, results };
}

/** Returns the table of one theme: a row for each contestant, three columns for each workload. */
function toThemeTable({ contestants, workloads, results }: Measured): string {
  const find = (contestant: string, workload: string): Measurement | undefined =>
    results.find(
      (each) =>
        each.contestant === contestant && each.workload === workload && each.failed === undefined,
    );
  const first = contestants[0]?.name ?? "";
  const rows = contestants.map(({ name, title, role }) => {
    const cells = workloads.flatMap((workload) => {
      const [one, own] = [find(name, workload.name), find(first, workload.name)];
      if (one === undefined || own === undefined) return ["–", "–", "–"];
      const cpu = median(cpuOf(one));
      return [
        `${cpu.toFixed(1)} ± ${toPercent(spread(cpuOf(one)) / cpu)}`,
        name === first ? "" : median(ratios(cpuOf(own), cpuOf(one))).toFixed(2),
        median(valuesOf(one, "rps")).toFixed(0),
      ];
    });
    return [role === "fetchway" ? `**${title}**` : title, ...cells];
  });
  const head = workloads.flatMap(({ title }) => [
    `${title}: CPU µs`,
    "first row ÷ this",
    "requests/s",
  ]);
  return toTable(["", ...head], rows);
}

function toGoals(themes: readonly Measured[]): string {
  const rows = themes.flatMap(({ title, goals, contestants, results }) =>
    (Object.entries(goals) as [Base, number][]).flatMap(([base, most]) =>
      results
        .filter(({ contestant }) => contestant === contestants[0]?.name)
        .flatMap((one) => {
          const measured = compare(results, one, base);
          if (measured === undefined) return [];
          return [
            [
              `${title}, ${titleOfWorkload(one.workload)}`,
              BASE_TITLES[base],
              most.toFixed(2),
              show(measured),
              emphasize(judge(measured, most)),
            ],
          ];
        }),
    ),
  );
  return toTable(["", "CPU per request, ratio", "goal", "measured", ""], rows, 2);
}

function toMarkdown(themes: readonly Measured[], { rounds, seconds }: Rounds): string {
  const machine = describeMachine(themes.flatMap(({ contestants }) => contestants));
  const { date, cpu, code, generator } = machine;
  const sections = themes.map((theme) => {
    const list = theme.results.flatMap(({ contestant, workload, failed }) =>
      failed === undefined ? [] : [toFailure(toTitle(contestant), failed, workload)],
    );
    return [`## ${theme.title}`, theme.text, toThemeTable(theme), ...list].join("\n\n");
  });
  const line = `${listVersions(machine)}, ${toStamp(code)}; ${date}, ${cpu}, load by ${generator} over ${CONNECTIONS} connections; ${describePinning(machine)}; ${describeRounds(rounds, seconds)}.`;
  return [line, ...sections, "## Goals", toGoals(themes)].join("\n\n");
}

export const protocols: Bench = defineBench({
  name: "protocols",
  text: "CPU time with TLS on either side, HTTP/2 to the upstream, and undici as the client",
  writes: "the figures of bench/protocols.md",
  flags: {
    only: names("these tables", THEMES),
    ...roundFlags({ usual: "5", quick: "1" }, { usual: "1" }),
  },
  async run({ only, rounds, seconds }, isComplete) {
    const certificate = join(makeDirectory(), "certificate.pem");
    const { cert, key } = await makeCertificate();
    writeFileSync(certificate, `${key}\n${cert}`);
    const themes: Measured[] = [];
    for (const theme of only)
      themes.push(await measureTheme(theme, certificate, { rounds, seconds }));
    const text = toMarkdown(themes, { rounds, seconds });
    console.log(text);
    if (isComplete) writeBetween("protocols.md", "figures", text);
    for (const { contestants, results } of themes) requireFigures(contestants, results);
  },
});
