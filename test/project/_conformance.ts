/**
 * Generates docs/conformance.md: each requirement of the RFCs, with its tests and the hosts on which it holds. It reads
 * the list in conformance/, the calls of `rfc` in the tests, and the lists of gaps.
 *
 *     node test/project/_conformance.ts    # brings docs/conformance.md up to date
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { findMarkers, isInSuite, type Marked } from "../conformance/markers.ts";
import { type Requirement, type RequirementId, requirements } from "../conformance/requirements.ts";
import { gaps } from "../suite/gaps/gaps.ts";
import {
  columnsOf,
  type HostName,
  hostNames,
  HOSTS,
  ON_NODE as OWN_ON_NODE,
  OWN,
} from "../hosts/_hosts.ts";
import { toTable } from "./_readme.ts";

export const LEDGER: URL = new URL("../../docs/conformance.md", import.meta.url);

const RFCS: readonly (readonly [rfc: string, title: string])[] = [
  ["9110", "HTTP semantics"],
  ["9112", "HTTP/1.1"],
  ["9113", "HTTP/2"],
  ["8441", "WebSockets over HTTP/2"],
  ["6455", "WebSocket"],
  ["7239", "Forwarded"],
  ["9209", "Proxy-Status"],
];

/** Each host with the title of its column. */
const COLUMNS: readonly (readonly [HostName, string])[] = columnsOf(hostNames);

const ON_NODE: readonly HostName[] = hostNames.filter((name) => HOSTS[name].runtime === "node");
/** The hosts on which Fetchway's own client uses another runtime's implementation of `node:net` and `node:tls`. */
const OWN_ELSEWHERE: readonly HostName[] = ["bun", "deno"];

/** The hosts that read the frames of a WebSocket. On the other hosts, a tunnel passes bytes on without reading frames. */
const READING_FRAMES: readonly HostName[] = [...OWN_ELSEWHERE, "workerd"];

