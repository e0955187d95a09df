/** A proxy on Node with its own connection pool, and a scriptable upstream for it. */
import { afterAll, afterEach, beforeAll } from "vitest";
import { createProxy, type NodeProxy } from "../../../runtimes/node.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import type { Target } from "../../../src/upstreams/upstreams.ts";
import type { OriginStats, PoolStats } from "../../../src/transport/stats.ts";
import { Upstream } from "../../helpers/upstream.ts";

export const upstream: Upstream = new Upstream();
beforeAll(() => upstream.listen());
afterAll(() => upstream.stop());

const proxies: NodeProxy[] = [];
afterEach(async () => {
  for (const proxy of proxies.splice(0)) proxy.destroy();
  await upstream.reset();
});

/** Creates a proxy that does not retry, unless `options` has another `retry`. The proxy is destroyed after the test. */
export function pooled(
  pool: PoolOptions = {},
  target: Target = upstream.url,
  options: ProxyOptions = {},
): NodeProxy {
  const proxy = createProxy({ target, pool, retry: false, ...options });
  proxies.push(proxy);
  return proxy;
}

export async function ask(proxy: NodeProxy, path = "/", init?: RequestInit): Promise<string> {
  const response = await proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return `${response.status} ${await response.text()}`;
}

export function statsOf(proxy: NodeProxy): PoolStats {
  return proxy.stats() as PoolStats;
}

export function originOf(proxy: NodeProxy, origin: string = upstream.url): OriginStats | undefined {
  return statsOf(proxy).origins[origin];
}

/** Returns the number of open connections at the upstream. */
export function openLinks(): number {
  return upstream.openLinks;
}
