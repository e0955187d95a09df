/** The upstream of `npm run test:deploy`, which runs in a container: it echoes bodies and messages, and sends event streams. */
import { createServer } from "node:http";
import { WebSocketServer } from "ws";
import { EVENT_INTERVAL, eventOf } from "./_events.ts";

const server = createServer((req, res) => {
  const { pathname, searchParams } = new URL(req.url ?? "", "http://upstream");
  if (req.method === "POST") {
    req.pipe(res);
    return;
  }
  if (pathname !== "/events") {
    res.end(req.url);
    return;
  }
  res.writeHead(200, { "content-type": "text/event-stream" });
  const last = Number(searchParams.get("count"));
  let count = 0;
  const timer = setInterval(() => {
    res.write(eventOf(count));
    if (++count === last) res.end();
  }, EVENT_INTERVAL);
  res.on("close", () => clearInterval(timer));
});
new WebSocketServer({ server }).on("connection", (socket) =>
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary })),
);
// This is longer than the proxy's own timeout for idle connections.
server.keepAliveTimeout = 120_000;
server.listen(4000);
