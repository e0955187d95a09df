import { createServer } from "node:http";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { ClientConnections, groupOf } from "../runtimes/cli/clientconnections.ts";
import { listen } from "./_serve.ts";
import { until } from "./_wait.ts";

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

test("pipelined requests whose client disconnects are forgotten", async () => {
  let count = 0;
  const server = createServer(() => void count++);
  const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };
  const connections = new ClientConnections(server, unlimited, () => {});
  const client = connect(await listen(server), "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
  await until(() => count === 3, "the requests");
  expect(connections.running.size).toBe(3);
  client.destroy();
  await until(() => connections.all.size === 0, "the end");
  await until(() => connections.running.size === 0, "the end of the requests", 2_000);
  server.close();
});
