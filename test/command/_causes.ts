/**
 * A program for every runtime with real sockets. It sends requests to upstreams that fail in different ways, and prints as
 * JSON the text that the command would print about each failure.
 */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { createServer as createTlsServer } from "node:tls";
import { createProxy, type CreateProxyOptions, type RequestEnd } from "#fetchway";
import { diagnoseFailure, renderFailure } from "../../command/log/causes.ts";
import { makeCertificate } from "../helpers/certificate.ts";

const HOUR = 3_600_000;
const good = await makeCertificate();
const expired = await makeCertificate(-2 * HOUR);
const names = new Map<number, string>();

async function listen(name: string, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  names.set(port, name);
  return port;
}

/** Starts a server that calls `answer` with each connection when its first bytes have arrived. */
function answering(name: string, answer: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => {
    socket.on("error", () => {}).once("data", () => answer(socket));
  });
  return listen(name, server);
}

function withTls(name: string, options: object): Promise<number> {
  const server = createTlsServer(options, (socket) => socket.on("error", () => {}));
  return listen(
    name,
    server.on("tlsClientError", () => {}),
  );
}

const closed = createServer();
const dead = await listen("DEAD", closed);
closed.close();
const http = await listen(
  "HTTP",
  createHttpServer((_, res) => res.end("ok")),
);
const silent = await answering("SILENT", () => {});
const signed = await withTls("TLS", good);
const tls = { ca: good.cert };
const client = { ...good, ca: good.cert, requestCert: true, rejectUnauthorized: true };

const cases: Record<string, CreateProxyOptions> = {
  refused: { target: `http://127.0.0.1:${dead}` },
  "refused by name": { target: `http://localhost:${dead}` },
  "no socket": { target: `unix:${join(tmpdir(), "no-such.sock")}` },
  "no such name": { target: "http://no-such-host.invalid" },
  "self-signed": { target: `https://127.0.0.1:${signed}` },
  expired: {
    target: {
      url: `https://127.0.0.1:${await withTls("OLD", expired)}`,
      tls: { ca: expired.cert },
    },
  },
  "another name": {
    target: { url: `https://127.0.0.1:${signed}`, tls: { ...tls, servername: "other.test" } },
  },
  "TLS to plain HTTP": { target: `https://127.0.0.1:${http}` },
  "a silent TLS server": { target: `https://127.0.0.1:${silent}`, connectTimeout: 50 },
  "client certificate": {
    target: { url: `https://localhost:${await withTls("MTLS", client)}`, tls },
  },
  "closed at once": {
    target: `http://127.0.0.1:${await answering("CLOSER", (socket) => socket.end())}`,
  },
  reset: {
    target: `http://127.0.0.1:${await answering("RESETTER", (socket) => socket.resetAndDestroy())}`,
  },
  "no response": { target: `http://127.0.0.1:${silent}`, timeout: 50 },
  "silent connection": { target: `http://127.0.0.1:${silent}`, pool: { timeout: 50 } },
  "not HTTP": {
    target: `http://127.0.0.1:${await answering("SSH", (socket) => socket.end("SSH-2.0\r\n"))}`,
  },
  "not HTTP/2": { target: `http://127.0.0.1:${http}`, pool: { http2: true } },
  "long head": {
    target: `http://127.0.0.1:${await answering("LONG", (socket) =>
      socket.end(`HTTP/1.1 200 OK\r\nx: ${"x".repeat(99_999)}\r\n\r\n`),
    )}`,
  },
  "long body": { target: `http://127.0.0.1:${http}`, bodyLimit: 1 },
  "a hook throws": {
    target: `http://127.0.0.1:${http}`,
    onRequest() {
      throw new RangeError("no such\nuser");
    },
  },
  "response cut": {
    target: `http://127.0.0.1:${await answering("CUT", (socket) =>
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"),
    )}`,
  },
};

const failures: Record<string, string> = {};
for (const [name, options] of Object.entries(cases)) {
  const ended = new Promise<RequestEnd>((resolve) => {
    const proxy = createProxy({ ...options, onRequestEnd: resolve });
    const request = new Request("http://proxy.test/a", { method: "PUT", body: "hello" });
    // The response fails as well, but only `onRequestEnd` reports the cause.
    proxy
      .fetch(request)
      .then((response) => response.text())
      .catch(() => {});
  });
  const { error, upstream } = await ended;
  failures[name] = renderFailure(diagnoseFailure(error, upstream))
    .replaceAll(/:(\d+)\b/g, (all, port: string) => {
      const known = names.get(Number(port));
      return known === undefined ? all : `:${known}`;
    })
    .replace(tmpdir(), "/tmp");
}
console.log(JSON.stringify(failures));
process.exit(0);
