/** The upstream: 20 MB at `/big`, uploads, polls without an answer, event streams, and a short answer for all other paths. */
import { createServer, type ServerResponse } from "node:http";
import process from "node:process";

const CHUNK = Buffer.alloc(1 << 20, "b");
const CHUNKS = 20;

function sendLarge(res: ServerResponse): void {
  res.writeHead(200, { "content-length": CHUNKS * CHUNK.length });
  let sent = 0;
  const go = (): void => {
    while (sent < CHUNKS) {
      sent++;
      if (!res.write(CHUNK)) return void res.once("drain", go);
    }
    res.end();
  };
  go();
}

function sendEvents(res: ServerResponse): void {
  // The last field makes nginx forward each event without buffering.
  res.writeHead(200, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
  res.write("data: 0\n\n");
  const timer = setInterval(() => res.write("data: 1\n\n"), 1000);
  res.on("close", () => clearInterval(timer));
}

const server = createServer((req, res) => {
  switch (req.url ?? "") {
    case "/big":
      return sendLarge(res);
    case "/upload":
      return void req.resume().on("end", () => res.end("all"));
    case "/poll":
      return;
    case "/events":
      return sendEvents(res);
    default:
      res.end("small");
  }
});
server.keepAliveTimeout = 60_000;
server.requestTimeout = 0;
server.listen({ port: Number(process.env["PORT"]), host: "127.0.0.1", backlog: 4096 });
process.stdin.resume().on("end", () => process.exit());
