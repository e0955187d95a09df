/** HTTP/2 upstreams on Node: negotiation, sharing of connections, limits, retries, and the end of connections. */
import dns from "node:dns";
import { once } from "node:events";
import { createServer as createHttp } from "node:http";
import { createServer as createHttps } from "node:https";
import { connect, createSecureServer, createServer, type ServerHttp2Stream } from "node:http2";
import { createServer as createNetServer, type Server, type Socket } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createProxy, createTransport, proxyFetch } from "../../../../runtimes/node.ts";
import type { RequestEnd } from "../../../../src/options/observationoptions.ts";
import type { PoolOptions } from "../../../../src/options/pooloptions.ts";
import type { CreateProxyOptions } from "../../../../src/proxy.ts";
import { balance } from "../../../../src/upstreams/balance.ts";
import { parseTarget } from "../../../../src/target/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../../src/transport/message.ts";
import { Scope } from "../../../../src/transport/scope.ts";
import { rfc } from "../../../conformance/rfc.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { errorOf, FakeClient, fakeRequest, textOf } from "../../../helpers/fakes.ts";
import {
  ACK,
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  GOAWAY,
  HEADERS,
  maxStreams,
  PING,
  RawUpstream,
  responseHead,
  RST_STREAM,
  SETTINGS,
  uint32,
  wholeResponse,
} from "../../../helpers/frames.ts";
import { startProgram } from "../../../helpers/program.ts";
import { listen } from "../../../helpers/serve.ts";
import { patience, pause, until, within } from "../../../helpers/wait.ts";

const certificate = await makeCertificate();
const tls = { ca: certificate.cert };
const closing: (() => unknown)[] = [];
afterEach(() => {
  for (const close of closing.splice(0).toReversed()) close();
});

/** Makes a server listen. @returns its authority */
async function open(server: Server): Promise<string> {
  closing.push(() => server.close());
  return `127.0.0.1:${await listen(server)}`;
}

function proxyTo(
  target: CreateProxyOptions["target"],
  pool: PoolOptions = {},
  options = {},
): ReturnType<typeof createProxy> {
  const proxy = createProxy({ target, pool: { http2: true, ...pool }, ...options });
  closing.push(() => proxy.destroy());
  return proxy;
}

async function raw(): Promise<[RawUpstream, string]> {
  const upstream = new RawUpstream();
  const url = await upstream.listen();
  closing.push(() => upstream.close());
  return [upstream, url];
}

const get = (path = "/"): Request => new Request(`http://proxy.test${path}`);
const post = (body: string | ReadableStream = "body"): Request =>
  new Request("http://proxy.test/", { method: "POST", body, duplex: "half" } as RequestInit);

/** Answers with the HTTP version of the request. */
function versions(req: { httpVersion: string }, res: { end(text: string): unknown }): void {
  res.end(req.httpVersion);
}

describe("the version of HTTP", () => {
  test("an upstream that chooses HTTP/1.1 gets its requests on connections that are reused", async () => {
    const server = createHttps(certificate, versions);
    let connections = 0;
    server.on("connection", () => connections++);
    const proxy = proxyTo(`https://${await open(server)}`, { tls });
    for (let i = 0; i < 3; i++) expect(await (await proxy.fetch(get())).text()).toBe("1.1");
    expect(connections).toBe(1);
    expect(proxy.stats()).toMatchObject({ created: 1, failed: 0, closed: 0, requests: 3 });
    const all = await Promise.all(Array.from({ length: 5 }, () => proxy.fetch(get())));
    expect(await Promise.all(all.map((each) => each.text()))).toEqual(Array(5).fill("1.1"));
    expect(Object.values(proxy.stats()?.origins ?? {})).toEqual([
      { inUse: 0, free: connections, waiting: 0, tunnels: 0 },
    ]);
    await proxy.close();
    expect(proxy.stats()).toMatchObject({ created: connections, closed: connections });
  });

  test("close() lets an upload finish whose upstream chooses HTTP/1.1 afterwards, on the same connection", async () => {
    const secure = createHttps(certificate, versions);
    const sockets: Socket[] = [];
    const server = createNetServer((socket) => void sockets.push(socket));
    const proxy = proxyTo(`https://${await open(server)}`, { tls });
    const asked = proxy.fetch(post());
    await until(() => sockets.length === 1, "the connection");
    const closed = proxy.close();
    // The handshake begins only now.
    secure.emit("connection", sockets[0]);
    const response = await within(asked, "the response");
    expect([response.status, await response.text()]).toEqual([200, "1.1"]);
    await within(closed, "close()");
    expect(sockets).toHaveLength(1);
  });

  test("the option `http2` of a target takes precedence over that of the pool", async () => {
    const server = createSecureServer({ ...certificate, allowHTTP1: true }, versions as never);
    const url = `https://${await open(server)}`;
    expect(await (await proxyTo({ url, http2: false }, { tls }).fetch(get())).text()).toBe("1.1");
    const other = proxyTo({ url, http2: true }, { tls, http2: false });
    expect(await (await other.fetch(get())).text()).toBe("2.0");
  });

  /** Returns the status and the text that a client gets, and the message for the operator. */
  async function fail(options: Parameters<typeof createProxy>[0]): Promise<unknown[]> {
    let message: string | undefined;
    const proxy = createProxy({ ...options, onError: (error) => void ({ message } = error) });
    closing.push(() => proxy.destroy());
    const response = await proxy.fetch(get());
    return [response.status, await response.text(), message];
  }

  test("an upstream without HTTP/2 becomes 502, and the operator's message says how to fix it", async () => {
    const address = await open(createHttps(certificate, versions));
    // The proxy sends the preface without TLS, but the server expects TLS, and closes the connection.
    expect(await fail({ target: { url: `http://${address}`, http2: true } })).toEqual([
      502,
      "Bad Gateway: http_protocol_error\n",
      expect.stringMatching(/leave out the option `http2`, or write `https:`/),
    ]);
  });

  test("without `http2`, an upstream with only HTTP/2 becomes 502, and the operator's message says how to fix it", async () => {
    const address = await open(createServer());
    expect(await fail({ target: `http://${address}` })).toEqual([
      502,
      "Bad Gateway: http_protocol_error\n",
      expect.stringMatching(/speaks HTTP\/2 only: set the option `http2: true`/),
    ]);
  });

  test("an untrusted certificate becomes 502, and the operator's message says how to fix it", async () => {
    const address = await open(createSecureServer(certificate, versions as never));
    expect(await fail({ target: { url: `https://${address}`, http2: true } })).toEqual([
      502,
      "Bad Gateway: tls_certificate_error\n",
      expect.stringMatching(/certificate is not accepted: pass its CA as `tls: \{ ca \}`/),
    ]);
  });

  test("createTransport({ http2: true }) has `stats`, which count HTTP/2 connections and requests", async () => {
    const transport = createTransport({ http2: true });
    closing.push(() => transport.destroy?.());
    const url = `http://${await open(createServer(versions as never))}`;
    const proxy = createProxy({ target: url, transport });
    expect(await (await proxy.fetch(get())).text()).toBe("2.0");
    expect(transport.stats?.()).toMatchObject({ created: 1, requests: 1 });
    await transport.close?.();
  });
});

