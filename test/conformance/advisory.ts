/**
 * Marks the test that calls it as a test of these advisories. A test needs this call only if its title does not name
 * them. The call itself does nothing: the table in SECURITY.md is generated from the sources of the tests.
 */
export function advisory(..._ids: readonly [string, ...string[]]): void {
  // The function is empty, because only its calls in the sources matter.
}
