/** One of several upstreams. A request for `/fault/<name>` makes it fail from then on. */
import { createServer } from "node:http";
import type { Socket } from "node:net";

export const FAULTS = ["none", "killed", "hangs", "slow", "500", "flaps"] as const;
export type Fault = (typeof FAULTS)[number];

const FAULT_PATH = "/fault/";

function serve(): void {
  let fault: Fault = "none";
  let requests = 0;
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => {
    const { url = "" } = req;
    if (url.startsWith(FAULT_PATH)) {
      fault = url.slice(FAULT_PATH.length) as Fault;
      if (fault !== "killed") return void res.end();
      server.close();
      for (const socket of sockets) socket.destroy();
      return;
    }
    requests++;
    if (fault === "hangs") return;
    if (fault === "flaps" && requests % 2 === 0) return void req.socket.destroy();
    const respond = (): void =>
      void res.writeHead(fault === "500" ? 500 : 200).end("x".repeat(100));
    if (fault === "slow") setTimeout(respond, 2_000);
    else respond();
  });
  server.keepAliveTimeout = 60_000;
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => {});
  });
  server.listen(Number(process.env["PORT"]), "127.0.0.1");
  process.stdin.resume().on("end", () => process.exit());
}

if (import.meta.main) serve();
