/**
 * A proxy in a process with few file descriptors. It prints the default of `maxSockets`, and the outcome of a request when no
 * descriptor is left.
 * @param argv the name of the runtime's entry
 */
import { openSync } from "node:fs";
import process from "node:process";
import { balance } from "../../../src/upstreams/balance.ts";

const { createProxy, createTransport } = (await import(
  `../../../runtimes/${process.argv[2]}.ts`
)) as typeof import("../../../runtimes/node.ts");

const asked = createTransport({ maxSockets: 7 }).stats?.().maxSockets;
const errors: string[] = [];
const target = balance(["http://127.0.0.1:9", "http://127.0.0.2:9"], {
  outliers: { consecutiveFailures: 1 },
});
const proxy = createProxy({
  target,
  onError(error) {
    errors.push(`${(error as { code?: string }).code}`);
  },
});
try {
  for (;;) openSync("/dev/null", "r");
} catch {
  // No descriptor is left.
}
const response = await proxy.fetch(new Request("http://proxy.test/"));
const result = {
  maxSockets: proxy.stats()?.maxSockets,
  asked,
  status: response.status,
  retryAfter: response.headers.get("retry-after"),
  errors,
  upstreams: target.states().map(({ state, failures }) => `${state} ${failures}`),
};
process.stdout.write(JSON.stringify(result), () => process.exit(0));
