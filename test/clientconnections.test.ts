import { describe, expect, test } from "vitest";
import { groupOf } from "../runtimes/cli/clientconnections.ts";

describe("the limit for each address counts", () => {
  test.each([
    ["127.0.0.1", "127.0.0.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:db8::1:2:3:4:5", "2001:db8:0:1::/64"],
    ["::1", "0:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["", ""],
  ])("%s as %s", (address, group) => {
    expect(groupOf(address)).toBe(group);
  });
});
