/** Kept connections that the upstream closes just when they are reused. */
import type { Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createTransport } from "../../../runtimes/node.ts";
import { Scope } from "../../../src/transport/scope.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { parseTarget } from "../../../src/target/target.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import type { Transport } from "../../../src/transport/port.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import {
  bytes,
  errorOf,
  FakeClient,
  fakeRequest,
  fakeScope,
  type Given,
  streamOf,
  textOf,
} from "../../helpers/fakes.ts";
import type { Call } from "../../helpers/link.ts";
import { listen } from "../../helpers/serve.ts";
import { type Script, Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterAll(() => upstream.stop());

let transport: Transport;
beforeEach(() => {
  transport = createTransport();
});
afterEach(async () => {
  transport.destroy?.();
  await upstream.reset();
});

function use(options: PoolOptions): void {
  transport = createTransport(options);
}

async function send(over: Given<UpstreamRequest> = {}, scope = fakeScope()): Promise<string> {
  const hop = fakeRequest({ upstream: parseTarget(upstream.url), ...over });
  const reply = await transport.send(hop, scope);
  return `${reply.status} ${await textOf(reply)}`;
}

/** Answers the first request on each connection, and runs `later` for the others. */
function answerOnce(later: Script): void {
  upstream.script = (call) =>
    call.link.calls.length === 1 ? call.reply(200, [], "first") : later(call);
}

const FIN = (call: Call): void => call.close();
const RST = (call: Call): void => call.reset();
const closings = { FIN, RST };

describe("connections that count as stale", () => {
  test.each(Object.entries(closings))(
    "a reused connection that is closed by %s is stale, for any method",
    async (_, close) => {
      answerOnce(close);
      for (const method of ["GET", "HEAD", "PUT", "POST"]) {
        const body = method.startsWith("P") ? bytes("a body") : null;
        await send();
        expect(await errorOf(() => send({ method, body }))).toMatchObject({
          code: "connection_terminated",
          stale: true,
        });
      }
      expect(upstream.calls).toHaveLength(8);
    },
  );

  test("a reused connection that is closed during an upload is stale", async () => {
    answerOnce(RST);
    await send();
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(65_536)),
    });
    const error = await errorOf(() => send({ method: "POST", body: endless }));
    expect(error).toMatchObject({ code: "connection_terminated", stale: true });
  });

  test.each(["FIN", "RST"])(
    "a reused TLS connection that is closed by %s is stale",
    async (how) => {
      const { cert, key } = await makeCertificate();
      const raw = new Map<number, Socket>();
      const server = createTlsServer({ cert, key }, (socket) => {
        socket.on("error", () => {});
        let requests = 0;
        socket.on("data", () => {
          if (requests++ === 0) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
          else if (how === "FIN") socket.end();
          else raw.get(socket.remotePort as number)?.resetAndDestroy();
        });
      });
      server.on("connection", (socket: Socket) => raw.set(socket.remotePort as number, socket));
      const port = await listen(server);
      const to = parseTarget({ url: `https://localhost:${port}`, tls: { ca: cert } });
      await send({ upstream: to });
      const error = await errorOf(() => send({ upstream: to }));
      server.close();
      expect(error).toMatchObject({ code: "connection_terminated", stale: true });
    },
  );
});

describe("connections that do not count as stale", () => {
  const first = "HTTP/1.1 200 OK\r\n";

  test.each<[string, Script]>([
    ["after a byte of the response", (call) => (call.write("H"), call.close())],
    ["after some fields", (call) => (call.write(first), call.close())],
    ["after a 103", (call) => (call.write("HTTP/1.1 103 Early Hints\r\n\r\n"), call.close())],
    ["after bytes that are not HTTP", (call) => call.write("220 smtp\r\n")],
  ])("a connection that is closed %s is not stale", async (_, script) => {
    answerOnce(script);
    await send();
    expect(await errorOf(send)).toMatchObject({ name: "ProxyError", stale: false });
    expect(upstream.links).toHaveLength(1);
  });

  test.each(Object.entries(closings))(
    "a new connection that is closed by %s is not stale",
    async (_, close) => {
      upstream.script = close;
      expect(await errorOf(send)).toMatchObject({ code: "connection_terminated", stale: false });
      expect(await errorOf(send)).toMatchObject({ code: "connection_terminated", stale: false });
    },
  );

  test("a connection is not stale if the client disconnects, or if `timeout` ends the request", async () => {
    answerOnce(() => {});
    await send();
    const client = new FakeClient();
    const left = errorOf(() => send({}, new Scope(client, 0, 0)));
    await upstream.call(1);
    client.leave();
    expect(await left).toMatchObject({ status: 499, stale: false });
    await send();
    const late = await errorOf(() => send({}, new Scope(new FakeClient(), 100, 0)));
    expect(late).toMatchObject({ code: "http_response_timeout", stale: false });
  });
});

describe("kept connections that the upstream has already closed", () => {
  // The operating system has received the FIN or RST, but the transport has not processed it yet.
  const closes: Record<string, (socket: Socket) => void> = {
    FIN: (socket) => socket.end(),
    RST: (socket) => socket.resetAndDestroy(),
  };

  test.each(Object.entries(closes))(
    "no request fails, not even a POST, if the connection is closed by %s before it is reused",
    async (_, close) => {
      upstream.script = async (call) => {
        await call.done;
        call.reply(200, [], call.body);
      };
      const bodies = [null, bytes("a body"), streamOf(["a ", "body"])];
      for (const [index, body] of bodies.entries()) {
        await send();
        close((await upstream.call(2 * index)).link.socket);
        expect(await send({ method: "POST", body })).toBe(body === null ? "200 " : "200 a body");
        // Close all kept connections, because the next request would reuse one of them.
        transport.destroy?.();
        transport = createTransport();
      }
      expect(upstream.links).toHaveLength(6);
      expect(upstream.calls).toHaveLength(6);
    },
  );
});

describe("requests with `newConnection: true`", () => {
  const fresh = { newConnection: true };

  test("the request gets a new connection, and this connection is kept", async () => {
    upstream.script = (call) => call.reply(200, [], String(call.link.id));
    expect([await send(), await send(), await send(fresh), await send()]).toEqual([
      "200 0",
      "200 0",
      "200 1",
      "200 1",
    ]);
  });

  test("at the limit, a free connection is closed to make room for the new connection", async () => {
    use({ maxSockets: 1 });
    upstream.script = (call) => call.reply(200, [], String(call.link.id));
    expect([await send(), await send(fresh), await send()]).toEqual(["200 0", "200 1", "200 1"]);
    await until(() => upstream.links[0]?.isClosed === true, "the free connection's end");
  });

  test("the request waits in the queue, and does not use the connection that becomes free", async () => {
    use({ maxSockets: 1 });
    upstream.script = () => {};
    const answers = [send(), send(fresh), send()];
    for (let index = 0; index < 3; index++) {
      const call = await upstream.call(index);
      call.reply(200, [], String(call.link.id));
    }
    expect(await Promise.all(answers)).toEqual(["200 0", "200 1", "200 1"]);
  });
});
