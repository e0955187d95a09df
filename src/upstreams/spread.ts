import { object } from "../schema/kinds.ts";
import type { Kind } from "../schema/schema.ts";
import { first } from "./first.ts";
import { leastConnections } from "./leastconnections.ts";
import { peakEwma } from "./peakewma.ts";
import { type Chance, type Policy, realChance } from "./policy.ts";
import { roundRobin } from "./roundrobin.ts";

/** The names of the policies whose choice depends on the upstreams only, not on the request. */
export type SpreadName = "least_conn" | "peak_ewma" | "round_robin" | "first";

export const SPREADS: Readonly<Record<SpreadName, (chance: Chance) => Policy>> = {
  least_conn: leastConnections,
  peak_ewma: peakEwma,
  round_robin: roundRobin,
  first,
};

export function isPolicy(value: unknown): value is Policy {
  return typeof (value as Partial<Policy> | null)?.pick === "function";
}

/** The kind of the option `next`: the policy for requests that another policy does not decide, or its name. */
export const next: Kind<SpreadName | Policy> = object(
  (value) => (typeof value === "string" ? Object.hasOwn(SPREADS, value) : isPolicy(value)),
  `use ${Object.keys(SPREADS).join(", ")}, or a policy`,
);

/** Returns the policy that an option `next` names or contains. */
export function toPolicy(
  given: SpreadName | Policy = "least_conn",
  chance: Chance = realChance,
): Policy {
  return typeof given === "string" ? SPREADS[given](chance) : given;
}