interface Seen {
  raw: string[];
  body: string;
  trailers: string[];
}

describe("messages", () => {
  async function echo(answer?: (stream: ServerHttp2Stream) => void): Promise<[string, Seen[]]> {
    const seen: Seen[] = [];
    const server = createServer();
    server.on("stream", (stream, _headers, _flags, rawHeaders: string[]) => {
      const entry: Seen = { raw: rawHeaders, body: "", trailers: [] };
      seen.push(entry);
      stream.on("error", () => {});
      stream.on("data", (chunk: Buffer) => (entry.body += chunk.toString("latin1")));
      stream.on(
        "trailers",
        (_trailers, _, rawTrailers: string[]) => (entry.trailers = rawTrailers),
      );
      stream.on("end", () => {
        if (answer) return answer(stream);
        stream.respond({ ":status": 200 });
        stream.end("ok");
      });
    });
    return [`http://${await open(server)}`, seen];
  }

  test("RFC 9113 §8.2, §8.3: lower-case names, :authority in place of Host, and no connection-specific fields", async () => {
    rfc("9113-8.2-lowercase", "9113-8.2.2-connection", "9113-8.3.1-authority-sent");
    const [url, seen] = await echo();
    const options: Partial<CreateProxyOptions> = {
      xfwd: false,
      onRequest(draft) {
        draft.headers.set("x-spaced", "a  b");
        draft.headers.set("connection", "close");
      },
    };
    const proxy = proxyTo(`${url}/base`, {}, options);
    const headers = {
      "X-Upper": "1",
      te: "trailers, deflate",
      cookie: "a=1; b=2",
      host: "client.test",
    };
    await (await proxy.fetch(new Request("http://proxy.test/p%2F?q=%20", { headers }))).text();
    const [{ raw: list } = { raw: [] }] = seen;
    expect(list.slice(0, 8)).toEqual([
      ":method",
      "GET",
      ":scheme",
      "http",
      ":authority",
      url.slice("http://".length),
      ":path",
      "/base/p%2F?q=%20",
    ]);
    const fields = Object.fromEntries(
      Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1]]),
    ) as Record<string, string>;
    expect(fields).toMatchObject({
      "x-upper": "1",
      cookie: "a=1; b=2",
      "x-spaced": "a  b",
    });
    // `te` is absent, because a web response cannot carry trailer fields.
    for (const name of ["host", "connection", "content-length", "te"])
      expect(fields[name]).toBe(undefined);
  });

  test("`host` and `changeOrigin: false` set :authority", async () => {
    const [url, seen] = await echo();
    await (await proxyTo(url, {}, { host: "shop.test:1" }).fetch(get())).text();
    const request = new Request("http://client.test/");
    await (await proxyTo(url, {}, { changeOrigin: false }).fetch(request)).text();
    expect(seen.map(({ raw: list }) => list[list.indexOf(":authority") + 1])).toEqual([
      "shop.test:1",
      "client.test",
    ]);
  });

  test("a request whose client accepts no trailers has no `te`", async () => {
    const [url, seen] = await echo();
    await (
      await proxyTo(url).fetch(new Request("http://a.test/", { headers: { te: "gzip" } }))
    ).text();
    expect(seen[0]?.raw).not.toContain("te");
  });

  test("a request that a hook changes to CONNECT, or to an invalid path, is refused", async () => {
    const [url, seen] = await echo();
    const hooked = (change: object): Promise<Response> =>
      proxyTo(url, {}, { onRequest: (draft: object) => void Object.assign(draft, change) }).fetch(
        get(),
      );
    expect((await hooked({ method: "CONNECT" })).status).toBe(501);
    expect((await hooked({ path: "/a b" })).status).toBe(400);
    expect(seen).toEqual([]);
  });

  test("bodies of 3 MB arrive whole in both directions", async () => {
    const [url, seen] = await echo((stream) => {
      stream.respond({ ":status": 203, "content-length": 3_000_000, "set-cookie": ["a=1", "b=2"] });
      stream.end(Buffer.alloc(3_000_000, "abc"));
    });
    const body = "x".repeat(3_000_000);
    const response = await proxyTo(url).fetch(
      new Request("http://a.test/", {
        method: "POST",
        body,
        headers: { "content-length": "3000000" },
      }),
    );
    expect(response.status).toBe(203);
    expect(response.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect((await response.arrayBuffer()).byteLength).toBe(3_000_000);
    expect(seen[0]?.body).toBe(body);
    expect(seen[0]?.raw).toContain("content-length");
  });

  test("CVE-2026-42926: if a hook replaces the body, the new body arrives with its own length", async () => {
    const [url, seen] = await echo();
    const bodies = ["", "short", "x".repeat(100_000)];
    for (const text of bodies) {
      for (const make of [() => text, () => new Blob([text]).stream()]) {
        const proxy = proxyTo(
          url,
          {},
          { onRequest: (draft: object) => Object.assign(draft, { body: make() }) && undefined },
        );
        const sent = {
          method: "POST",
          body: "x".repeat(5000),
          headers: { "content-length": "5000" },
        };
        const response = await proxy.fetch(new Request("http://a.test/", sent));
        expect([response.status, await response.text()]).toEqual([200, "ok"]);
        const { raw: list, body } = seen.pop() as Seen;
        expect(body === text).toBe(true);
        const at = list.indexOf("content-length");
        if (at !== -1) expect(list[at + 1]).toBe(String(text.length));
      }
    }
  });

  test("bytes above 0x7f in field values (obs-text) pass unchanged", async () => {
    const [url, seen] = await echo((stream) => {
      stream.respond({ ":status": 200, "x-text": "\u00e9" });
      stream.end();
    });
    const response = await proxyTo(url).fetch(
      new Request("http://a.test/", { headers: { "x-text": "\u00e9" } }),
    );
    expect(response.headers.get("x-text")).toBe("\u00e9");
    expect(seen[0]?.raw).toContain("\u00e9");
  });

  test("responses with 304, and responses to HEAD, have no body", async () => {
    const [url] = await echo((stream) => {
      stream.respond({ ":status": 304, etag: '"x"' });
      stream.end();
    });
    const proxy = proxyTo(url);
    const response = await proxy.fetch(get());
    expect([response.status, response.headers.get("etag"), response.body]).toEqual([
      304,
      '"x"',
      null,
    ]);
    const head = await proxy.fetch(new Request("http://a.test/", { method: "HEAD" }));
    expect([head.status, await head.text()]).toEqual([304, ""]);
  });

  test.each([
    ["HEAD", "200", "the same"],
    ["HEAD", "200", "a later"],
    ["GET", "304", "the same"],
    ["GET", "304", "a later"],
    ["GET", "204", "the same"],
    ["GET", "204", "a later"],
  ])(
    "a response to %s with the status %s is complete if an empty DATA frame ends its stream in %s read",
    async (method, status, read) => {
      const [upstream, url] = await raw();
      const target = balance([url]);
      const ends: RequestEnd[] = [];
      const proxy = proxyTo(target, {}, { onRequestEnd: (end: RequestEnd) => void ends.push(end) });
      upstream.script = (connection, id) => {
        const length = status === "204" ? [] : [field("content-length", "5")];
        const fields = Buffer.concat([field(":status", status), ...length]);
        connection.send(
          frame(HEADERS, END_HEADERS, id, fields),
          ...(read === "the same" ? [frame(DATA, END_STREAM, id)] : []),
        );
      };
      const response = await proxy.fetch(new Request("http://proxy.test/", { method }));
      expect([response.status, await response.text()]).toEqual([Number(status), ""]);
      if (read === "a later") upstream.connections[0]?.send(frame(DATA, END_STREAM, 1));
      await until(() => ends.length === 1, "the report");
      expect(ends[0]?.error).toBeUndefined();
      // The upstream has read all frames of the first stream when it answers on the second.
      upstream.script = (connection, id) => connection.send(wholeResponse(id));
      expect(await (await proxy.fetch(get())).text()).toBe("whole");
      expect(upstream.connections.map(({ streams, resets }) => [streams, resets])).toEqual([
        [[1, 3], []],
      ]);
      expect(target.states()[0]).toMatchObject({ requests: 2, failures: 0 });
    },
  );

  test("a stream is reset if its request body has no end and the response without a body no END_STREAM", async () => {
    const [upstream, url] = await raw();
    const proxy = proxyTo(url);
    upstream.script = (connection, id) =>
      connection.send(frame(HEADERS, END_HEADERS, id, field(":status", "204")));
    let isCancelled = false;
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(Buffer.from("begun")),
      cancel: () => void (isCancelled = true),
    });
    expect((await proxy.fetch(post(body))).status).toBe(204);
    const [connection] = upstream.connections;
    await until(() => connection?.resets.length === 1, "the reset");
    await until(() => isCancelled, "the end of the upload");
    upstream.script = (another, id) => another.send(wholeResponse(id));
    expect(await (await proxy.fetch(get())).text()).toBe("whole");
    expect(connection?.streams).toEqual([1, 3]);
  });

  test("a 307 is followed, and its target gets the request's body", async () => {
    const [url, seen] = await echo((stream) => {
      const isFirst = seen.length === 1;
      stream.respond(isFirst ? { ":status": 307, location: "/second" } : { ":status": 200 });
      stream.end(isFirst ? "" : "second");
    });
    const proxy = proxyTo(url, {}, { followRedirects: true });
    expect(await (await proxy.fetch(post("again"))).text()).toBe("second");
    expect(seen.map(({ body }) => body)).toEqual(["again", "again"]);
  });

  /** Serves a proxy on `node:http2`, and connects a client to it. */
  async function front(url: string): Promise<ReturnType<typeof connect>> {
    const address = await open(createServer(proxyTo(url).nodeHandler));
    const session = connect(`http://${address}`);
    closing.push(() => session.destroy());
    return session;
  }

  test("RFC 9113 §8.1: trailer fields pass in both directions, repeated ones as separate lines", async () => {
    const [url, seen] = await echo((stream) => {
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      stream.on("wantTrailers", () =>
        stream.sendTrailers({ "x-sum": ["1", "2"], "x-bin": "\u00e9" }),
      );
      stream.end("body");
    });
    const session = await front(url);
    const stream = session.request(
      { ":method": "POST", te: "trailers" },
      { waitForTrailers: true },
    );
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-up": ["3", "4"] }));
    let trailers: string[] = [];
    stream.on("trailers", (_parsed, _flags, list: string[]) => (trailers = list));
    stream.end("up");
    await within(once(stream.resume(), "close"), "the stream's end");
    expect(trailers).toEqual(["x-sum", "1", "x-sum", "2", "x-bin", "\u00e9"]);
    expect(seen[0]?.trailers).toEqual(["x-up", "3", "x-up", "4"]);
    expect(seen[0]?.raw.join(" ")).toContain("te trailers");
  });

  test.each([{}, { "content-length": 2 }])(
    "trailer fields of a request pass the filters of its header fields, with the length %j",
    async (length) => {
      const [url, seen] = await echo((stream) => {
        stream.respond({ ":status": 200 });
        stream.end();
      });
      const options = { headers: { "x-user": "alice" }, filterHeaders: ["remote-user"] };
      const address = await open(createServer(proxyTo(url, {}, options).nodeHandler));
      const session = connect(`http://${address}`);
      closing.push(() => session.destroy());
      const stream = session.request({ ":method": "POST", ...length }, { waitForTrailers: true });
      const forged = {
        "x-user": "mallory",
        x_user: "mallory",
        "remote-user": "mallory",
        "x-sum": "1",
      };
      stream.on("wantTrailers", () => stream.sendTrailers(forged));
      stream.end("up");
      await within(once(stream.resume(), "close"), "the stream's end");
      await until(() => seen[0]?.trailers.length === 2, "the trailer fields");
      expect(seen[0]?.trailers).toEqual(["x-sum", "1"]);
    },
  );

  test.each([
    ["its client accepts trailers", { te: "trailers" }, []],
    ["it announces trailers", {}, [field("trailer", "x-sum")]],
  ])(
    "a response with a Content-Length does not end before its trailer fields if %s",
    async (_, fields, announced) => {
      const [upstream, url] = await raw();
      upstream.script = (connection, id) => {
        const head = responseHead(id, false, field("content-length", "4"), ...announced);
        connection.send(head, frame(DATA, 0, id, Buffer.from("body")));
        const trailers = frame(HEADERS, END_HEADERS | END_STREAM, id, field("x-sum", "1"));
        setTimeout(() => connection.send(trailers), 50);
      };
      const stream = (await front(url)).request(fields);
      const trailed = once(stream, "trailers");
      stream.resume();
      expect((await within(trailed, "the trailers"))[0]).toMatchObject({ "x-sum": "1" });
    },
  );

  test("RFC 9110 §15.2: interim responses reach the client, with repeated fields", async () => {
    const [upstream, url] = await raw();
    const interim = (id: number, ...fields: Buffer[]): Buffer =>
      frame(HEADERS, END_HEADERS, id, Buffer.concat([field(":status", "103"), ...fields]));
    upstream.script = (connection, id) =>
      connection.send(
        interim(id, field("link", "</a>"), field("link", "</b>")),
        interim(id, field("x-last", "1")),
        wholeResponse(id),
      );
    const session = await front(url);
    const stream = session.request({});
    const seen: string[][] = [];
    stream.on("headers", (_headers, _flags, list: string[]) => seen.push(list));
    await within(once(stream.resume(), "close"), "the stream's end");
    expect(seen).toEqual([
      [":status", "103", "link", "</a>", "link", "</b>"],
      [":status", "103", "x-last", "1"],
    ]);
  });

  test("an empty request body is sent as an empty DATA frame, as gRPC requires, and a GET as HEADERS alone", async () => {
    const [upstream, url] = await raw();
    const session = await front(url);
    const send = async (method: string): Promise<void> => {
      const stream = session.request({ ":method": method }, { endStream: method === "GET" });
      stream.end();
      await within(once(stream.resume(), "close"), "the stream's end");
    };
    await send("POST");
    await send("GET");
    const frames = upstream.connections[0]?.frames.filter(({ id }) => id > 0) ?? [];
    expect(frames.map(({ type, flags, id }) => [type, flags, id])).toEqual([
      [HEADERS, END_HEADERS, 1],
      [DATA, END_STREAM, 1],
      [HEADERS, END_HEADERS | END_STREAM, 3],
    ]);
  });

  test("a response that consists of HEADERS alone reaches an HTTP/2 client as HEADERS alone", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => connection.send(responseHead(id, true));
    const session = await front(url);
    const stream = session.request({});
    const [, flags] = (await within(once(stream, "response"), "the response")) as [unknown, number];
    expect(flags & END_STREAM).toBe(END_STREAM);
  });
});

