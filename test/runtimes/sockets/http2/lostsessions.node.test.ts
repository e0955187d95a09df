/** HTTP/2 clients over TLS that reset their connection while the proxy writes to them. */
import { once } from "node:events";
import { connect as connectHttp2, createSecureServer, type Http2SecureServer } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { toNodeHandler } from "srvx/node";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createProxy } from "../../../../runtimes/node.ts";
import { endWhenLost } from "../../../../runtimes/sockets/http2/lostsessions.ts";
import { useApps } from "../../../helpers/apps.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { until } from "../../../helpers/wait.ts";

const apps = useApps();
const { upstream } = apps;
const certificate = await makeCertificate();
const STREAMS = 4;
/** An HTTP/2 window that is larger than the system's buffers of a connection, so that it does not limit a response. */
const WINDOW = 2 ** 30;
const MEGABYTE = Buffer.alloc(2 ** 20, "x");

const handlers = {
  "node:http2": (): unknown => createProxy({ target: upstream.url }).nodeHandler,
  srvx: () => {
    const proxy = createProxy({ target: upstream.url });
    return toNodeHandler((request) => proxy.fetch(request));
  },
};

/** Connects, asks for responses of a gigabyte, and stops reading when each response has begun. */
async function askAndStall(port: number): Promise<Socket> {
  const raw = connectTcp(port, "127.0.0.1");
  const session = connectHttp2(`https://127.0.0.1:${port}`, {
    settings: { initialWindowSize: WINDOW },
    createConnection: () =>
      connectTls({ socket: raw, ALPNProtocols: ["h2"], rejectUnauthorized: false }),
  });
  session.on("error", () => {});
  await once(session, "connect");
  session.setLocalWindowSize(WINDOW);
  let answered = 0;
  for (let i = 0; i < STREAMS; i++) {
    const stream = session.request({ ":path": `/${i}` }).on("error", () => {});
    stream.once("data", () => answered++).resume();
  }
  await until(() => answered === STREAMS, "the beginning of each response");
  raw.pause();
  (raw as unknown as { _handle: { readStop(): void } })._handle.readStop();
  return raw;
}

let server: Http2SecureServer;
const accepted: Socket[] = [];

beforeEach(() => {
  upstream.script = (call) => {
    call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${WINDOW}\r\n\r\n`);
    const { socket } = call.link;
    const fill = (): void => {
      while (socket.writable && socket.write(MEGABYTE));
    };
    socket.on("drain", fill);
    fill();
  };
});
afterEach(() => {
  for (const socket of accepted.splice(0)) socket.destroy();
});

describe.each(Object.entries(handlers))("in %s", (_, makeHandler) => {
  test("requests end soon after the client has reset the connection", async () => {
    server = createSecureServer(certificate, makeHandler() as never);
    server.on("connection", (socket: Socket) => accepted.push(socket));
    server.on("sessionError", () => {});
    const client = await askAndStall(await apps.listen(server));
    const [socket] = accepted as [Socket];
    let sent = -1;
    await until(() => sent === (sent = socket.bytesWritten) && sent > 0, "a write that waits");
    expect(upstream.openLinks).toBe(STREAMS);
    client.resetAndDestroy();
    await until(() => upstream.openLinks === 0, "the end of the upstream's connections", 20_000);
    await until(() => socket.destroyed, "the end of the connection");
  });
});

test("a session whose client does not read, but has not reset the connection, stays open", async () => {
  server = createSecureServer(certificate, handlers["node:http2"]() as never);
  server.on("connection", (socket: Socket) => accepted.push(socket));
  const client = await askAndStall(await apps.listen(server));
  // Wait for several checks of the session while the write is pending.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(upstream.openLinks).toBe(STREAMS);
  client.resetAndDestroy();
  await until(() => upstream.openLinks === 0, "the end");
});

test("a session whose socket has an unknown form is not watched", () => {
  const session = {
    destroyed: false,
    socket: { _handle: {}, _parent: {} },
    once: () => expect.fail("watched"),
  };
  expect(() => endWhenLost(session as never)).not.toThrow();
  expect(() => endWhenLost({ ...session, socket: {} } as never)).not.toThrow();
  expect(() => endWhenLost(undefined)).not.toThrow();
});