/** The hosts on which a test file is evidence, by the file's path. The first matching pattern decides. */
const SCOPES: readonly (readonly [RegExp, readonly HostName[]])[] = [
  [/^suite\/frames\./, READING_FRAMES],
  [/^unit\/websocket\//, OWN_ELSEWHERE],
  [/^unit\/http1\//, [...OWN_ON_NODE, ...OWN_ELSEWHERE]],
  [/^runtimes\/node\/upgradesocket\./, OWN_ON_NODE],
  [/^runtimes\/sockets\/http2\/upstream\./, OWN_ON_NODE],
  [/^runtimes\/sockets\/http2\//, [...OWN_ON_NODE, ...OWN_ELSEWHERE]],
  [/^runtimes\/sockets\/(?:pool|stale)\./, OWN_ON_NODE],
  [/^runtimes\/sockets\/transport\./, OWN_ELSEWHERE],
  [/^runtimes\/workerd\/(?:transport|websocket)\./, ["workerd"]],
  [/^runtimes\/undici\//, ["undici"]],
  [/^runtimes\/node\/|\.node\.test\.ts$/, ON_NODE],
];

function hostsOf({ file }: Marked): readonly HostName[] {
  const scope = SCOPES.find(([pattern]) => pattern.test(file));
  return scope?.[1] ?? COLUMNS.map(([host]) => host);
}

/** Returns the reason why a test fails on a host, or undefined if it passes there. */
function reasonOf(marked: Marked, host: HostName): string | undefined {
  if (!isInSuite(marked)) return undefined;
  return gaps.find((gap) => gap.host === host && gap.test === marked.title)?.reason;
}

export type State = "holds" | "option" | "gap" | "not ours" | "untested";

/** Returns the state of a requirement on a host. */
export function stateOn(
  host: HostName,
  { gap, foreign, option }: Requirement,
  tests: readonly Marked[],
): State {
  if (foreign !== undefined) return "not ours";
  if (gap !== undefined) return "gap";
  if (tests.length === 0) return "untested";
  const there = tests.filter((test) => hostsOf(test).includes(host));
  if (there.length === 0) return "not ours";
  if (there.some((test) => reasonOf(test, host) !== undefined)) return "gap";
  return option === undefined ? "holds" : "option";
}

interface Row {
  readonly id: RequirementId;
  readonly rfc: string;
  readonly section: string;
  readonly name: string;
  readonly requirement: Requirement;
  readonly tests: readonly Marked[];
}

function toRow(id: RequirementId, markers: readonly Marked[]): Row {
  const [, rfc = "", section = "", name = ""] = /^(\d+)-([\d.]+)-(.+)$/.exec(id) ?? [];
  const tests = markers.filter((marked) => marked.id === id);
  return { id, rfc, section, name, requirement: requirements[id], tests };
}

const ids = Object.keys(requirements) as RequirementId[];

function linkOf({ rfc, section }: Row): string {
  return `[${section}](https://www.rfc-editor.org/rfc/rfc${rfc}#section-${section})`;
}

function isForeign({ requirement }: Row): boolean {
  return requirement.foreign !== undefined;
}

/** Returns the first two cells of a requirement's row. */
function headOf(row: Row): [string, string] {
  const { level, role, says } = row.requirement;
  return [`${linkOf(row)} ${row.name}`, `${level}, as ${role}: ${says}`];
}

/** Returns the states of a requirement, the best one first. Each further state names its hosts; the best holds on the rest. */
function statesOf({ requirement, tests }: Row): string {
  const hosts = new Map<State, string[]>();
  for (const [host, title] of COLUMNS) {
    const state = stateOn(host, requirement, tests);
    hosts.set(state, [...(hosts.get(state) ?? []), title]);
  }
  const present = SUMMARY.filter((state) => hosts.has(state));
  return present
    .map((state, i) => (i === 0 ? state : `${state}: ${hosts.get(state)?.join(", ")}`))
    .join("; ");
}

function tableOf(rows: readonly Row[]): string {
  return toTable([
    ["section", "requirement", "state"],
    ...rows.map((row) => [...headOf(row), statesOf(row)]),
  ]);
}

function foreignTableOf(rows: readonly Row[]): string {
  return toTable([
    ["section", "requirement", "why not ours"],
    ...rows.map((row) => [...headOf(row), row.requirement.foreign ?? ""]),
  ]);
}

/** Returns a line for each reason why tests of a requirement fail, with the hosts on which they fail. */
function gapsOf({ requirement, tests }: Row): string[] {
  if (requirement.gap !== undefined) return [`gap: ${requirement.gap}`];
  const hosts = new Map<string, Set<string>>();
  for (const test of tests) {
    for (const [host, title] of COLUMNS) {
      const reason = reasonOf(test, host);
      if (reason === undefined) continue;
      hosts.set(reason, (hosts.get(reason) ?? new Set()).add(title));
    }
  }
  return Array.from(hosts, ([reason, on]) => `gap on ${[...on].join(", ")}: ${reason}`);
}

/** Escapes text so that Markdown shows it unchanged. */
function escape(text: string): string {
  return text.replaceAll(/[\\`*_<>[\]|~]/g, "\\$&");
}

function detailsOf(row: Row): string {
  const { option } = row.requirement;
  const notes = [
    ...(option === undefined ? [] : [`with the option \`${option}\``]),
    ...gapsOf(row).map(escape),
    ...row.tests.map(({ file, title }) => `\`${file}\`: ${escape(title)}`),
  ];
  return `- ${row.section} ${row.name}\n${notes.map((note) => `  - ${note}\n`).join("")}`;
}

function sectionOf(rfc: string, title: string, rows: readonly Row[]): string {
  const own = rows.filter((row) => !isForeign(row));
  const foreign = rows.filter(isForeign);
  const parts = [
    `## RFC ${rfc}, ${title}\n`,
    tableOf(own),
    ...(foreign.length === 0 ? [] : ["Not ours:\n", foreignTableOf(foreign)]),
    `### Tests and gaps of RFC ${rfc}\n`,
    own
      .filter(({ requirement, tests }) => tests.length > 0 || requirement.gap)
      .map(detailsOf)
      .join(""),
  ];
  return parts.join("\n");
}

/** Returns the state under which the summary counts a requirement: its worst state on the hosts in `OWN`. */
export function summaryState(row: Pick<Row, "requirement" | "tests">): State {
  const states = new Set(
    columnsOf(OWN)
      .map(([host]) => stateOn(host, row.requirement, row.tests))
      .filter((state, _, all) => state !== "not ours" || all.every((each) => each === "not ours")),
  );
  const order: State[] = ["untested", "gap", "option", "holds", "not ours"];
  return order.find((state) => states.has(state)) ?? "not ours";
}

const SUMMARY: readonly State[] = ["holds", "option", "gap", "untested", "not ours"];

function summaryOf(rows: readonly Row[]): string {
  const count = (state: State, rfc?: string): number =>
    rows.filter((row) => (!rfc || row.rfc === rfc) && summaryState(row) === state).length;
  const lineOf = (title: string, rfc?: string): string => {
    const counts = SUMMARY.map((state) => [count(state, rfc), state] as const);
    const shown = counts.flatMap(([n, state]) => (n === 0 ? [] : [`${n} ${state}`]));
    return `- ${title}: ${shown.join(", ")}\n`;
  };
  return [...RFCS.map(([rfc, title]) => lineOf(`RFC ${rfc}, ${title}`, rfc)), lineOf("all")].join(
    "",
  );
}

const INTRODUCTION = `<!-- Made by \`npm run conformance\`. -->

# What the RFCs require, and what holds

Each row is a requirement that an RFC puts on a gateway: as the server of its clients, as the client of its upstreams,
or as an intermediary between them. The sentences are ours; the section has the words that count. The states:

- **holds**: tests check it on this host.
- **option**: tests check it with an option set that is off by default.
- **gap**: it does not hold on this host, or not in all that is tested. The list below each table says why.
- **untested**: nothing says whether it holds.
- **not ours**: the runtime or the upstream does it, or the part is not one of a gateway.

The hosts are ${COLUMNS.map(([, title]) => title).join(", ")}.
Where their states differ, the first state holds for all hosts that are not named.

A test says by a call of \`rfc\` which requirements it checks. Where one has several tests, the worst of them counts.
`;

export function makeLedger(markers: readonly Marked[] = findMarkers()): string {
  const rows = ids.map((id) => toRow(id, markers));
  const sections = RFCS.map(([rfc, title]) =>
    sectionOf(
      rfc,
      title,
      rows.filter((row) => row.rfc === rfc),
    ),
  );
  const note = "A requirement that is a gap on one host counts as a gap here.\n";
  return [INTRODUCTION, summaryOf(rows), note, ...sections].join("\n");
}

/** Returns the requirements that have neither a test nor a stated reason for having none. */
export function findUntested(markers: readonly Marked[] = findMarkers()): RequirementId[] {
  return ids.filter((id) => summaryState(toRow(id, markers)) === "untested");
}

if (import.meta.main) {
  mkdirSync(new URL(".", LEDGER), { recursive: true });
  writeFileSync(LEDGER, makeLedger());
}