describe("connections", () => {
  /** Starts an upstream that holds its streams until they are released. */
  async function holding(limit?: number): Promise<[RawUpstream, string, () => void]> {
    const [upstream, url] = await raw();
    if (limit !== undefined) upstream.settings = maxStreams(limit);
    const held: (() => void)[] = [];
    upstream.script = (connection, id) => held.push(() => connection.send(wholeResponse(id)));
    return [upstream, url, () => held.splice(0).forEach((release) => release())];
  }

  async function finish(asked: Promise<Response>[], release: () => void): Promise<number[]> {
    const timer = setInterval(release, 5);
    closing.push(() => clearInterval(timer));
    const responses = await within(Promise.all(asked), "all responses");
    await Promise.all(responses.map((each) => each.text()));
    clearInterval(timer);
    return responses.map(({ status }) => status);
  }

  const ask = (proxy: ReturnType<typeof createProxy>, count: number): Promise<Response>[] =>
    Array.from({ length: count }, () => proxy.fetch(get()));

  test("requests share one connection", async () => {
    rfc("9113-9.1-one-connection");
    const [upstream, url, release] = await holding();
    const proxy = proxyTo(url);
    const asked = ask(proxy, 50);
    await until(() => upstream.requests === 50, "50 requests");
    expect(upstream.connections).toHaveLength(1);
    expect(Object.values(proxy.stats()?.origins ?? {})).toEqual([
      { inUse: 1, free: 0, waiting: 0, tunnels: 0 },
    ]);
    expect(new Set(await finish(asked, release))).toEqual(new Set([200]));
    expect(proxy.stats()).toMatchObject({ created: 1, requests: 50, requestsPerSocket: 50 });
    await until(() => Object.values(proxy.stats()?.origins ?? {})[0]?.free === 1, "it to be idle");
  });

  test("the pool opens another connection for requests above the upstream's limit of streams", async () => {
    const [upstream, url, release] = await holding(2);
    const asked = ask(proxyTo(url), 5);
    await until(() => upstream.requests === 5, "5 requests");
    expect(upstream.connections.map(({ streams }) => streams.length)).toEqual([2, 2, 1]);
    expect(await finish(asked, release)).toEqual([200, 200, 200, 200, 200]);
  });

  test("above `maxSockets`, requests wait in the order of their arrival", async () => {
    const [upstream, url, release] = await holding(2);
    const proxy = proxyTo(url, { maxSockets: 1 });
    const asked = ask(proxy, 5);
    await until(() => upstream.requests === 2, "2 requests");
    expect(Object.values(proxy.stats()?.origins ?? {})).toEqual([
      { inUse: 1, free: 0, waiting: 3, tunnels: 0 },
    ]);
    expect(await finish(asked, release)).toEqual([200, 200, 200, 200, 200]);
    expect(upstream.connections).toHaveLength(1);
  });

  test("if the upstream lowers its limit of streams, the new limit applies to later requests", async () => {
    const [upstream, url, release] = await holding();
    const proxy = proxyTo(url, { maxSockets: 1 });
    const first = ask(proxy, 1);
    await until(() => upstream.requests === 1, "the request");
    upstream.connections[0]?.send(maxStreams(1));
    await until(
      () =>
        upstream.connections[0]?.frames.filter(
          ({ type, flags }) => type === SETTINGS && flags === 1,
        ).length === 2,
      "the new settings to be acknowledged",
    );
    const more = ask(proxy, 2);
    await until(() => Object.values(proxy.stats()?.origins ?? {})[0]?.waiting === 2, "the queue");
    expect(upstream.requests).toBe(1);
    expect(await finish([...first, ...more], release)).toEqual([200, 200, 200]);
  });

  test("`maxQueued` and `queueTimeout` apply to waiting requests", async () => {
    const [upstream, url, release] = await holding(1);
    const proxy = proxyTo(url, { maxSockets: 1, maxQueued: 1, queueTimeout: 1500 });
    const first = ask(proxy, 1);
    await until(() => upstream.requests === 1, "the request");
    const waiting = proxy.fetch(get());
    const refused = await proxy.fetch(get());
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await within(waiting, "the response")).status).toBe(503);
    expect(await finish(first, release)).toEqual([200]);
  });

  test("`keepAlive: false` opens a connection for each request", async () => {
    const [upstream, url] = await raw();
    const proxy = proxyTo(url, { keepAlive: false });
    for (let i = 0; i < 3; i++) await (await proxy.fetch(get())).text();
    expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1], [1], [1]]);
    await until(() => upstream.connections.every(({ isClosed }) => isClosed), "their end");
  });

  test("`freeSocketTimeout` closes an idle connection", async () => {
    const [upstream, url] = await raw();
    const proxy = proxyTo(url, { freeSocketTimeout: 50 });
    await (await proxy.fetch(get())).text();
    await until(() => upstream.connections[0]?.isClosed === true, "the connection's end");
    await until(() => proxy.stats()?.closed === 1, "it to be counted");
    expect(proxy.stats()).toMatchObject({ created: 1, timedOut: 1 });
    expect(Object.values(proxy.stats()?.origins ?? {})).toEqual([
      { inUse: 0, free: 0, waiting: 0, tunnels: 0 },
    ]);
  });

  test("`socketTTL`: an old connection takes no further request", async () => {
    const [upstream, url, release] = await holding();
    const proxy = proxyTo(url, { socketTTL: 1600 });
    const first = ask(proxy, 1);
    await until(() => upstream.requests === 1, "the request");
    await pause(1700);
    const second = ask(proxy, 1);
    await until(() => upstream.requests === 2, "the second request");
    expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1], [1]]);
    // The old connection carries its request to the end.
    expect(await finish([...first, ...second], release)).toEqual([200, 200]);
    await until(() => upstream.connections[0]?.isClosed === true, "the old connection's end");
  });

  test("`maxFreeSockets: 0` keeps no connection", async () => {
    const [upstream, url] = await raw();
    await (await proxyTo(url, { maxFreeSockets: 0 }).fetch(get())).text();
    await until(() => upstream.connections[0]?.isClosed === true, "the connection's end");
  });

  test("`connectTimeout` also limits the time until the upstream's SETTINGS", async () => {
    const [upstream, url] = await raw();
    upstream.settings = undefined;
    const proxy = proxyTo(url, { connectTimeout: 100 });
    const response = await within(proxy.fetch(get()), "the response");
    expect([response.status, await response.text()]).toEqual([
      504,
      "Gateway Timeout: connection_timeout\n",
    ]);
    expect(upstream.requests).toBe(0);
    await until(() => proxy.stats()?.failed === 1, "it to be counted");
  });

  test.each([60_000, 0, undefined])(
    "a short `connectTimeout` of one request does not close a connection for which a request with a limit of %s waits",
    async (connectTimeout) => {
      const [upstream, url] = await raw();
      upstream.settings = undefined;
      const target = { url, http2: true };
      const options = connectTimeout === undefined ? {} : { connectTimeout };
      const patient = proxyFetch(get(), target, options);
      await until(() => upstream.connections.length === 1, "the connection");
      const { status } = await within(proxyFetch(get(), target, { connectTimeout: 50 }), "the 504");
      expect(status).toBe(504);
      expect(upstream.connections.map(({ isClosed }) => isClosed)).toEqual([false]);
      upstream.close();
      expect((await within(patient, "the end of the patient one")).status).toBe(502);
    },
  );

  test("a request with a short `connectTimeout` gets 504 in time although another request waits longer", async () => {
    const [upstream, url] = await raw();
    upstream.settings = undefined;
    const target = { url, http2: true };
    const short = proxyFetch(get(), target, { connectTimeout: 50 });
    const long = proxyFetch(get(), target, { connectTimeout: 60_000 });
    expect((await within(short, "the 504")).status).toBe(504);
    upstream.close();
    expect((await within(long, "the end of the long one")).status).toBe(502);
  });

  test("a request does not wait for a connection whose `connectTimeout` is shorter than its own", async () => {
    const [upstream, url] = await raw();
    const settings = upstream.settings as Buffer;
    upstream.settings = undefined;
    const transport = createTransport({ http2: true, connectTimeout: 100 });
    closing.push(() => transport.destroy?.());
    const options = { transport, retry: false } as const;
    const short = proxyFetch(get(), url, { ...options, connectTimeout: 100 });
    const long = proxyFetch(get(), url, { ...options, connectTimeout: patience });
    expect((await within(short, "the 504")).status).toBe(504);
    await until(() => upstream.connections.length === 2, "the second connection");
    for (const connection of upstream.connections) connection.send(settings);
    const response = await within(long, "the response");
    expect([response.status, await response.text()]).toEqual([200, "whole"]);
  });

  test("`connectTimeout` begins once, and not again when the socket is connected", async () => {
    const [upstream, url] = await raw();
    upstream.settings = undefined;
    const connectTimeout = 3000;
    let again: Promise<string> | undefined;
    const spy = vi.spyOn(dns, "lookup").mockImplementation(((
      _name: string,
      _options: object,
      found: (error: null, addresses: object[]) => void,
    ) => {
      setTimeout(() => {
        again = pause(connectTimeout).then(() => "the limit has begun again");
        found(null, [{ address: "127.0.0.1", family: 4 }]);
      }, connectTimeout / 2);
    }) as never);
    closing.push(() => spy.mockRestore());
    const proxy = proxyTo(`http://slow.test:${new URL(url).port}`, { connectTimeout });
    const asked = proxy.fetch(get()).then((response) => response.text());
    await until(() => again !== undefined, "the lookup");
    const first = await Promise.race([asked, again]);
    expect(first).toBe("Gateway Timeout: connection_timeout\n");
  });

  test("a request whose `timeout` passes before SETTINGS leaves the connection usable for other requests", async () => {
    const [upstream, url] = await raw();
    const settings = upstream.settings as Buffer;
    upstream.settings = undefined;
    const transport = createTransport({ http2: true, maxSockets: 1 });
    closing.push(() => transport.destroy?.());
    const patient = proxyFetch(get(), url, { transport });
    await until(() => upstream.connections.length === 1, "the connection");
    const short = proxyFetch(get(), url, { transport, timeout: 50 });
    expect((await within(short, "the 504")).status).toBe(504);
    upstream.connections[0]?.send(settings);
    const response = await within(patient, "the response");
    expect([response.status, await response.text()]).toEqual([200, "whole"]);
    const isIdle = (): boolean => Object.values(transport.stats?.().origins ?? {})[0]?.free === 1;
    await until(isIdle, "it to be idle");
    expect(transport.stats?.()).toMatchObject({ created: 1, closed: 0, failed: 0, requests: 1 });
  });

  test("after a request has timed out before SETTINGS, later requests use another connection", async () => {
    const [upstream, url] = await raw();
    const settings = upstream.settings as Buffer;
    upstream.settings = undefined;
    const transport = createTransport({ http2: true });
    closing.push(() => transport.destroy?.());
    const patient = proxyFetch(get(), url, { transport });
    await until(() => upstream.connections.length === 1, "the connection");
    const short = proxyFetch(get(), url, { transport, timeout: 50 });
    expect((await within(short, "the 504")).status).toBe(504);
    upstream.settings = settings;
    const later = await within(proxyFetch(get(), url, { transport }), "the later response");
    expect(await later.text()).toBe("whole");
    upstream.connections[0]?.send(settings);
    expect(await (await within(patient, "the first response")).text()).toBe("whole");
    expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1], [1]]);
  });

  test("`timeout` of the pool: a silent connection is closed, and its requests fail", async () => {
    const [upstream, url] = await raw();
    upstream.script = () => {};
    const proxy = proxyTo(url, { timeout: 100 });
    const responses = await within(Promise.all(ask(proxy, 2)), "the responses");
    expect(responses.map(({ status }) => status)).toEqual([504, 504]);
    await until(() => upstream.connections[0]?.isClosed === true, "the connection's end");
    expect(proxy.stats()?.timedOut).toBe(1);
  });

  test("`timeout` of the pool: a response that arrives while the event loop is blocked is read first", async () => {
    const [upstream, url] = await raw();
    const timeout = 2000;
    upstream.script = (connection, id) => {
      connection.send(wholeResponse(id));
      // The upstream runs in this process, so this blocks the proxy as well.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, timeout + 200);
    };
    const response = await proxyTo(url, { timeout }).fetch(get());
    expect([response.status, await response.text()]).toEqual([200, "whole"]);
  });

  test("an upload may take any number of PING frames, as gRPC's server in Go sends one for each chunk", async () => {
    const [upstream, url] = await raw();
    upstream.script = () => {};
    let sendNext = (): void => {};
    upstream.onFrame = ({ type, flags, id }, connection) => {
      if (type === DATA && flags === END_STREAM) connection.send(wholeResponse(id));
      else if (type === DATA) connection.send(frame(PING, 0, 0, Buffer.alloc(8)));
      else if (type === PING && flags === ACK) sendNext();
    };
    let left = 1100;
    const body = new ReadableStream({
      start(controller) {
        sendNext = () => (left-- > 0 ? controller.enqueue(Buffer.from("c")) : controller.close());
        sendNext();
      },
      cancel: () => void (sendNext = () => {}),
    });
    const response = await within(proxyTo(url).fetch(post(body)), "the response");
    expect([response.status, await response.text()]).toEqual([200, "whole"]);
  });

  test("if a connection cannot be opened, all requests that wait for it fail, and one failure is counted", async () => {
    const [upstream, url] = await raw();
    upstream.close();
    const proxy = proxyTo(url, {}, { retry: false });
    const responses = await Promise.all(ask(proxy, 5));
    expect(await Promise.all(responses.map((each) => each.text()))).toEqual(
      Array(5).fill("Bad Gateway: connection_refused\n"),
    );
    expect(proxy.stats()).toMatchObject({ created: 0, failed: 1 });
  });

  test("close() lets requests finish, and refuses later ones", async () => {
    const [upstream, url, release] = await holding(1);
    const proxy = proxyTo(url, { maxSockets: 1 });
    const asked = ask(proxy, 2);
    await until(() => upstream.requests === 1, "the request");
    // The transport lets a moment pass for the body of this request to arrive.
    const upload = new Request("http://proxy.test/", {
      method: "POST",
      body: "body",
      headers: { "Content-Length": "4" },
    });
    asked.push(proxy.fetch(upload));
    const closed = proxy.close();
    expect((await proxy.fetch(get())).status).toBe(503);
    expect(await finish(asked, release)).toEqual([200, 200, 200]);
    await within(closed, "close()");
    expect(upstream.connections[0]?.isClosed || proxy.stats()?.closed === 1).toBe(true);
  });

  test("close() also waits for queued requests, which are sent on a new connection after GOAWAY", async () => {
    const [upstream, url, release] = await holding(1);
    const proxy = proxyTo(url, { maxSockets: 1 });
    const asked = ask(proxy, 2);
    await until(() => upstream.requests === 1, "the first request");
    let isClosed = false;
    const closed = proxy.close().then(() => (isClosed = true));
    upstream.connections[0]?.send(frame(GOAWAY, 0, 0, uint32(1, 0)));
    release();
    await until(() => upstream.requests === 2, "the second request");
    expect(isClosed).toBe(false);
    expect(await finish(asked, release)).toEqual([200, 200]);
    await within(closed, "close()");
  });

  test("close() lets requests finish that wait for a connection, even if it has no room for all of them", async () => {
    const [upstream, url] = await raw();
    upstream.settings = undefined;
    const proxy = proxyTo(url);
    const asked = ask(proxy, 3);
    await until(() => upstream.connections.length === 1, "the connection");
    const closed = proxy.close();
    upstream.settings = maxStreams(1);
    upstream.connections[0]?.send(upstream.settings);
    const responses = await within(Promise.all(asked), "all responses");
    expect(await Promise.all(responses.map((each) => each.text()))).toEqual(Array(3).fill("whole"));
    await within(closed, "close()");
  });

  test("close(timeout) also ends a connection that its host name has left before SETTINGS arrive", async () => {
    const [old, url] = await raw();
    const port = Number(new URL(url).port);
    const settings = old.settings as Buffer;
    let address: string | undefined = "127.0.0.1";
    let lookups = 0;
    const { lookup } = dns;
    const spy = vi.spyOn(dns, "lookup").mockImplementation(((
      name: string,
      options: object,
      found: (error: Error | null, addresses: object[]) => void,
    ) => {
      if (name !== "moved.test") return lookup(name, options, found as never);
      lookups++;
      if (address === undefined) found(new Error("no answer"), []);
      else found(null, [{ address, family: 4 }]);
    }) as never);
    closing.push(() => spy.mockRestore());
    const proxy = proxyTo(`http://moved.test:${port}`, { dns: { ttl: 20 } });
    old.script = (connection, id) =>
      connection.send(frame(GOAWAY, 0, 0, uint32(id, 0)), responseHead(id));
    const first = await proxy.fetch(get());
    old.settings = undefined;
    const asked = proxy.fetch(get());
    await until(() => old.connections.length === 2, "the second connection");
    // The name is looked up again only while there is a connection, so the first one ends after the second one has begun.
    old.connections[0]?.send(frame(DATA, END_STREAM, 1));
    await first.text();
    await until(() => old.connections[0]?.isClosed === true, "the first connection's end");
    const moved = new RawUpstream();
    closing.push(() => moved.close());
    address = "127.0.0.2";
    await moved.listen(port, address);
    const before = lookups;
    await until(() => lookups > before + 4, "the lookups that do not find the old address");
    // A later lookup would close the connection, too.
    address = undefined;
    const closed = proxy.close(2 * patience);
    old.connections[1]?.send(settings);
    expect((await within(asked, "the response")).status).toBe(200);
    expect(moved.requests).toBe(1);
    await within(closed, "close()");
  });

  test("close(timeout) fails the remaining requests after its timeout, and destroy() fails all", async () => {
    const [upstream, url] = await holding();
    const proxy = proxyTo(url);
    const [asked] = ask(proxy, 1);
    await until(() => upstream.requests === 1, "the request");
    await within(proxy.close(50), "close()");
    expect((await asked)?.status).toBe(503);
    const other = proxyTo(url);
    const [second] = ask(other, 1);
    await until(() => upstream.requests === 2, "the request");
    other.destroy();
    expect((await second)?.status).toBe(503);
    await until(() => upstream.connections.every(({ isClosed }) => isClosed), "their end");
  });

  test("when a client disconnects, only its own stream is reset", async () => {
    const [upstream, url, release] = await holding();
    const proxy = proxyTo(url);
    const abort = new AbortController();
    const gone = proxy.fetch(new Request("http://a.test/", { signal: abort.signal }));
    const kept = ask(proxy, 1);
    await until(() => upstream.requests === 2, "the requests");
    abort.abort();
    expect((await gone).status).toBe(499);
    const connection = upstream.connections[0];
    await until(() => connection?.resets.length === 1, "the stream to be reset");
    // CANCEL (RFC 9113 §7).
    expect(connection?.resets).toEqual([[1, 8]]);
    expect(await finish(kept, release)).toEqual([200]);
  });

  test("a request listens to its client immediately if it waits for a connection, and only later if it reuses one", async () => {
    const [upstream, url] = await raw();
    const settings = upstream.settings as Buffer;
    upstream.settings = undefined;
    const transport = createTransport({ http2: true });
    closing.push(() => transport.destroy?.());
    const request = (): UpstreamRequest => fakeRequest({ upstream: parseTarget(url) });
    const clients = ["leaving", "waiting", "reusing"].map(() => {
      const client = new FakeClient();
      client.listenAfter = patience;
      return client;
    }) as [FakeClient, FakeClient, FakeClient];
    const [leaving, waiting] = clients.map((client, i) =>
      i === 2 ? undefined : transport.send(request(), new Scope(client, 0, 0)),
    );
    await until(() => upstream.connections.length === 1, "the connection");
    expect(clients.map(({ listeners }) => listeners.size)).toEqual([1, 1, 0]);
    clients[0].leave();
    expect(await errorOf(() => leaving)).toMatchObject({ status: 499 });
    upstream.connections[0]?.send(settings);
    expect(await textOf((await waiting) as UpstreamResponse)).toBe("whole");
    const scope = new Scope(clients[2], 0, 0);
    const reusing = transport.send(request(), scope);
    expect(clients[2].listeners.size).toBe(0);
    expect(await textOf(await reusing)).toBe("whole");
    expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1, 3]]);
  });

  test("the stream is reset when the app cancels the response body", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) =>
      connection.send(responseHead(id), frame(DATA, 0, id, Buffer.from("half")));
    const response = await proxyTo(url).fetch(get());
    await response.body?.cancel();
    await until(() => upstream.connections[0]?.resets.length === 1, "the stream to be reset");
  });

  test("a stream whose response is complete, but not read by the app, is not reset before its END_STREAM", async () => {
    const [upstream, url] = await raw();
    // The last of these chunks fills the buffer of the response body, which pauses the stream.
    const chunks = [16_000, 16_000, 16_000, 16_000, 2000].map((length) => Buffer.alloc(length));
    upstream.script = (connection, id) => {
      connection.send(responseHead(id, false, field("content-length", "66000")));
      for (const chunk of chunks) connection.send(frame(DATA, 0, id, chunk));
      setTimeout(() => connection.send(frame(DATA, END_STREAM, id)), 50);
    };
    const proxy = proxyTo(url);
    const response = await proxy.fetch(get());
    await until(() => Object.values(proxy.stats()?.origins ?? {})[0]?.free === 1, "it to be idle");
    expect(upstream.connections[0]?.resets).toEqual([]);
    expect((await response.bytes()).length).toBe(66_000);
  });

  test("a stream that the upstream keeps open after a complete response is reset", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) =>
      connection.send(
        responseHead(id, false, field("content-length", "5")),
        frame(DATA, 0, id, Buffer.from("whole")),
      );
    expect(await (await proxyTo(url).fetch(get())).text()).toBe("whole");
    await until(() => upstream.connections[0]?.resets.length === 1, "the stream to be reset");
  });

  test("the upload is cancelled if the response is complete before the upload", async () => {
    const [upstream, url] = await raw();
    let isCancelled = false;
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(Buffer.from("first")),
      cancel: () => void (isCancelled = true),
    });
    const response = await proxyTo(url).fetch(post(body));
    expect([response.status, await response.text()]).toEqual([200, "whole"]);
    await until(() => isCancelled, "the upload to be cancelled");
    await until(() => upstream.connections[0]?.resets.length === 1, "the stream to be reset");
  });

  test("idle connections do not keep the process alive", async () => {
    const [, url] = await raw();
    const entry = new URL("../../../../runtimes/node.ts", import.meta.url).href;
    const code = `
      import { createProxy } from ${JSON.stringify(entry)};
      const proxy = createProxy({ target: ${JSON.stringify(url)}, pool: { http2: true, freeSocketTimeout: 60_000 } });
      console.log(await (await proxy.fetch(new Request("http://a.test/"))).text());
    `;
    await using program = startProgram("node", ["--input-type=module", "-e", code]);
    await program.ended();
    expect([program.code(), program.output()]).toEqual([0, "whole\n"]);
  });
});

