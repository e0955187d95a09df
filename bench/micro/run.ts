/** `npm run bench:micro`: measures the steps of a request one by one, without a network. */
import { parseArgs } from "node:util";
import { Bench } from "tinybench";
import { forwarding } from "./forwarding.ts";
import { headers } from "./headers.ts";
import { responses } from "./responses.ts";
import { targets } from "./targets.ts";

/** The steps by their titles. */
export type Steps = Readonly<Record<string, () => unknown>>;

const themes: Readonly<Record<string, Steps>> = { headers, targets, forwarding, responses };

const { values } = parseArgs({
  options: {
    only: { type: "string", default: Object.keys(themes).join(",") },
    time: { type: "string", default: "500" },
    help: { type: "boolean", default: false },
  },
});

if (values.help) {
  console.log(`Usage: npm run bench:micro -- [flags]

  --only <themes>   of ${Object.keys(themes).join(", ")}
  --time <ms>       for each step, 500 by default`);
} else {
  console.log(`Node ${process.versions.node}, ns per call`);
  for (const name of values.only.split(",")) {
    const steps = themes[name];
    if (steps === undefined) {
      throw new TypeError(`--only: there is no ${name}; use ${Object.keys(themes).join(", ")}`);
    }
    const bench = new Bench({ name, time: Number(values.time), warmupTime: 200 });
    for (const [title, step] of Object.entries(steps)) bench.add(title, step);
    await bench.run();
    console.log(`\n${name}`);
    for (const { name: title, result } of bench.tasks) {
      if (result.state !== "completed") throw new Error(`${title}: ${result.state}`);
      const { p50, rme } = result.latency;
      console.log(
        `  ${title.padEnd(48)} ${(p50 * 1e6).toFixed(0).padStart(8)} ± ${rme.toFixed(1)} %`,
      );
    }
  }
}
