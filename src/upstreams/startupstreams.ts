import type { Transport } from "../transport/port.ts";
import type { Upstreams } from "./upstreams.ts";

/** The transports with which each target was started since it was closed last. */
const started = new WeakMap<Upstreams, WeakSet<Transport>>();

/** Calls `start` of several upstreams, unless it was called with this transport before. */
export function startUpstreams(upstreams: Upstreams, transport: Transport): void {
  const transports = started.get(upstreams);
  if (upstreams.start === undefined || transports?.has(transport)) return;
  upstreams.start(transport);
  if (transports === undefined) started.set(upstreams, new WeakSet([transport]));
  else transports.add(transport);
}

/**
 * Calls `close` of several upstreams. The next request through another transport starts them again: several proxies may
 * have the same target.
 * @param closed the transport that is closed as well, whose late requests must not start them again
 */
export function closeUpstreams(upstreams: Upstreams, closed?: Transport): void {
  started.set(upstreams, new WeakSet(closed && [closed]));
  upstreams.close?.();
}
