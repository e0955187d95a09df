/** Runs autocannon in a separate process, which prints one line of JSON at the end. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** The part of autocannon's API that is used here, because autocannon has no types. */
type Autocannon = (settings: object) => Promise<{
  requests: { total: number; sent: number };
  latency: { average: number; p50: number; p99: number };
  throughput: { total: number };
  duration: number;
  errors: number;
  statusCodeStats: Readonly<Record<string, { count: number }>>;
}>;

const autocannon = createRequire(import.meta.url)("autocannon") as Autocannon;
const settings = JSON.parse(process.argv[2] ?? "{}") as { connections: number };
const { LOAD_METHOD: method, LOAD_BODY: path, LOAD_TYPE: type } = process.env;
const body = path ? { body: readFileSync(path), headers: { "content-type": type } } : {};
const result = await autocannon({ ...settings, method, ...body });
const { requests, statusCodeStats } = result;
// autocannon does not count requests whose connections ended before the response. They are the requests that were sent but not
// answered, except for one on each connection, which is still running at the end.
const lost = requests.sent - requests.total - settings.connections;
const wrong = requests.total - (statusCodeStats["200"]?.count ?? 0);
console.log(
  JSON.stringify({
    requests: requests.total,
    duration: result.duration,
    bytes: result.throughput.total,
    mean: result.latency.average,
    p50: result.latency.p50,
    p99: result.latency.p99,
    errors: result.errors + lost + wrong,
  }),
);
