/** The upstreams of a soak: most of their answers are ordinary, and a path asks for each fault. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttp2 } from "node:http2";
import type { AddressInfo, Server } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { acceptOf } from "./_handshake.ts";

export const LARGE: Buffer = Buffer.alloc(1024 * 1024, "x");

/** Answers a request; the first part of the path says how. */
function answer(req: IncomingMessage, res: ServerResponse): void {
  let timer: ReturnType<typeof setInterval> | undefined;
  req.on("error", () => {});
  res.on("error", () => {});
  switch (req.url?.split("/")[1] ?? "") {
    case "error":
      req.resume();
      return void res.writeHead(500).end("failed");
    case "reset":
      return void req.socket.destroy();
    case "garbage":
      return void req.socket.end("garbage\r\n\r\n");
    case "cut":
      res.writeHead(200, { "content-length": 1000 }).write("half");
      return void setTimeout(() => req.socket.destroy(), 5);
    case "late":
      return void setTimeout(() => res.end("late"), 500);
    case "large":
      return void res.end(LARGE);
    case "events":
      res.writeHead(200, { "content-type": "text/event-stream" }).write("data: first\n\n");
      timer = setInterval(() => res.write("data: next\n\n"), 200);
      return void res.on("close", () => clearInterval(timer));
    case "unread":
      // Answer without reading the request's body.
      return void res.end("unread");
    default:
      req.resume().on("end", () => res.end("hello"));
  }
}

/** Switches to a WebSocket that behaves as the path says, or answers 403 if the path names no way. */
function upgrade(req: IncomingMessage, socket: Duplex, head: Buffer, echo: WebSocketServer): void {
  socket.on("error", () => {});
  const how = req.url?.split("/")[2];
  if (how === undefined) return void socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  if (how === "echo") {
    return echo.handleUpgrade(req, socket, head, (webSocket) => {
      webSocket.on("error", () => {}).on("message", (data) => webSocket.send(data));
    });
  }
  socket.write(acceptOf(req.headers["sec-websocket-key"] ?? ""));
  if (how === "ends") return void socket.end(Buffer.from([0x82, 1, 0]));
  if (how === "resets") return void setTimeout(() => socket.destroy(), 20);
  // A hung upstream: it neither reads nor closes, until the proxy closes.
  socket.pause();
}

async function listen(server: Server): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Starts two HTTP/1.1 upstreams and two HTTP/2 upstreams, and returns their origins. */
export async function startUpstreams(): Promise<{ http1: string[]; http2: string[] }> {
  const echo = new WebSocketServer({ noServer: true });
  const servers = [0, 1].map(() => {
    const server = createServer(answer);
    server.on("upgrade", (req, socket, head) => upgrade(req, socket, head, echo));
    return server.on("clientError", (_, socket) => socket.destroy());
  });
  const [http1, http2] = await Promise.all([
    Promise.all(servers.map(listen)),
    Promise.all([listen(serveHttp2()), listen(serveHttp2())]),
  ]);
  return { http1, http2 };
}

function serveHttp2(): Server {
  const server = createHttp2().on("sessionError", () => {});
  return server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    const how = headers[":path"]?.split("/")[2];
    if (how === "reset") return stream.close(2);
    if (how === "lost") return stream.session?.destroy();
    stream.respond({ ":status": how === "error" ? 500 : 200 });
    stream.resume().end("hello");
  });
}
