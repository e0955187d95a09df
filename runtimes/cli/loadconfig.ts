/** Reads the config file of the command. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Config } from "../config.ts";

/** Reads a config file. */
export async function readConfig(path: string): Promise<Config> {
  if (path.endsWith(".json")) return JSON.parse(readFileSync(path, "utf8")) as Config;
  const loaded = (await import(pathToFileURL(resolve(path)).href)) as { default?: Config };
  return loaded.default ?? {};
}
