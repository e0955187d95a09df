/** Creates proxies with undici in place of Fetchway's own HTTP client, and destroys their transports after each test. */
import { Agent } from "undici";
import { afterAll, afterEach, beforeAll } from "vitest";
import { createProxy, type ProxyOptions, type Transport } from "#fetchway";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";

export const upstream: Upstream = new Upstream();
/** Functions to call after each test. */
export const closing: (() => unknown)[] = [];

beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await upstream.reset();
});
afterAll(() => upstream.stop());

export type Send = (path: string, init?: RequestInit & { duplex?: "half" }) => Promise<Response>;

/** Returns a function that sends requests through a proxy with this transport. */
export function through(
  transport: Transport = createUndiciTransport(),
  options: ProxyOptions = {},
): Send & { transport: Transport } {
  closing.push(() => transport.destroy?.());
  const proxy = createProxy({ target: upstream.url, transport, ...options });
  const send: Send = (path, init) => proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return Object.assign(send, { transport });
}

/** Creates a transport with an agent that is destroyed after the test. */
export function createAgentTransport(options: Agent.Options = {}): Transport {
  const agent = new Agent(options);
  closing.push(() => agent.destroy());
  return createUndiciTransport(agent);
}

/** Waits until a connection is free: undici uses one again only after a turn of the event loop. */
export async function untilFree(transport: Transport): Promise<void> {
  await until(() => transport.stats?.().origins[upstream.url]?.free === 1, "a free connection");
}

/** Returns the error type in a response's Proxy-Status. */
export function errorTypeOf(response: Response): string | undefined {
  return response.headers.get("proxy-status")?.replace("fetchway; error=", "");
}
