/** A server of `node:http` with the entry for Node. Only Bun and Deno run it, because they implement `node:http` as well. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { createProxy } from "../../runtimes/node.ts";

const upgrades = ["websocket", "tcp"];
const proxy = createProxy({ target: process.env["UPSTREAM"] ?? "", upgrades });
const server = createServer(proxy.nodeHandler);
proxy.attach(server);
// An app whose routes get the upgrades, and pass them to `proxy`. The proxy that is attached to the app has a dead target: it
// must not forward any of them.
const routed = createServer((req, res) => {
  res.setHeader("X-By", "app");
  if (req.url === "/refused") res.writeHead(401).end("no entry");
  else if (req.url !== "/never") proxy.nodeHandler(req, res);
});
createProxy({ target: "http://127.0.0.1:1", timeout: 2_000, upgrades }).attach(routed, {
  routes: true,
});
server.listen(0, "127.0.0.1", () => {
  routed.listen(0, "127.0.0.1", () => {
    const ports = [server, routed].map((each) => (each.address() as AddressInfo).port);
    console.log(JSON.stringify({ default: ports[0], routes: ports[1] }));
  });
});
// The parent holds stdin open, so this process ends when its parent ends.
process.stdin.resume().on("end", () => process.exit());
