/** `npm run bench -- <name> [flags]`: runs one of the benches. */
import { check } from "./check.ts";
import { counts } from "./counts/counts.ts";
import { cpu } from "./cpu/cpu.ts";
import { fairness } from "./fairness/fairness.ts";
import { type Bench, describeBench, readFlags } from "./flags.ts";
import { options } from "./options/options.ts";
import { overload } from "./overload/overload.ts";
import { protocols } from "./protocols/protocols.ts";
import { render } from "./render.ts";
import { start } from "./start/start.ts";
import { tail } from "./tail/tail.ts";
import { dead } from "./upstreams/dead.ts";
import { upstreams } from "./upstreams/upstreams.ts";

export const benches: readonly Bench[] = [
  cpu,
  counts,
  tail,
  upstreams,
  dead,
  fairness,
  options,
  overload,
  protocols,
  start,
  check,
  render,
];

function describeAll(): string {
  const lines = benches.map(({ name, text }) => `  ${name.padEnd(10)} ${text}`);
  return `Usage: npm run bench -- <name> [flags]

${lines.join("\n")}

--help behind a name shows its flags. bench/README.md says how they measure.`;
}

/** Prints what was wrong with the command line, without a stack trace. */
function refuse(message: string): void {
  process.stderr.write(`${message}\n`);
  process.exitCode = 2;
}

async function main([name = "--help", ...args]: readonly string[]): Promise<void> {
  if (name === "--help" || name === "-h") return console.log(describeAll());
  const bench = benches.find((each) => each.name === name);
  if (bench === undefined) return refuse(`there is no ${JSON.stringify(name)}\n\n${describeAll()}`);
  let read: ReturnType<typeof readFlags>;
  try {
    read = readFlags(args, bench.flags);
  } catch (error) {
    return refuse(`${(error as Error).message}\nnpm run bench -- ${name} --help lists the flags`);
  }
  if (read === undefined) console.log(describeBench(bench));
  else await bench.run(read.values, read.isComplete);
}

if (import.meta.main) await main(process.argv.slice(2));
