import { badOption, refusePromise } from "../misuse.ts";
import { checkRange, compileRanges, isIPAddress, unmapAddress } from "../target/address.ts";

/** Returns whether an address is trusted; the address is undefined if it is not known. */
export type Trust = (address: string | undefined) => boolean;

/**
 * Compiles `trustProxy`. `checkRange` must have checked its ranges before.
 *
 * Except with `true`, only an IP address can be trusted: an unknown address or a name cannot.
 * @returns undefined if no peer is trusted
 */
export function compileTrust(
  trust: boolean | readonly string[] | ((address: string) => boolean),
): Trust | undefined {
  if (typeof trust === "boolean") return trust ? () => true : undefined;
  if (typeof trust === "function") {
    return (text) => {
      if (!isIPAddress(text)) return false;
      return refusePromise(trust(unmapAddress(text)), "trustProxy");
    };
  }
  const isTrusted = compileRanges(trust);
  return (text) => text !== undefined && isTrusted(text);
}

/**
 * Makes the function by which a proxy with this `trustProxy` decides whether a peer is trusted.
 * @param trust the value of the option `trustProxy`
 * @throws TypeError for an entry that is not an address, a range or the name of ranges
 */
export function createTrust(
  trust: boolean | readonly string[] | ((address: string) => boolean),
): Trust {
  const wrong = Array.isArray(trust) ? trust.map(checkRange).find(Boolean) : undefined;
  if (wrong !== undefined) throw badOption("trustProxy", wrong);
  return compileTrust(trust) ?? (() => false);
}
