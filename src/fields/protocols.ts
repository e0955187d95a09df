import { getHeaders, type HeaderList, trimOws } from "./headers.ts";

/**
 * Returns the first protocol in the value of an `Upgrade` field that is in `carried`. For `name/version`, `carried` may also
 * contain `name` alone; the result is then `name`.
 */
export function chooseProtocol(upgrade: string, carried: readonly string[]): string | undefined {
  for (const offer of upgrade.toLowerCase().split(",")) {
    const protocol = trimOws(offer);
    if (carried.includes(protocol)) return protocol;
    const name = trimOws(protocol.split("/", 1)[0] as string);
    if (carried.includes(name)) return name;
  }
  return undefined;
}

/** Whether `Connection` names the option `upgrade`. */
export function nominatesUpgrade(headers: HeaderList): boolean {
  const options = getHeaders(headers, "connection").join().toLowerCase().split(",");
  return options.some((option) => trimOws(option) === "upgrade");
}
