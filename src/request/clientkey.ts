import type { Context } from "../options/forwardingoptions.ts";
import { networkOf } from "../target/address.ts";
import { findAddress } from "./chain.ts";
import type { Incoming } from "./incoming.ts";
import type { RequestRules } from "./outgoing.ts";

/** The options that say who the client of a request is. */
export type ClientRules = Partial<Pick<RequestRules, "clientAddress" | "trusts">>;

/**
 * Returns a key for the client of a waiting request: the client's address, or in IPv6 its network of 64 bits; undefined
 * if the client is not known. If a trusted proxy has sent the request, the forwarding fields name the client.
 *
 * The function is called only when a request waits. It may call the option `clientAddress` a second time.
 */
export function clientKeyOf(
  incoming: Incoming,
  { clientAddress, trusts }: ClientRules,
  context: Context,
): string | undefined {
  try {
    let address = clientAddress ? clientAddress(incoming.request(), context) : incoming.address;
    // The address that the app returns may be that of a trusted proxy.
    if (trusts?.(address ?? incoming.address) === true) {
      address = findAddress(incoming.headers, trusts) ?? address;
    }
    return address && networkOf(address);
  } catch {
    // A function of the app has thrown, which must not fail the other requests that wait.
    return undefined;
  }
}
