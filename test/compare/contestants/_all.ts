/** The registry of the contestants. None imports the package of a proxy, so that one that is missing fails alone. */
import type { Contestant } from "../contestant.ts";
import { caddy } from "./caddy.ts";
import { go } from "./go.ts";
import { haproxy } from "./haproxy.ts";
import { nginx } from "./nginx.ts";
import { npm } from "./npm.ts";

export const contestants: readonly Contestant[] = [nginx, haproxy, caddy, go, ...npm];
