/**
 * Runs the storm, which is random exchanges through the proxy, from the command line.
 *
 *     npm run test:storm -- [--hosts node,srvx:wrapped,…] [--exchanges 100000] [--seed 1]
 *                           [--only 17] [--concurrency 32] [--options '{"pool":{"maxSockets":8}}']
 *                           [--without pipelining,HTTP/1.0] [--except order]
 *
 * A session is the exchanges of one client on one connection or, after its close, on a new one. The seed determines all plans.
 * `--only 17` runs only the session with the index 17, repeatedly, until there have been `--exchanges` exchanges. The default
 * of `--exchanges` is 10000, or 1 with `--only`. `--without` leaves features out of the plans, `--except` leaves invariants
 * unchecked.
 */
import { parseArgs } from "node:util";
import { type HostName, ON_NODE, OWN } from "../hosts/_hosts.ts";
import { FEATURES } from "./limits.ts";
import { INVARIANTS } from "./record.ts";
import { createSeed, describeStorm } from "./report.ts";
import { Storm } from "./storm.ts";
import { type Variant, VARIANTS } from "./variants.ts";

const ALL = [...OWN, ...ON_NODE.flatMap((host) => VARIANTS.map((variant) => `${host}:${variant}`))];

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: ALL.join(",") },
    exchanges: { type: "string" },
    seed: { type: "string" },
    only: { type: "string" },
    concurrency: { type: "string", default: "32" },
    options: { type: "string" },
    without: { type: "string", default: "" },
    except: { type: "string", default: "" },
  },
});

function parseCount(name: string, text: string): number {
  const count = Number(text);
  if (text !== "" && Number.isSafeInteger(count) && count >= 0) return count;
  throw new Error(`--${name} ${text}: use a whole number`);
}

const unknown = values.hosts.split(",").find((name) => !ALL.includes(name));
if (unknown !== undefined) throw new Error(`--hosts ${unknown}: use some of ${ALL.join(", ")}`);
const without = FEATURES.filter((name) => values.without.split(",").includes(name));
const except = INVARIANTS.filter((name) => values.except.split(",").includes(name));
const seed = values.seed === undefined ? createSeed() : parseCount("seed", values.seed);
const only = values.only === undefined ? undefined : parseCount("only", values.only);
const exchanges = parseCount("exchanges", values.exchanges ?? (only === undefined ? "10000" : "1"));

console.log(`seed ${seed}`);
for (const name of values.hosts.split(",")) {
  const [host, variant] = name.split(":") as [HostName, Variant?];
  const storm = new Storm({
    host,
    ...(variant && { variant }),
    seed,
    exchanges,
    except,
    without,
    // A session that runs alone is repeated in sequence, without concurrency.
    concurrency: only === undefined ? parseCount("concurrency", values.concurrency) : 1,
    ...(only !== undefined && { only }),
    ...(values.options !== undefined && { options: values.options }),
  });
  await storm.run();
  await storm.settle();
  console.log(describeStorm(name, storm));
  if (storm.violations.length > 0) process.exitCode = 1;
}
