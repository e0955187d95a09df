import { LOOPBACK } from "../serve/loopback.ts";

/** The address of the status page: the value of `--admin`. */
export interface AdminAddress {
  readonly host: string;
  readonly port: number;
}

/** Parses `9100`, `host:9100` or `[::1]:9100`. Without a host, the address is that of the loopback interface. */
export function parseAdminAddress(text: string | number): AdminAddress | undefined {
  const [, host = LOOPBACK, digits] =
    /^(?:(\[[\da-f:.]+\]|[^:/[\]\s]+):)?(\d{1,5})$/i.exec(String(text)) ?? [];
  const port = Number(digits);
  return port <= 65_535 ? { host: host.replace(/^\[|\]$/g, ""), port } : undefined;
}
