/** HTTP/2 upstreams on Node, Bun and Deno: negotiation, sharing, retries and statistics, in a server of each runtime. */
import { createServer as createHttps } from "node:https";
import { createSecureServer, createServer, type Http2Server } from "node:http2";
import type { Server } from "node:net";
import { Readable } from "node:stream";
import { afterEach, describe, expect, test } from "vitest";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import { makeCertificate } from "./_certificate.ts";
import { frame, maxStreams, RawUpstream, RST_STREAM, uint32, wholeResponse } from "./_frames.ts";
import { askFor, type Front, runtimes, startFront } from "./_http2front.ts";
import { listen } from "./_serve.ts";
import { settled, until } from "./_wait.ts";

const MIB = 1024 * 1024;
const certificate = makeCertificate();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

describe.each(runtimes)("%s", (runtime) => {
  async function start(pool: PoolOptions = {}): Promise<Front> {
    const front = await startFront(runtime, { http2: true, ...pool }, {});
    closing.push(() => front.close());
    return front;
  }

  async function open(server: Server | Http2Server): Promise<string> {
    closing.push(() => server.close());
    return `127.0.0.1:${await listen(server)}`;
  }

  async function raw(): Promise<[RawUpstream, string]> {
    const upstream = new RawUpstream();
    closing.push(() => upstream.close());
    return [upstream, await upstream.listen()];
  }

  async function ask(front: Front, url: string, body?: string): Promise<string> {
    const client = await front.connect();
    if (body === undefined) client.send(askFor(url));
    else client.send(askFor(url, "POST", `Content-Length: ${body.length}`), body);
    const { status, text } = await client.read();
    return `${status} ${text}`;
  }

  const version = (req: { httpVersion: string }, res: { end(text: string): unknown }): void =>
    void res.end(req.httpVersion);

  test("TLS negotiates HTTP/2, or HTTP/1.1 on the same connection", async () => {
    const front = await start({ tls: { ca: certificate.cert } });
    const over2 = createSecureServer(certificate, version as never);
    expect(await ask(front, `https://${await open(over2)}`)).toBe("200 2.0");
    const over1 = createHttps(certificate, version);
    let connections = 0;
    over1.on("connection", () => connections++);
    const url = `https://${await open(over1)}`;
    expect(await ask(front, url)).toBe("200 1.1");
    expect(await ask(front, url)).toBe("200 1.1");
    expect(connections).toBe(1);
  });

  test("bodies of several megabytes pass in both directions", async () => {
    const front = await start();
    const server = createServer((req, res) => {
      const chunks: Buffer[] = [];
      req.on("data", (chunk: Buffer) => chunks.push(chunk));
      req.on("end", () => res.end(Buffer.concat(chunks)));
    });
    const body = "0123456789".repeat(300_000);
    expect(await ask(front, `http://${await open(server)}`, body)).toBe(`200 ${body}`);
  });

  test("requests share a connection up to the upstream's limit", async () => {
    const front = await start();
    const [upstream, url] = await raw();
    upstream.settings = maxStreams(3);
    const held: (() => void)[] = [];
    upstream.script = (connection, id) => held.push(() => connection.send(wholeResponse(id)));
    const asked = Array.from({ length: 6 }, () => ask(front, url));
    await until(() => held.length === 6, "6 requests");
    expect(upstream.connections.map(({ streams }) => streams.length)).toEqual([3, 3]);
    for (const release of held) release();
    expect(await Promise.all(asked)).toEqual(Array(6).fill("200 whole"));
  });

  test("a client that does not read pauses its own stream, and no other on the connection", async () => {
    const front = await start();
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
    const url = `http://${await open(server)}`;
    const slow = await front.connect();
    slow.send(askFor(url));
    await slow.readHead();
    const before = await settled(() => sent);
    for (let i = 0; i < 3; i++) expect(await ask(front, `${url}?fast`)).toBe("200 fast");
    expect(connections).toBe(1);
    // What is on its way: the buffers of two sockets, the window of the stream, and the server's own buffers.
    expect(before).toBeLessThan(32 * MIB);
    slow.leave("RST");
  });

  test("a refused stream is sent again", async () => {
    const front = await start();
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => {
      const isFirst = upstream.requests === 1;
      connection.send(isFirst ? frame(RST_STREAM, 0, id, uint32(7)) : wholeResponse(id));
    };
    expect(await ask(front, url)).toBe("200 whole");
    expect(upstream.requests).toBe(2);
  });

  test("`freeSocketTimeout` closes an idle connection", async () => {
    const front = await start({ freeSocketTimeout: 50 });
    const [upstream, url] = await raw();
    expect(await ask(front, url)).toBe("200 whole");
    await until(() => upstream.connections[0]?.isClosed === true, "the connection's end");
  });
});
