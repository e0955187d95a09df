import * as ours from "#fetchway";
import type { Serving } from "../helpers/serve.ts";
import type { Setup } from "./_setups.ts";

/**
 * Makes a proxy of a setup handle the upgrades of a Node server.
 * @param entry the entry under test; by default, `fetchway/node`
 * @returns the server's port
 */
export function attach(
  { target, options }: Setup,
  { port, server }: Serving,
  { createProxy }: Pick<typeof ours, "createProxy"> = ours,
): number {
  createProxy({ target, ...options }).attach(server);
  return port;
}
