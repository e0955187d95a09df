/** The loopback interface, on machines with and without IPv4. */

/** The host on which servers listen by default. */
export const LOOPBACK = "127.0.0.1";

/**
 * Opens a server on a host. On a machine without `127.0.0.1`, `::1` takes its place.
 * @throws the error of `open`
 */
export async function openOn<T>(host: string, open: (host: string) => Promise<T>): Promise<T> {
  try {
    return await open(host);
  } catch (error) {
    if (host !== LOOPBACK || !isMissing(error)) throw error;
    return open("::1");
  }
}

/** Whether an error says that this machine does not have an address. */
function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "EADDRNOTAVAIL" || code === "EAFNOSUPPORT";
}

/**
 * Returns the origin at which a client on this machine reaches a server: a server that listens on all addresses is reached
 * by the loopback interface.
 */
export function nearOrigin(origin: string): string {
  const [ipv4, ipv6] = [nearHost("0.0.0.0"), nearHost("::")];
  return origin.replace("//0.0.0.0", `//${ipv4}`).replace("//[::]", `//[${ipv6}]`);
}

/** Returns the address at which this process reaches its own server, given the address on which the server listens. */
export function nearHost(address: string): string {
  if (address === "::") return "::1";
  return address === "0.0.0.0" ? LOOPBACK : address;
}

/** Returns the hosts to suggest for `--host` instead of one on which no server can listen. */
export function suggestHosts(failed: string): string {
  const [first, second] = [LOOPBACK, "0.0.0.0", "::"].filter((host) => host !== failed);
  return `${first} or ${second}`;
}
