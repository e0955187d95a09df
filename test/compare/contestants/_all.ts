/**
 * The registry of the contestants. No contestant's module imports the package of its proxy, so a missing package fails only
 * the contestant that needs it.
 */
import type { Contestant } from "../contestant.ts";
import { caddy } from "./caddy.ts";
import { go } from "./go.ts";
import { haproxy } from "./haproxy.ts";
import { nginx } from "./nginx.ts";
import { npm } from "./npm.ts";

export const contestants: readonly Contestant[] = [nginx, haproxy, caddy, go, ...npm];
