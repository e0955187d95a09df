import type { Context } from "../options/forwardingoptions.ts";
import { networkOf } from "../target/address.ts";
import { findAddress } from "./chain.ts";
import type { Incoming } from "./incoming.ts";
import type { RequestRules } from "./outgoing.ts";

/** The options that say who the client of a request is. */
export type ClientRules = Partial<Pick<RequestRules, "clientAddress" | "trusts">>;

/**
 * Returns the address of a request's client; undefined if it is not known. If a trusted proxy has sent the request, and its
 * forwarding fields name a client, the result comes from these fields, and may be a name instead of an address.
 *
 * `toUpstreamRequest` calls the option `clientAddress` as well, so the app's function may run twice for one request.
 */
export function clientAddressOf(
  incoming: Incoming,
  { clientAddress, trusts }: ClientRules,
  context: Context,
): string | undefined {
  try {
    let address = clientAddress ? clientAddress(incoming.request(), context) : incoming.address;
    // As for the upstream request, the forwarding fields count only if the peer is trusted. The address that the app returns
    // may be that of a further trusted proxy.
    const isTrusted = trusts?.(incoming.address ?? address) === true;
    if (isTrusted && trusts(address ?? incoming.address)) {
      address = findAddress(incoming.headers, trusts) ?? address;
    }
    return address;
  } catch {
    // A function of the app has thrown. That must not fail the other requests that wait.
    return undefined;
  }
}

/**
 * Returns a key for the client of a waiting request: the client's address, or in IPv6 its network of 64 bits; undefined
 * if the client is not known. The function is called only when a request waits.
 */
export function clientKeyOf(...request: Parameters<typeof clientAddressOf>): string | undefined {
  const address = clientAddressOf(...request);
  return address && networkOf(address);
}
