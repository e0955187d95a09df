import { badOption } from "../misuse.ts";
import type { Upstream } from "../target/target.ts";
import type { Capabilities, Transport } from "./port.ts";

/** The capabilities of a transport that a target may need. */
type NeededCapabilities = Pick<Capabilities, "unixSocket" | "tls" | "address" | "http2">;

/**
 * Makes sure that a transport can send requests to an upstream.
 * @param hostOption the option that asks for a `Host` other than the target's, if one is set
 * @throws TypeError that says what the transport cannot do
 */
export function assertReachable(
  upstream: Upstream,
  transport: Pick<Transport, "name" | "checkTls"> & { capabilities: NeededCapabilities },
  hostOption?: string,
): void {
  if (upstream.app !== undefined && hostOption !== undefined) {
    throw badOption(hostOption, "leave it out: a target in process has the host of its `url`");
  }
  const obstacle = findObstacle(upstream, transport.capabilities);
  if (obstacle !== undefined) {
    throw new TypeError(`fetchway: the ${transport.name} client ${obstacle}`);
  }
  if (upstream.tls !== undefined) transport.checkTls?.(upstream.tls);
}

function findObstacle(upstream: Upstream, can: NeededCapabilities): string | undefined {
  if (upstream.socketPath !== undefined && !can.unixSocket) {
    return "cannot reach unix sockets; use a URL";
  }
  if (upstream.tls !== undefined && !can.tls) return "has no TLS options; leave out `tls`";
  if (upstream.address !== undefined && !can.address) {
    return "looks up names itself; leave out `address`";
  }
  if (upstream.http2 === true && !can.http2) {
    return "chooses the HTTP version itself; leave out `http2`";
  }
  return undefined;
}
