import type { Transport } from "../transport/port.ts";
import type { Upstreams } from "./upstreams.ts";

/** For each target, the transports with which it was started since it was last closed. */
const started = new WeakMap<Upstreams, WeakSet<Transport>>();

/** Calls `start` of a target with several upstreams, unless it was called with this transport since the last `close`. */
export function startUpstreams(upstreams: Upstreams, transport: Transport): void {
  const transports = started.get(upstreams);
  if (upstreams.start === undefined || transports?.has(transport)) return;
  upstreams.start(transport);
  if (transports === undefined) started.set(upstreams, new WeakSet([transport]));
  else transports.add(transport);
}

/**
 * Calls `close` of a target with several upstreams. The next request through another transport starts the target again,
 * because several proxies may have the same target.
 * @param closed a transport that is closed at the same time. Late requests through it must not start the target again
 */
export function closeUpstreams(upstreams: Upstreams, closed?: Transport): void {
  started.set(upstreams, new WeakSet(closed && [closed]));
  upstreams.close?.();
}
