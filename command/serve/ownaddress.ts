/** Refuses targets that are the command's own server: each request would come back to it until all connections are in use. */
import type { TargetAddress } from "#fetchway";
import { parseTarget } from "#fetchway/transport";
import type { RouteSettings, Settings } from "../config/settings.ts";
import { UsageError } from "../flags/read.ts";
import { listAddresses, nameAddress } from "../flags/severalupstreams.ts";

/** The hosts that lead to a server on this machine, by the host on which that server listens. */
const LEADING: Readonly<Record<string, RegExp>> = {
  "127.0.0.1": /^(?:127\.0\.0\.1|0\.0\.0\.0|localhost)$/,
  "::1": /^(?:::1?|localhost)$/,
  localhost: /^(?:127\.0\.0\.1|0\.0\.0\.0|::1?|localhost)$/,
  "0.0.0.0": /^(?:127\..*|0\.0\.0\.0|localhost)$/,
  "::": /^(?:127\..*|0\.0\.0\.0|::1?|localhost)$/,
};

/** The port on which the server listens, and an address, a host name, or `unix:/path`. */
type ServerAddress = Pick<Settings["server"], "host" | "port">;

/**
 * Refuses routes to the server itself. It looks up no names. Of all names, only `localhost` and the value of `host` mean this
 * machine. A route to any other name is allowed, even with the same port: in a container, such a name usually leads to another
 * machine.
 * @throws UsageError that names the target
 */
export function refuseOwnAddress(server: ServerAddress, routes: Settings["routes"]): void {
  const all = routes.flatMap(({ options }) => addressesOf(options));
  const own = all.find((address) => isOwn(address, server));
  if (own === undefined) return;
  throw new UsageError(
    `the target ${nameAddress(own)} is the address of this proxy itself: use --port with another, or name another target`,
  );
}

/** Returns the addresses to which a route sends requests, without those that its functions and apps choose. */
function addressesOf({ target, mirror }: RouteSettings["options"]): TargetAddress[] {
  const copied = typeof mirror === "object" ? mirror.target : mirror;
  return [...listAddresses(target), ...(copied === undefined ? [] : listAddresses(copied))];
}

function isOwn(target: TargetAddress, { host, port }: ServerAddress): boolean {
  const { origin, hostname, address = hostname, socketPath, secure } = parseTarget(target);
  if (socketPath !== undefined) return `unix:${socketPath}` === host;
  const own = Number(new URL(origin).port || (secure ? 443 : 80)) === port;
  return own && (address === host || LEADING[host]?.test(address) === true);
}
