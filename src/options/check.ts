import { badOption } from "../misuse.ts";
import { assertOptions, type Explain, isRecord } from "../schema/schema.ts";
import { findFix } from "./foreign.ts";
import type { PoolOptions } from "./pooloptions.ts";
import { type ProxyOptions, proxySchema } from "./proxyoptions.ts";

/**
 * Checks that every option of a proxy exists and has a value of the right kind.
 * @param explain explains further names; it takes precedence over the core's own explanations
 * @throws TypeError that names the option and the fix
 */
export function checkOptions(options: ProxyOptions, explain?: Explain): void {
  if (!isRecord(options)) {
    throw new TypeError("fetchway: options must be an object such as { timeout: 5000 }");
  }
  assertOptions(options, proxySchema, (name, value) => explain?.(name, value) ?? findFix(name));
}

/**
 * Refuses the options of a pool for a transport whose connections belong to the runtime, because the options would have no
 * effect. Only `connectTimeout` is accepted, because it is an option of a proxy as well.
 * @param whose the part of the message that says whose the connections are
 * @throws TypeError that names the option and the fix
 */
export function refusePoolOptions(options: PoolOptions, whose: string): void {
  const { connectTimeout, ...refused } = options;
  for (const [name, value] of Object.entries(refused)) {
    if (value !== undefined) throw badOption(name, `${whose}; leave it out`);
  }
  if (connectTimeout !== undefined) checkOptions({ connectTimeout });
}
