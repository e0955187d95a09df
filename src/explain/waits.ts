import type { WaitChange } from "../options/observationoptions.ts";
import { escapeControls } from "./printable.ts";

/**
 * Describes in one line what requests wait for, or how the wait ended.
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { describeWait } from "fetchway/errors";
 *
 * // requests wait for http://127.0.0.1:4000 (connection refused)
 * // http://127.0.0.1:4000 is back after 2.1 s; 35 requests have waited
 * createProxy({ target, wait: 15_000, onWait: (change) => console.log(describeWait(change)) });
 * ```
 */
export function describeWait({ upstream, state, reason, requests, duration }: WaitChange): string {
  const name = escapeControls(upstream);
  if (state === "waiting") return `requests wait for ${name} (${reason})`;
  const time = `${(duration / 1000).toFixed(1)} s`;
  const have = requests === 1 ? "1 request has" : `${requests} requests have`;
  if (state === "back") return `${name} is back after ${time}; ${have} waited`;
  return `no request waits for ${name} any longer (${reason}); ${have} waited in ${time}`;
}
