const MAPPED_IPV4 = "::ffff:";

/** Returns the IP address of a peer. An IPv4 address that a dual-stack socket shows as an IPv6 address becomes IPv4 again. */
export function unmapAddress(address: string): string {
  const isMapped = address.startsWith(MAPPED_IPV4) && address.includes(".");
  return isMapped ? address.slice(MAPPED_IPV4.length) : address;
}