describe("sending requests again", () => {
  const streaming = (): ReadableStream =>
    new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from("chunk")) });

  test.each(["GET", "POST"])(
    "RFC 9113 §8.7: a %s without a body is sent again on another connection if its stream is refused",
    async (method) => {
      const [upstream, url] = await raw();
      upstream.script = (connection, id) => {
        const isFirst = upstream.requests === 1;
        connection.send(isFirst ? frame(RST_STREAM, 0, id, uint32(7)) : wholeResponse(id));
      };
      const response = await proxyTo(url).fetch(new Request("http://a.test/", { method }));
      expect([response.status, await response.text()]).toEqual([200, "whole"]);
      expect(upstream.connections.map(({ streams }) => streams)).toEqual([[1], [1]]);
    },
  );

  test.each(["GET", "POST"])(
    "a %s whose stream is above the last stream of GOAWAY is sent again",
    async (method) => {
      const [upstream, url] = await raw();
      upstream.script = (connection, id) => {
        if (upstream.requests > 1) connection.send(wholeResponse(id));
        else connection.send(frame(GOAWAY, 0, 0, uint32(0, 0)));
      };
      const response = await proxyTo(url).fetch(new Request("http://a.test/", { method }));
      expect([response.status, await response.text()]).toEqual([200, "whole"]);
      expect(upstream.connections).toHaveLength(2);
    },
  );

  test("with `retry: false`, each request is sent once", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => connection.send(frame(RST_STREAM, 0, id, uint32(7)));
    const response = await proxyTo(url, {}, { retry: false }).fetch(get());
    expect([response.status, upstream.requests]).toEqual([502, 1]);
  });

  test("an upstream that refuses every stream gets each request twice", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => connection.send(frame(RST_STREAM, 0, id, uint32(7)));
    const response = await proxyTo(url).fetch(get());
    expect([response.status, await response.text()]).toEqual([
      502,
      "Bad Gateway: connection_terminated\n",
    ]);
    expect(upstream.requests).toBe(2);
  });

  test("a request is not sent again if its body was sent and not kept", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) => connection.send(frame(RST_STREAM, 0, id, uint32(7)));
    const response = await proxyTo(url).fetch(post(streaming()));
    expect([response.status, upstream.requests]).toEqual([502, 1]);
  });

  test("requests are not sent again if a new connection breaks", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection) => {
      if (upstream.requests === 2) connection.socket.resetAndDestroy();
    };
    const proxy = proxyTo(url);
    const responses = await Promise.all([proxy.fetch(get()), proxy.fetch(get())]);
    expect(responses.map(({ status }) => status)).toEqual([502, 502]);
    expect(upstream.requests).toBe(2);
  });

  test("a GET is sent again if the upstream closes a reused connection, and a POST is not", async () => {
    const [upstream, url] = await raw();
    const proxy = proxyTo(url);
    let isClosing = false;
    upstream.script = (connection, id) => {
      if (isClosing) connection.socket.resetAndDestroy();
      else connection.send(wholeResponse(id));
      isClosing = false;
    };
    await (await proxy.fetch(get())).text();
    isClosing = true;
    expect((await proxy.fetch(get())).status).toBe(200);
    expect(upstream.connections).toHaveLength(2);
    isClosing = true;
    expect((await proxy.fetch(post())).status).toBe(502);
    expect(upstream.requests).toBe(4);
  });
});

