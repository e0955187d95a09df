import type { RequirementId } from "./requirements.ts";

/**
 * Marks the test that calls it as a test of these requirements. The call itself does nothing: docs/conformance.md is
 * generated from the sources of the tests, and names the test with each of the requirements.
 */
export function rfc(..._ids: readonly [RequirementId, ...RequirementId[]]): void {
  // The function is empty, because only its calls in the sources matter.
}
