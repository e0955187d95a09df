/** Converts between WebSockets over HTTP/1.1 and over HTTP/2 (RFC 8441), because WebSocket libraries support only HTTP/1.1. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { Duplex } from "node:stream";
import { within } from "./wait.ts";

/** The fields with which a client asks for a WebSocket over HTTP/2. */
export const extended = {
  ":method": "CONNECT",
  ":protocol": "websocket",
  ":path": "/",
  "sec-websocket-version": "13",
} as const;

/** Opens a session, and waits for the settings of the server, which say whether the server accepts WebSockets. */
export async function connectTo(origin: string, ca: string): Promise<ClientHttp2Session> {
  const session = connect(origin, { ca });
  await within(once(session, "remoteSettings"), "the settings");
  return session;
}

/** Asks for a WebSocket over HTTP/2. */
export function ask(
  session: ClientHttp2Session,
  fields: IncomingHttpHeaders = {},
): ClientHttp2Stream {
  const stream = session.request({ ...extended, ...fields }, { endStream: false });
  return stream.on("error", () => {});
}

/** Resolves to the head of the answer. */
export async function headOf(stream: ClientHttp2Stream): Promise<IncomingHttpHeaders> {
  const [head] = (await within(once(stream, "response"), "the response")) as [IncomingHttpHeaders];
  return head;
}

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const OF_HTTP1 = /^(?::.*|host|connection|upgrade|sec-websocket-(?:key|accept))$/;

function withoutHttp1(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_HTTP1.test(name)));
}

/** Connects an HTTP/2 stream and an HTTP/1.1 connection in both directions. */
function join(stream: ClientHttp2Stream | ServerHttp2Stream, socket: Duplex): void {
  stream.on("close", () => {
    if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) socket.destroy();
  });
  socket.on("close", () => {
    if (!socket.readableEnded) stream.close(constants.NGHTTP2_CANCEL);
  });
  stream.pipe(socket).pipe(stream);
}

/** Returns an HTTP/1.1 server that opens each WebSocket of its clients on a stream of an HTTP/2 session. */
export function bridgeTo(session: () => ClientHttp2Session): Server {
  const server = createServer();
  server.on("upgrade", ({ url, headers }: IncomingMessage, socket, head: Buffer) => {
    const fields = { ...withoutHttp1(headers), ...extended, ":path": url };
    const stream = session().request(fields, { endStream: false });
    stream.on("error", () => socket.destroy());
    socket.on("error", () => {});
    stream.on("response", ({ ":status": status, ...answer }) => {
      const key = `${headers["sec-websocket-key"]}${GUID}`;
      const accept = createHash("sha1").update(key).digest("base64");
      const lines =
        status === 200
          ? `101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}`
          : `${status} Refused\r\nConnection: close`;
      const others = Object.entries(answer).map(([name, value]) => `${name}: ${String(value)}\r\n`);
      socket.write(`HTTP/1.1 ${lines}\r\n${others.join("")}\r\n`);
      stream.write(head);
      join(stream, socket);
    });
  });
  return server;
}

/** Connects a WebSocket over HTTP/2 to an HTTP/1.1 server, so that a test's HTTP/2 upstream need not serve it itself. */
export function bridgeFrom(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  target: string,
): void {
  const fields = withoutHttp1(headers);
  const key = Buffer.alloc(16).toString("base64");
  const own = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-key": key };
  const sent = request(target + (headers[":path"] ?? ""), { headers: { ...fields, ...own } });
  stream.on("error", () => {});
  sent.on("error", () => stream.close(constants.NGHTTP2_CONNECT_ERROR));
  sent.on("upgrade", (answer, socket, head) => {
    socket.on("error", () => {});
    stream.respond({ ":status": 200, ...withoutHttp1(answer.headers) });
    stream.write(head);
    join(stream, socket);
  });
  sent.end();
}
