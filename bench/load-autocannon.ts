/** Runs autocannon in a process of its own, which prints one line of JSON at the end. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** The part of autocannon's API that is used; it has no types. */
type Autocannon = (settings: object) => Promise<{
  requests: { total: number };
  latency: { average: number; p50: number; p99: number };
  throughput: { total: number };
  duration: number;
  errors: number;
  non2xx: number;
}>;

const autocannon = createRequire(import.meta.url)("autocannon") as Autocannon;
const settings = JSON.parse(process.argv[2] ?? "{}") as object;
const { LOAD_METHOD: method, LOAD_BODY: path, LOAD_TYPE: type } = process.env;
const body = path ? { body: readFileSync(path), headers: { "content-type": type } } : {};
const result = await autocannon({ ...settings, method, ...body });
console.log(
  JSON.stringify({
    requests: result.requests.total,
    duration: result.duration,
    bytes: result.throughput.total,
    mean: result.latency.average,
    p50: result.latency.p50,
    p99: result.latency.p99,
    errors: result.errors + result.non2xx,
  }),
);
