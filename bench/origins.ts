/** Fetchway before many upstreams: does a request cost more the more of them there are? */
import { fileURLToPath } from "node:url";
import type { Contestant } from "./contestants.ts";

/** A contestant that spreads its requests over so many origins, the target under as many addresses. */
export function origins(count: number): Contestant {
  const file = fileURLToPath(new URL("contestants/origins.ts", import.meta.url));
  return {
    name: `origins-${count}`,
    title: `Fetchway, ${count} origin${count === 1 ? "" : "s"}`,
    role: "fetchway",
    uses: [],
    command: () => [process.execPath, file, `${count}`],
  };
}
