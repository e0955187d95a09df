/** Small forward proxies: an HTTP proxy, which supports CONNECT and absolute-form targets, and a SOCKS5 proxy. */
import { once } from "node:events";
import { createServer as createHttpServer, request } from "node:http";
import { connect, createServer, type Server, type Socket } from "node:net";
import { listen } from "../../helpers/serve.ts";

/** A forward proxy, and the requests that it has received. */
export interface Forwarder {
  readonly port: number;
  /** The method and target of each HTTP request, or the address of each SOCKS request. */
  readonly asked: string[];
  close(): void;
}

async function start(server: Server, asked: string[]): Promise<Forwarder> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  });
  return {
    port: await listen(server),
    asked,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function join(a: Socket, b: Socket): void {
  a.on("error", () => b.destroy()).pipe(b);
  b.on("error", () => a.destroy()).pipe(a);
}

/**
 * Starts an HTTP forward proxy.
 * @param refuses whether the proxy answers every request with 407
 */
export function startHttpForwarder(refuses: boolean = false): Promise<Forwarder> {
  const asked: string[] = [];
  const server = createHttpServer((req, res) => {
    asked.push(`${req.method} ${req.url}`);
    if (refuses) return void res.writeHead(407).end("who are you?");
    const { rawHeaders: headers, method = "GET", url = "" } = req;
    req.pipe(
      request(url, { method, headers }, (answer) => {
        res.writeHead(answer.statusCode ?? 500, answer.rawHeaders);
        answer.pipe(res);
      }),
    );
  });
  server.on("connect", (req, socket: Socket, head) => {
    asked.push(`CONNECT ${req.url}`);
    if (refuses) return void socket.end("HTTP/1.1 407 Who Are You\r\nContent-Length: 0\r\n\r\n");
    const { hostname, port } = new URL(`http://${req.url}`);
    const upstream = connect(Number(port), hostname, () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      upstream.write(head);
      join(socket, upstream);
    });
  });
  return start(server, asked);
}

/** Starts a SOCKS5 proxy (RFC 1928) without authentication, for IPv4 addresses and names. */
export function startSocksForwarder(): Promise<Forwarder> {
  const asked: string[] = [];
  const read = async (socket: Socket): Promise<Buffer> =>
    ((await once(socket, "data")) as [Buffer])[0];
  const serve = async (socket: Socket): Promise<void> => {
    await read(socket);
    socket.write(Buffer.of(5, 0));
    const bytes = await read(socket);
    const isName = bytes[3] === 3;
    const end = isName ? 5 + (bytes[4] as number) : 8;
    const host = isName ? bytes.toString("latin1", 5, end) : bytes.subarray(4, end).join(".");
    const port = bytes.readUInt16BE(end);
    asked.push(`${host}:${port}`);
    const upstream = connect(port, host, () => {
      socket.write(Buffer.of(5, 0, 0, 1, 0, 0, 0, 0, 0, 0));
      join(socket, upstream);
    });
  };
  const server = createServer((socket) => void serve(socket).catch(() => socket.destroy()));
  return start(server, asked);
}