describe("responses whose head and body arrive in one read", () => {
  /** Sends a request to an HTTP/2 upstream; returns the calls with which the proxy has written the response to the client. */
  async function writesOf(
    script: (...args: [...Parameters<RawUpstream["script"]>, string[]]) => void,
  ): Promise<string[]> {
    const [upstream, url] = await raw();
    const proxy = proxyTo(url);
    const writes: string[] = [];
    upstream.script = (connection, id) => script(connection, id, writes);
    const authority = await open(
      createHttp((req, res) => {
        for (const name of ["flushHeaders", "write", "end"] as const) {
          const call = res[name].bind(res) as (...args: unknown[]) => unknown;
          Object.assign(res, {
            [name](...args: unknown[]) {
              const [chunk] = args;
              const text = chunk instanceof Uint8Array ? Buffer.from(chunk).toString() : "";
              writes.push(`${name} ${text}`);
              return call(...args);
            },
          });
        }
        proxy.nodeHandler(req, res);
      }),
    );
    // Only the second request counts, because the first one waits for the connection.
    for (let i = 0; i < 2; i++) {
      writes.length = 0;
      await (await fetch(`http://${authority}/`)).text().catch(() => "cut off");
    }
    return writes;
  }

  test("a complete response is written to the client in one call", async () => {
    expect(await writesOf((connection, id) => connection.send(wholeResponse(id, "small")))).toEqual(
      ["end small"],
    );
  });

  test("a response whose body has reached its Content-Length is written in one call although END_STREAM is late", async () => {
    const writes = await writesOf((connection, id) => {
      const head = responseHead(id, false, field("content-length", "5"));
      connection.send(head, frame(DATA, 0, id, Buffer.from("small")));
    });
    expect(writes).toEqual(["end small"]);
  });

  test("the beginning of a body is written to the client without waiting for the rest", async () => {
    const writes = await writesOf((connection, id, written) => {
      connection.send(responseHead(id), frame(DATA, 0, id, Buffer.from("early, ")));
      void until(() => written.join("").includes("early"), "the beginning")
        .catch(() => {})
        .then(() => connection.send(frame(DATA, END_STREAM, id, Buffer.from("late"))));
    });
    expect(writes.join("|")).toMatch(/^write early, \|(?:write|end) late/);
  });

  test("a response becomes 502 if its body breaks off in the same read, as over HTTP/1.1", async () => {
    const [upstream, url] = await raw();
    upstream.script = (connection, id) =>
      connection.send(
        responseHead(id),
        frame(DATA, 0, id, Buffer.from("half")),
        frame(RST_STREAM, 0, id, uint32(2)),
      );
    const response = await proxyTo(url).fetch(new Request("http://proxy.test/"));
    expect(response.status).toBe(502);
    expect(response.headers.get("proxy-status")).toMatch(/error=http_response_incomplete/);
  });
});
