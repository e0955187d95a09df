/** Proxies with undici in place of the proxy's own client, closed after each test. */
import { Agent } from "undici";
import { afterAll, afterEach, beforeAll } from "vitest";
import { createProxy, type ProxyOptions, type Transport } from "#proxy";
import { createUndiciTransport } from "../runtimes/undici.ts";
import { Upstream } from "./_upstream.ts";
import { until } from "./_wait.ts";

export const upstream: Upstream = new Upstream();
/** Called after each test. */
export const closing: (() => unknown)[] = [];

beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await upstream.reset();
});
afterAll(() => upstream.stop());

export type Send = (path: string, init?: RequestInit & { duplex?: "half" }) => Promise<Response>;

/** Sends requests through a proxy with this transport. */
export function through(
  transport: Transport = createUndiciTransport(),
  options: ProxyOptions = {},
): Send & { transport: Transport } {
  closing.push(() => transport.destroy?.());
  const proxy = createProxy({ target: upstream.url, transport, ...options });
  const send: Send = (path, init) => proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return Object.assign(send, { transport });
}

/** A transport over an agent of the test's own. */
export function createAgentTransport(options: Agent.Options = {}): Transport {
  const agent = new Agent(options);
  closing.push(() => agent.destroy());
  return createUndiciTransport(agent);
}

/** Waits until a connection is free: undici uses one again only after a turn of the event loop. */
export async function untilFree(transport: Transport): Promise<void> {
  await until(() => transport.stats?.().origins[upstream.url]?.free === 1, "a free connection");
}

/** The error type in a response's Proxy-Status. */
export function errorTypeOf(response: Response): string | undefined {
  return response.headers.get("proxy-status")?.replace("fetchway; error=", "");
}
