/** `npm run bench -- cpu`: measures several proxies under the same workloads. */
import { writeFileSync } from "node:fs";
import { contestants } from "../contestants.ts";
import { type Bench, defineBench, names, roundFlags, wholeNumbers } from "../flags.ts";
import { say } from "../program.ts";
import { describeMachine, pathOf } from "../report.ts";
import { measure, requireFigures } from "../rounds.ts";
import { workloads } from "../workloads.ts";
import { hashOfCode } from "../code.ts";
import { summarize, toOverview, writeSummary } from "./summary.ts";

export const cpu: Bench = defineBench({
  name: "cpu",
  text: "CPU time, throughput and memory of proxies under the same load, about 25 minutes",
  writes: "bench/results.json, bench/chart*.svg and the tables of bench/README.md",
  flags: {
    only: names("these contestants; a name may end in *", contestants),
    workloads: names("these workloads", workloads, { quick: "get-1k,post-1k" }),
    connections: wholeNumbers("connections of the load", { usual: "64" }, 10_000),
    ...roundFlags({ usual: "5", quick: "3" }, { usual: "2", quick: "1" }),
  },
  async run({ only, ...options }, isComplete) {
    const results = await measure({ ...options, contestants: only });
    const { rounds, seconds } = options;
    const report = { ...describeMachine(only), rounds, seconds, results };
    const summary = summarize(report);
    console.log(toOverview(summary, hashOfCode()));
    writeFileSync(pathOf("_rounds.json"), JSON.stringify(report));
    say("wrote bench/_rounds.json, with each round");
    if (isComplete) writeSummary(summary);
    requireFigures(only, results);
  },
});
