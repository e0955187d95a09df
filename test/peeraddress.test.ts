import { expect, test } from "vitest";
import { unmapAddress } from "../src/request/peeraddress.ts";

test.each([
  ["::ffff:192.0.2.7", "192.0.2.7"],
  ["192.0.2.7", "192.0.2.7"],
  ["2001:db8::7", "2001:db8::7"],
  // The same address as the first, but no runtime writes a peer's address this way.
  ["::ffff:c000:207", "::ffff:c000:207"],
  ["", ""],
])("the address of a peer that is shown as %j is %j", (shown, address) => {
  expect(unmapAddress(shown)).toBe(address);
});
