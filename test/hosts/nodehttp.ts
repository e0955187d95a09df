/** A server of `node:http` with the entry for Node. Bun and Deno run it as well, because they implement `node:http`. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { createProxy } from "../../runtimes/node.ts";

const upgrades = ["websocket", "tcp"];
const proxy = createProxy({ target: process.env["UPSTREAM"] ?? "", upgrades });
const server = createServer(proxy.nodeHandler);
proxy.attach(server);
server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ default: (server.address() as AddressInfo).port }));
});
// The parent holds stdin open, so this process ends with it.
process.stdin.resume().on("end", () => process.exit());
