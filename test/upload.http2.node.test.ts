/**
 * Uploads over HTTP/2 that the client resets. The test writes raw frames, because no client library would send them.
 */
import { once } from "node:events";
import { connect as connectHttp2, createServer as createHttp2, type Http2Server } from "node:http2";
import { connect as connectTcp } from "node:net";
import { toNodeHandler } from "srvx/node";
import { describe, expect, test } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { useApps } from "./_apps.ts";
import { field, frame } from "./_frames.ts";
import { pause, until } from "./_wait.ts";

const apps = useApps();
const { upstream } = apps;

const HALF = "x".repeat(3000);

describe.each(["node:http2", "srvx"])("HTTP/2, %s: a stream that the client resets", (kind) => {
  async function serve(): Promise<Http2Server> {
    const proxy = createProxy({ target: upstream.url });
    const handler =
      kind === "srvx" ? toNodeHandler((web) => proxy.fetch(web)) : (proxy.nodeHandler as unknown);
    const server = createHttp2({}, handler as never);
    await apps.listen(server);
    return server;
  }

  test.each([
    ["NO_ERROR", 0],
    ["CANCEL", 8],
  ])("with %s never looks complete", async (_, code) => {
    const server = await serve();
    const { port } = server.address() as { port: number };
    const head = frame(
      1,
      4,
      1,
      Buffer.concat([
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":authority", "proxy.test"),
        field(":path", "/"),
      ]),
    );
    const data = frame(0, 0, 1, Buffer.from(HALF));
    const reset = frame(3, 0, 1, Buffer.from([0, 0, 0, code]));
    for (let round = 0; round < 30; round++) {
      const socket = connectTcp(port, "127.0.0.1").resume();
      socket.on("error", () => {});
      await once(socket, "connect");
      socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
      socket.write(frame(4, 0, 0));
      if (round % 3 === 0) socket.write(Buffer.concat([head, data, reset]));
      else {
        socket.write(Buffer.concat([head, data]));
        await pause(round % 10);
        socket.write(round % 3 === 1 ? reset : Buffer.concat([data, reset]));
      }
      await pause(10);
      socket.destroy();
    }
    await until(() => upstream.calls.every(({ state }) => state !== "reading"), "all uploads' end");
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
    expect(upstream.calls.length).toBeGreaterThan(0);
  });

  test("a stream that the client ends arrives completely", async () => {
    const server = await serve();
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
    const stream = session.request({ ":method": "POST", ":path": "/" });
    stream.write(HALF);
    await pause(20);
    stream.end(HALF);
    await once(stream.resume(), "end");
    session.destroy();
    expect(upstream.calls.map(({ text, state }) => [text, state])).toEqual([
      [HALF + HALF, "complete"],
    ]);
  });
});
