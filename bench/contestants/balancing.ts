/** Fetchway in front of several upstreams. The arguments are the time for an attempt in ms, and the upstreams. */
import { createProxy } from "#fetchway";
import { balance } from "#fetchway/upstreams";
import { start } from "./_start.ts";

const [attemptTimeout, ...targets] = process.argv.slice(2);
const proxy = createProxy({
  target: balance(targets),
  attemptTimeout: Number(attemptTimeout),
  retry: { statusCodes: [500] },
});
await start("node", proxy.nodeHandler);
