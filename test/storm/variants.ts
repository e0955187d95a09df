/**
 * Variants of the hosts on Node in which other code runs in the process: it wraps prototypes, keeps chunks and adds
 * listeners.
 */
import { pathToFileURL } from "node:url";
import { hostFile } from "../hosts/_node.ts";

export const VARIANTS = ["wrapped", "wrapped-late"] as const;
/** Whether the prototypes are wrapped before the proxy is loaded, or after (`-late`). */
export type Variant = (typeof VARIANTS)[number];

/** Returns the flags of Node for a variant. The seed decides which methods are wrapped. */
export function variantFlags(variant: Variant | undefined, seed: number): string[] {
  if (variant === undefined) return [];
  const url = pathToFileURL(hostFile("storm/wrap"));
  url.searchParams.set("seed", String(seed));
  if (variant === "wrapped-late") url.searchParams.set("late", "");
  return ["--import", url.href];
}
