/** Hosts on Node with somebody else in their process: wrappers of prototypes, keepers of chunks, listeners. */
import { pathToFileURL } from "node:url";
import type { HostName } from "../_host.ts";
import { hostFile } from "../_node.ts";

export const VARIANTS = ["wrapped", "wrapped-late"] as const;
/** When the prototypes are wrapped: before the proxy is loaded, or after. */
export type Variant = (typeof VARIANTS)[number];

export const WRAPPABLE: readonly HostName[] = ["node", "slow", "srvx", "h3", "hono"];

/** Flags of Node. The seed decides what is wrapped. */
export function variantFlags(variant: Variant | undefined, seed: number): string[] {
  if (variant === undefined) return [];
  const url = pathToFileURL(hostFile("storm/wrap"));
  url.searchParams.set("seed", String(seed));
  if (variant === "wrapped-late") url.searchParams.set("late", "");
  return ["--import", url.href];
}
