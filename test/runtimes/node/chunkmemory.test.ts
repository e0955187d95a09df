/** The memory of large chunks is freed once they are sent. */
import { once } from "node:events";
import { get, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import * as streams from "node:stream";
import { buffer } from "node:stream/consumers";
import type { Duplex } from "node:stream";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { bodyOf, startHttp, startSeeded } from "./_kept.ts";
import { type Fetch, type Handlers, serve, type ServerKind } from "../../helpers/serve.ts";

const LENGTH = 4_000_000;

const upstream = await startSeeded();
const sink = await startHttp((req, res) => {
  void buffer(req).then(({ length }) => res.end(`${length}`));
});
const proxy = createProxy({ target: upstream.url });
const uploading = createProxy({ target: sink.url });

afterAll(async () => {
  await Promise.all([proxy.close(), uploading.close()]);
  upstream.server.close();
  sink.server.close();
});

const { transfer } = ArrayBuffer.prototype as unknown as {
  transfer: (this: ArrayBuffer, length: number) => ArrayBuffer;
};
/** The number of bytes whose memory was freed. */
let freed = 0;

beforeEach(() => {
  freed = 0;
  Reflect.set(ArrayBuffer.prototype, "transfer", function (this: ArrayBuffer, length: number) {
    freed += this.byteLength - length;
    return transfer.call(this, length);
  });
});
afterEach(() => void Reflect.set(ArrayBuffer.prototype, "transfer", transfer));

async function download(url: string): Promise<void> {
  const [response] = (await once(get(url), "response")) as [IncomingMessage];
  expect((await buffer(response)).equals(bodyOf(1, LENGTH))).toBe(true);
}

async function upload(url: string, headers: Record<string, string>): Promise<void> {
  const sent = request(url, { method: "POST", headers });
  sent.end(bodyOf(1, LENGTH));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  expect((await buffer(response)).toString()).toBe(`${LENGTH}`);
}

async function start(kind: ServerKind, { nodeHandler, fetch }: typeof proxy): Promise<string> {
  const handler = kind === "node" ? nodeHandler : (fetch as Fetch);
  const { port, close } = await serve(kind, handler as Handlers[typeof kind]);
  afterAll(close);
  return `http://127.0.0.1:${port}`;
}

describe.each(["node", "srvx", "h3", "hono"] as const)(
  "memory of chunks that were sent, on %s",
  (kind) => {
    test.each(["sized", "chunks"])("over 90 % of a response (%s) is freed", async (framing) => {
      const url = await start(kind, proxy);
      await download(`${url}/1/${LENGTH}/${framing}`);
      expect(freed / LENGTH).toBeGreaterThan(0.9);
    });

    test("over 90 % of an upload with Content-Length is freed", async () => {
      await upload(await start(kind, uploading), { "content-length": `${LENGTH}` });
      expect(freed / LENGTH).toBeGreaterThan(0.9);
    });
  },
);

/**
 * Sends a body through a tunnel to an upstream that echoes it.
 * @param connect connects to the server with another kind of stream
 */
async function echo(
  onSocket: (socket: Duplex) => void = () => {},
  connect?: (server: Server) => Duplex,
): Promise<void> {
  const echoing = await startHttp(() => {});
  echoing.server.on("upgrade", (_req, socket) => {
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
    );
    socket.pipe(socket);
  });
  const tunneling = createProxy({ target: echoing.url, upgrades: ["echo"] });
  const { server, url } = await startHttp(tunneling.nodeHandler);
  server.on("upgrade", (_req, socket) => onSocket(socket));
  tunneling.attach(server);
  const headers = { connection: "upgrade", upgrade: "echo" };
  const createConnection = connect && ((): Duplex => connect(server));
  const asked = get(url, { headers, ...(createConnection && { createConnection }) });
  const [, socket] = (await once(asked, "upgrade")) as [unknown, Duplex];
  socket.end(bodyOf(1, LENGTH));
  expect((await buffer(socket)).equals(bodyOf(1, LENGTH))).toBe(true);
  await tunneling.close();
  server.close();
  echoing.server.close();
}

test("most memory of the chunks of a tunnel is freed, in both directions", async () => {
  await echo();
  expect(freed / LENGTH).toBeGreaterThan(1.8);
});

test("a tunnel does not free the client's chunks if other code listens to the client's socket", async () => {
  await echo((socket) => socket.on("data", () => {}));
  expect(freed / LENGTH).toBeLessThan(1.1);
});

// Node has `duplexPair` from 22.6 on.
test.skipIf(streams.duplexPair === undefined)(
  "a tunnel frees no chunks if the client's connection is not a socket, but a stream in the same process",
  async () => {
    await echo(undefined, (server) => {
      const [near, far] = streams.duplexPair();
      server.emit("connection", near);
      return far;
    });
    expect(freed).toBe(0);
  },
);

test("the chunks of a response are not freed if its `write` is wrapped", async () => {
  const { server, url } = await startHttp((req, res: ServerResponse) => {
    const write = res.write.bind(res) as (...args: unknown[]) => boolean;
    res.write = (...args: unknown[]) => write(...args);
    proxy.nodeHandler(req, res);
  });
  await download(`${url}/1/${LENGTH}/sized`);
  expect(freed).toBe(0);
  server.close();
});

test("the chunks of an upload are not freed if other code listens for them", async () => {
  const { server, url } = await startHttp((req, res) => {
    req.on("data", () => {});
    uploading.nodeHandler(req, res);
  });
  await upload(url, { "content-length": `${LENGTH}` });
  expect(freed).toBe(0);
  server.close();
});

test("chunks of a body that the app reads keep their memory", async () => {
  const response = await proxy.fetch(new Request(`http://proxy.test/1/${LENGTH}/sized`));
  expect(Buffer.from(await response.arrayBuffer()).equals(bodyOf(1, LENGTH))).toBe(true);
  expect(freed).toBe(0);
});
