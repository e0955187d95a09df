/**
 * Runs the rules of the scoreboard against proxies, and with `--write` writes the results and docs/scoreboard.md.
 *
 *     npm run compare -- --proxy nginx,haproxy --write
 */
import { describeFlags, type Flag, names, readFlags, toggle } from "../../bench/flags.ts";
import type { Contestant } from "./contestant.ts";
import { contestants as others } from "./contestants/_all.ts";
import { fetchway } from "./contestants/fetchway.ts";
import { readResults, type Result, writeReport, writeResults } from "./report.ts";
import { rows, type Row } from "./rows.ts";
import { isFailure, type Outcome, runRows } from "./run.ts";
import { isWithheld } from "./withheld.ts";

const contestants: readonly Contestant[] = [...fetchway, ...others];

const chosen: Flag<string | undefined> = {
  value: "<text>",
  text: "only the rules whose titles contain this text, with their bytes",
  read: (value) => value,
};

export const flags: {
  proxy: Flag<readonly Contestant[]>;
  row: Flag<string | undefined>;
  hardening: Flag<string | undefined>;
  write: Flag<boolean>;
  render: Flag<boolean>;
} = {
  proxy: names("these proxies", contestants),
  row: chosen,
  hardening: {
    ...chosen,
    value: "<label>",
    text: "with this option of the proxy; its page in docs/scoreboard/ has the labels",
  },
  write: toggle("writes test/compare/results.json and docs/scoreboard.md"),
  render: toggle("only writes docs/scoreboard.md again from test/compare/results.json"),
};

function describeOutcome(outcome: Outcome): string {
  return isFailure(outcome) ? `FAILED: ${outcome.why}` : outcome;
}

/** Runs rules against a proxy, and prints each with its outcome. */
async function runAll(
  contestant: Contestant,
  chosenRows: readonly Row[],
  {
    hardening,
    shows = false,
    patience,
  }: {
    hardening?: string | undefined;
    shows?: boolean;
    patience?: readonly number[];
  } = {},
): Promise<Result> {
  let done = 0;
  const title = hardening === undefined ? contestant.name : `${contestant.name} ${hardening}`;
  const outcomes = await runRows(contestant, chosenRows, {
    hardening,
    ...(patience && { patience }),
    onRow: ({ test }, outcome, passages) => {
      done += 1;
      console.log(
        `${title}  ${done} of ${chosenRows.length}  ${test}  ${describeOutcome(outcome)}`,
      );
      if (!shows) return;
      for (const { way, bytes, end } of passages)
        console.log(`${way}${end ? ` (${end})` : ""}\n${bytes}`);
    },
  });
  const { name, source, hardenings } = contestant;
  return { name, source, ...(hardenings && { hardenings }), ...outcomes };
}

/** Runs the failed rules again, up to twice with each hardening, and notes those that pass both times. */
async function runHardened(contestant: Contestant, result: Result): Promise<void> {
  for (const hardening of Object.keys(contestant.hardenings ?? {})) {
    let failed = rows.filter(({ test }) => isFailure(result.rows[test]));
    for (let run = 0; run < 2; run++) {
      const { rows: outcomes } = await runAll(contestant, failed, { hardening, patience: [2500] });
      failed = failed.filter(({ test }) => outcomes[test] === "passed");
    }
    for (const { test } of failed) {
      const failure = result.rows[test];
      if (isFailure(failure)) (failure.hardened ??= {})[hardening] = "passed";
    }
  }
}

/** Leaves out the failures that are not published. */
export function withhold(result: Result, isSecret: typeof isWithheld = isWithheld): Result {
  const kept = Object.entries(result.rows).filter(
    ([test, outcome]) => !(isFailure(outcome) && isSecret(result.name, test)),
  );
  return { ...result, rows: Object.fromEntries(kept) };
}

/** Stores the outcomes of the rules that have run, and keeps those of the other rules and proxies. */
function save(run: readonly Result[]): void {
  const known = new Map(readResults().map((result) => [result.name, result]));
  for (const result of run) {
    const before = known.get(result.name)?.rows;
    const titles = rows
      .map(({ test }) => test)
      .filter((test) => before?.[test] ?? result.rows[test]);
    const outcomes = titles.map((test) => [test, result.rows[test] ?? before?.[test]] as const);
    known.set(result.name, { ...result, rows: Object.fromEntries(outcomes) as Result["rows"] });
  }
  const results = contestants
    .flatMap(({ name }) => known.get(name) ?? [])
    .map((each) => withhold(each));
  writeResults(results);
  writeReport(results);
}

async function main(args: string[]): Promise<void> {
  const read = readFlags(args, flags);
  if (read === undefined)
    return console.log(`Usage: npm run compare -- [flags]\n\n${describeFlags(flags)}`);
  const { proxy, row, hardening, write, render } = read.values;
  if (render) return writeReport(readResults());
  const wanted = rows.filter(({ test }) => row === undefined || test.includes(row));
  if (wanted.length === 0) throw new TypeError(`--row: no title of a rule contains ${row}`);
  const unknown = proxy.filter(({ hardenings }) => hardenings?.[hardening ?? ""] === undefined);
  if (hardening !== undefined && unknown.length > 0) {
    const listed = unknown.map(({ name }) => name).join(", ");
    throw new TypeError(`--hardening: ${listed} has no option ${hardening}; see docs/scoreboard/`);
  }
  if (write && hardening !== undefined)
    throw new TypeError("--write: without --hardening, all of them are tried");
  const results: Result[] = [];
  for (const contestant of proxy) {
    try {
      const result = await runAll(contestant, wanted, { hardening, shows: row !== undefined });
      if (write) await runHardened(contestant, result);
      results.push(result);
      if (write) save(results);
    } catch (error) {
      console.error(`${contestant.name}: ${(error as Error).message}`);
      process.exitCode = 1;
    }
  }
  for (const { name, version, rows: outcomes } of results) {
    const failed = Object.values(outcomes).filter(isFailure).length;
    console.log(`${name} ${version}: of ${wanted.length} rules, ${failed} do not hold`);
  }
}

if (import.meta.main) {
  // A test that has failed may leave promises that are rejected later, and timers.
  process.on("unhandledRejection", () => {});
  try {
    await main(process.argv.slice(2));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    console.error(error.message);
    process.exitCode = 2;
  }
  process.exit();
}
