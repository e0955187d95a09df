/**
 * A program for Node, Bun and Deno. It makes requests fail in different ways. For each failure, it prints as JSON what
 * `explainError` returns, and the texts that a client sees, or would see if an app sent it the error.
 */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { createServer as createTlsServer } from "node:tls";
import {
  createProxy,
  type CreateProxyOptions,
  type Proxy,
  ProxyError,
  type RequestEnd,
} from "#fetchway";
import { explainError } from "#fetchway/errors";
import { balance } from "#fetchway/upstreams";
import { makeCertificate } from "../helpers/certificate.ts";
import { until } from "../helpers/wait.ts";

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

/** A target whose two upstreams the active checks find down. */
const down = balance([`http://127.0.0.1:${dead}`, `http://127.0.0.1:${silent}`], {
  check: { path: "/", interval: 10, timeout: 1_000, unhealthyThreshold: 1 },
});
createProxy({ target: down });
await until(() => down.states().every(({ state }) => state === "down"), "both to be down");

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
  "plain HTTP to TLS": { target: `http://127.0.0.1:${signed}` },
  "a TLS alert": {
    target: `http://127.0.0.1:${await answering("ALERT", (socket) => socket.end("\x15\x03\x01\0\x02\x02\x46", "latin1"))}`,
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
  "HTTP/2 only": {
    target: `http://127.0.0.1:${await answering("H2", (socket) => socket.end("\0\0\0\x04\0\0\0\0\0", "latin1"))}`,
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
  "every upstream down": { target: down },
  "the second upstream refused as well": {
    target: balance([`http://127.0.0.1:${dead}`, `http://localhost:${dead}`]),
  },
  redirected: {
    target: `http://127.0.0.1:${await answering("MOVED", (socket) => socket.end(`HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:${dead}/\r\ncontent-length: 0\r\n\r\n`))}`,
    followRedirects: true,
    redirectTargets: "any",
  },
  "an app throws": {
    target: {
      fetch() {
        throw new RangeError("no such user");
      },
    },
  },
  "fetch refused": { target: `http://127.0.0.1:${dead}`, fetch: (url, init) => fetch(url, init) },
  "fetch cut": {
    target: `http://127.0.0.1:${await answering("CUT2", (socket) =>
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"),
    )}`,
    fetch: (url, init) => fetch(url, init),
  },
};

/** Replaces what differs between runs: ports by the names of their servers, and the folder for temporary files by /tmp. */
function generalize(text: string): string {
  return text
    .replaceAll(/:(\d+)\b/g, (all, port: string) => {
      const known = names.get(Number(port));
      return known === undefined ? all : `:${known}`;
    })
    .replace(tmpdir(), "/tmp");
}

/** Returns all texts of an error that an app could send to a client. */
function show(error: Error): string {
  return [
    error.message,
    String(error),
    JSON.stringify(error),
    JSON.stringify(Object.entries(error)),
  ].join();
}

interface Failure {
  /** What `explainError` returns for the error that `onRequestEnd` reports. */
  readonly explained: string;
  /** What `explainError` returns for the error that `onError` gets in another proxy; undefined if `onError` did not run. */
  readonly hooked: string | undefined;
  /** The header fields and body that the client gets, and the texts of the errors that an app could send. */
  readonly shown: string;
}

async function failWith(options: CreateProxyOptions): Promise<Failure> {
  let shown = "";
  let hooked: string | undefined;
  const send = async (proxy: Pick<Proxy, "fetch">): Promise<void> => {
    const request = new Request("http://proxy.test/a", { method: "PUT", body: "hello" });
    try {
      const response = await proxy.fetch(request);
      shown += JSON.stringify([...response.headers]);
      shown += await response.text();
    } catch (error) {
      // The body of a response that was cut fails with the error that `onRequestEnd` reports; on Bun, with undefined.
      shown += error instanceof ProxyError ? show(error) : "";
    }
  };
  const onError = (error: ProxyError): void => {
    hooked = generalize(explainError(error));
    shown += show(error);
  };
  await send(createProxy({ ...options, onError }));
  const ended = new Promise<RequestEnd>((resolve) => {
    void send(createProxy({ ...options, onRequestEnd: resolve }));
  });
  const { error } = await ended;
  return { explained: generalize(explainError(error)), hooked, shown: generalize(shown) };
}

const failures: Record<string, Failure> = {};
for (const [name, options] of Object.entries(cases)) failures[name] = await failWith(options);
console.log(JSON.stringify(failures));
process.exit(0);
