/** HTTP/2 upstreams on Node, Bun and Deno: negotiation, sharing, retries and ends, in a server of each runtime. */
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { createServer as createHttps } from "node:https";
import { createSecureServer, createServer, type Http2Server } from "node:http2";
import { connect as connectTcp, createServer as createTcp, type Server } from "node:net";
import { Readable } from "node:stream";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { PoolOptions } from "../../../../src/options/pooloptions.ts";
import { rfc } from "../../../conformance/rfc.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import {
  DATA,
  END_STREAM,
  field,
  frame,
  GOAWAY,
  maxStreams,
  PING,
  PREFACE,
  RawUpstream,
  responseHead,
  RST_STREAM,
  SETTINGS,
  uint32,
  wholeResponse,
} from "../../../helpers/frames.ts";
import { askFor, type Front, runtimes, startFront } from "./_front.ts";
import { listen } from "../../../helpers/serve.ts";
import { pause, settled, until, within } from "../../../helpers/wait.ts";

const MIB = 1024 * 1024;
const certificate = await makeCertificate();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

describe.each(runtimes)("on %s", (runtime) => {
  let front: Front;
  beforeAll(async () => {
    front = await start();
  });
  afterAll(() => front.close());

  function start(pool: PoolOptions = {}): Promise<Front> {
    return startFront(runtime, { http2: true, tls: { ca: certificate.cert }, ...pool }, {});
  }

  /** Makes a server listen. @returns its port */
  function open(server: Server | Http2Server, port = 0, host = "127.0.0.1"): Promise<number> {
    closing.push(() => server.close());
    return listen(server, port, host);
  }

  async function raw(): Promise<[RawUpstream, string]> {
    const upstream = new RawUpstream();
    closing.push(() => upstream.close());
    return [upstream, await upstream.listen()];
  }

  async function ask(url: string, body?: string, via = front): Promise<string> {
    const client = await via.connect();
    if (body === undefined) client.send(askFor(url));
    else client.send(askFor(url, "POST", [`Content-Length: ${body.length}`]), body);
    const { status, text } = await client.read();
    return `${status} ${text}`;
  }

  const version = (req: { httpVersion: string }, res: { end(text: string): unknown }): void =>
    void res.end(req.httpVersion);

  test("TLS offers h2 and HTTP/1.1 with the server's name, and the upstream chooses HTTP/2", async () => {
    rfc("9113-3.2-alpn", "9113-9.2-tls");
    const offers: object[] = [];
    const ALPNCallback = (offer: object): string => (offers.push(offer), "h2");
    const server = createSecureServer({ ...certificate, ALPNCallback }, version as never);
    expect(await ask(`https://localhost:${await open(server)}`)).toBe("200 2.0");
    // `ALPNCallback` runs twice if the server has asked for another key share (RFC 8446 §4.1.4).
    const offer = { servername: "localhost", protocols: ["h2", "http/1.1"] };
    expect(offers).toEqual(offers.map(() => offer));
    expect(offers).not.toEqual([]);
  });

  test("an upstream that chooses HTTP/1.1 gets the requests on the same connection", async () => {
    const server = createHttps(certificate, version);
    let connections = 0;
    server.on("connection", () => connections++);
    const url = `https://127.0.0.1:${await open(server)}`;
    expect(await ask(url)).toBe("200 1.1");
    expect(await ask(url)).toBe("200 1.1");
    expect(connections).toBe(1);
  });

  test("RFC 9113 §9.2: an upstream that speaks TLS 1.1 at most is refused", async () => {
    rfc("9113-9.2-tls");
    const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" } as const;
    const server = createTlsServer({ ...certificate, ...old, ALPNProtocols: ["h2"] });
    server.on("tlsClientError", () => {});
    const port = await open(server);
    // The server works: a client that allows TLS 1.1 connects.
    const client = connectTls({ port, host: "localhost", ca: certificate.cert, ...old });
    await within(new Promise((resolve) => client.on("secureConnect", resolve)), "the handshake");
    expect(client.getProtocol()).toBe("TLSv1.1");
    client.destroy();
    expect(await ask(`https://localhost:${port}`)).toMatch(/^502 Bad Gateway: tls_/);
  });

  test("CVE-2026-1642: bytes that precede the upstream's TLS handshake become 502", async () => {
    const secure = createHttps(certificate, version);
    const port = await open(secure);
    const plain = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
    // An attacker on the network path sends a response, and then passes the upstream's bytes on.
    const attacker = createTcp((socket) => {
      const behind = connectTcp(port, "127.0.0.1");
      closing.push(() => (socket.destroy(), behind.destroy()));
      socket.on("error", () => {}).write(plain);
      behind.on("error", () => {});
      socket.pipe(behind).pipe(socket);
    });
    const url = `https://127.0.0.1:${await open(attacker)}`;
    for (const body of [undefined, "body"]) {
      expect(await ask(url, body)).toMatch(/^502 Bad Gateway: (?:tls_|connection_)/);
    }
  });

  test("RFC 9113 §9.1.1: a connection serves only hosts that its certificate is valid for", async () => {
    rfc("9113-9.1.1-certificate");
    const port = await open(createSecureServer(certificate, version as never));
    await open(createSecureServer(certificate, version as never), port, "127.0.0.2");
    expect(await ask(`https://127.0.0.1:${port}`)).toBe("200 2.0");
    // The certificate has the names localhost and 127.0.0.1.
    const other = await ask(`https://127.0.0.2:${port}`);
    expect(other).toBe("502 Bad Gateway: tls_certificate_error\n");
  });

  test("RFC 9113 §3.3: a connection to an `http:` URL begins with the preface of HTTP/2", async () => {
    rfc("9113-3.3-prior-knowledge");
    const [upstream, url] = await raw();
    expect(await ask(url)).toBe("200 whole");
    expect(upstream.connections.map(({ preface }) => preface)).toEqual([PREFACE]);
  });

  test("bodies of several megabytes pass in both directions", async () => {
    const server = createServer((req, res) => {
      const chunks: Buffer[] = [];
      req.on("data", (chunk: Buffer) => chunks.push(chunk));
      req.on("end", () => res.end(Buffer.concat(chunks)));
    });
    const body = "0123456789".repeat(300_000);
    expect(await ask(`http://127.0.0.1:${await open(server)}`, body)).toBe(`200 ${body}`);
  });

  test("a client's next request does not wait for END_STREAM of a response that has reached its Content-Length", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => {
      const [first, second] = ["who", "le"].map((text) => frame(DATA, 0, id, Buffer.from(text)));
      const beginning = [responseHead(id, false, field("content-length", "5")), first as Buffer];
      const rest = (): void => connection.send(second as Buffer);
      connection.send(...beginning);
      // The second response arrives in two reads.
      if (id === 3) setTimeout(rest, 50);
      else rest();
    };
    const client = await front.connect();
    for (let i = 0; i < 3; i++) {
      client.send(askFor(url));
      expect(await client.read()).toMatchObject({ status: 200, text: "whole", cut: false });
    }
  });

  test("requests share a connection up to the upstream's limit of streams", async () => {
    rfc("9113-5.1.2-concurrency");
    const [upstream, url] = await raw();
    upstream.settings = maxStreams(3);
    const held: (() => void)[] = [];
    upstream.script = (connection, id) => held.push(() => connection.send(wholeResponse(id)));
    const asked = Array.from({ length: 6 }, () => ask(url));
    await until(() => held.length === 6, "6 requests");
    expect(upstream.connections.map(({ streams }) => streams.length)).toEqual([3, 3]);
    for (const release of held) release();
    expect(await Promise.all(asked)).toEqual(Array(6).fill("200 whole"));
  });

  test("a client that does not read pauses only its own stream on the connection", async () => {
    rfc("9113-5.2-flow-control", "9113-9.1-one-connection");
    let sent = 0;
    let connections = 0;
    const server = createServer((req, res) => {
      if (req.url?.includes("fast")) return void res.end("fast");
      // Node's `http2` pauses this stream when the proxy's window is full.
      const source = Readable.from(
        (function* () {
          for (; sent < 256 * MIB; sent += MIB / 16) yield Buffer.alloc(MIB / 16);
        })(),
      );
      source.pipe(res);
      res.on("close", () => source.destroy());
    });
    server.on("connection", () => connections++);
    const url = `http://127.0.0.1:${await open(server)}`;
    const slow = await front.connect();
    slow.send(askFor(url));
    await slow.readHead();
    const before = await settled(() => sent);
    for (let i = 0; i < 3; i++) expect(await ask(`${url}?fast`)).toBe("200 fast");
    expect(connections).toBe(1);
    // The bytes are in the buffers of two sockets, in the window of the stream, and in the server's own buffers.
    expect(before).toBeLessThan(32 * MIB);
    slow.leave("RST");
  });

  test("an upstream with a window of 0 gets no bytes of an upload, and the uploading client is paused", async () => {
    rfc("9113-5.2-flow-control");
    const [upstream, url] = await raw();
    upstream.script = () => {};
    // SETTINGS_INITIAL_WINDOW_SIZE 0 (RFC 9113 §6.9.2).
    upstream.settings = frame(SETTINGS, 0, 0, Buffer.concat([Buffer.from([0, 4]), uint32(0)]));
    const client = await front.connect();
    client.send(askFor(url, "POST", [`Content-Length: ${256 * MIB}`]));
    let sent = 0;
    const write = (): void => {
      while (sent < 256 * MIB && client.socket.write(Buffer.alloc(MIB / 16))) sent += MIB / 16;
    };
    client.socket.on("drain", write);
    write();
    await until(() => upstream.requests === 1, "the request");
    // The bytes are in the buffers of the client's sockets, and of the proxy's stream.
    expect(await settled(() => sent)).toBeLessThan(32 * MIB);
    expect(upstream.connections.map((connection) => connection.has(DATA))).toEqual([false]);
    client.leave("RST");
  });

  test("a request whose stream the upstream refuses is sent again", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => {
      const isFirst = upstream.requests === 1;
      connection.send(isFirst ? frame(RST_STREAM, 0, id, uint32(7)) : wholeResponse(id));
    };
    expect(await ask(url)).toBe("200 whole");
    expect(upstream.requests).toBe(2);
  });

  test("a POST that GOAWAY may have processed is not sent again", async () => {
    rfc("9113-8.7-retry");
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => {
      connection.send(frame(GOAWAY, 0, 0, uint32(id, 2)));
      connection.socket.end();
    };
    expect(await ask(url, "body")).toBe("502 Bad Gateway: connection_terminated\n");
    expect(upstream.requests).toBe(1);
  });

  test("after a graceful GOAWAY, running requests finish, and later requests use a new connection", async () => {
    rfc("9113-6.8-no-new-streams");
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => {
      if (connection !== upstream.connections[0]) return connection.send(wholeResponse(id));
      connection.send(responseHead(id), frame(DATA, 0, id, Buffer.from("early, ")));
      connection.send(
        frame(GOAWAY, 0, 0, uint32(0x7fff_ffff, 0)),
        frame(PING, 0, 0, Buffer.alloc(8)),
      );
      return undefined;
    };
    const client = await front.connect();
    client.send(askFor(url));
    const head = await client.readHead();
    // When the PING is answered, the frames in front of it have been read.
    await until(() => upstream.connections[0]?.has(PING) === true, "the answer to the PING");
    expect(await ask(url)).toBe("200 whole");
    upstream.connections[0]?.send(frame(DATA, END_STREAM, 1, Buffer.from("late")));
    expect(await client.readBody(head)).toMatchObject({ text: "early, late", cut: false });
    expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1], [1]]);
  });

  test("`timeout` of the pool does not close an idle connection, and applies to it again when it is used again", async () => {
    const impatient = await start({ timeout: 1800, freeSocketTimeout: 60_000 });
    closing.push(() => impatient.close());
    const [upstream, url] = await raw();
    expect(await ask(url, undefined, impatient)).toBe("200 whole");
    await pause(2100);
    expect(await ask(url, undefined, impatient)).toBe("200 whole");
    upstream.script = () => {};
    const silent = await ask(url, undefined, impatient);
    expect(silent).toBe("504 Gateway Timeout: connection_read_timeout\n");
    expect(upstream.connections).toHaveLength(1);
  });

  test("after `freeSocketTimeout`, the proxy sends GOAWAY on an idle connection, and closes it", async () => {
    rfc("9113-9.1-goaway");
    const impatient = await start({ freeSocketTimeout: 50 });
    closing.push(() => impatient.close());
    const [upstream, url] = await raw();
    expect(await ask(url, undefined, impatient)).toBe("200 whole");
    await until(() => upstream.connections[0]?.isClosed === true, "the connection's end");
    expect(upstream.connections.map((connection) => connection.has(GOAWAY))).toEqual([true]);
  });
});
