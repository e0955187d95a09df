import type { RequirementId } from "./requirements.ts";

/**
 * Marks the test around it as one of these requirements of RFCs. It does nothing: docs/conformance.md, which is made
 * of the sources of the tests, names the test with each of them.
 */
export function rfc(..._ids: readonly [RequirementId, ...RequirementId[]]): void {
  // Nothing has to be done: the call itself is what is looked for.
}
