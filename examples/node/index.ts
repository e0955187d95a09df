/**
 * Runs a server of `node:http` that forwards all requests to an upstream:
 *
 *     node index.ts
 */
import { createServer } from "node:http";
import { createProxy } from "fetchway";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });
const server = createServer(proxy.nodeHandler);
server.listen(3000, () => console.log("http://127.0.0.1:3000/"));

process.once("SIGTERM", () => {
  server.close(); // The server accepts no more connections.
  void proxy.close(10_000); // Running requests have 10 s to finish.
});
