/**
 * Shows the proxy's connections at `/metrics`, in the text format of Prometheus:
 *
 *     npx srvx index.ts     # or with bun run, deno serve -A
 */
import { createProxy, type PoolStats } from "fetchway";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

function renderStats({ created, closed, failed, timedOut, requests, origins }: PoolStats): string {
  const counters = { created, closed, failed, timed_out: timedOut, requests };
  const lines = Object.entries(counters).flatMap(([name, value]) => {
    const family = `fetchway_upstream_${name === "requests" ? name : `connections_${name}`}_total`;
    return [`# TYPE ${family} counter`, `${family} ${value}`];
  });
  lines.push("# TYPE fetchway_upstream_connections gauge");
  for (const [upstream, { inUse, free, waiting, tunnels }] of Object.entries(origins)) {
    for (const [state, count] of Object.entries({ inUse, free, waiting, tunnels })) {
      lines.push(`fetchway_upstream_connections{upstream="${upstream}",state="${state}"} ${count}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

export default {
  fetch(request: Request, context: unknown): Response | Promise<Response> {
    const stats = proxy.stats();
    if (new URL(request.url).pathname !== "/metrics" || stats === undefined) {
      return proxy.fetch(request, context);
    }
    return new Response(renderStats(stats), { headers: { "content-type": "text/plain" } });
  },
};
