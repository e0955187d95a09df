/** Fetchway with many upstream origins: does a request cost more when there are more origins? */
import { fileURLToPath } from "node:url";
import type { Contestant } from "./contestants.ts";

/**
 * Creates a contestant that distributes its requests over `count` origins, which are addresses of one upstream process.
 */
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
