/** `ClientWatch`: clients that read slowly, and the interval of the checks. */
import { createServer } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { ClientConnections } from "../../command/limits/clientconnections.ts";
import { nodeLimits, shareLimits } from "../../command/limits/clientlimits.ts";
import { intervalOf, ClientWatch } from "../../command/limits/clienttimeouts.ts";
import { clientLimitSchema, serverDefaults } from "../../command/flags/commandoptions.ts";
import { defaultsOf } from "../../src/schema/schema.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";

const SEND_TIMEOUT = 800;
const timeouts = { headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 0 };
const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };

test("a client that keeps reading gets a large chunk whole, although that takes longer than the timeout", async () => {
  const chunk = Buffer.alloc(48 * 1024 * 1024);
  const server = createServer((_, res) => res.end(chunk));
  const connections = new ClientConnections(server, unlimited, () => {});
  const slow = new ClientWatch(connections, { ...timeouts, sendTimeout: SEND_TIMEOUT });
  const client = connect(await listen(server), "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  let [size, paused] = [0, 0];
  client.on("data", ({ length }: Buffer) => {
    size += length;
    if (size - paused < 262_144) return;
    paused = size;
    client.pause();
    setTimeout(() => client.resume(), 10);
  });
  const begin = performance.now();
  await within(new Promise((resolve) => client.once("close", resolve)), "the end");
  expect(size).toBeGreaterThan(chunk.length);
  expect(performance.now() - begin).toBeGreaterThan(2 * SEND_TIMEOUT);
  expect(slow.counts).toEqual({ body: 0, read: 0 });
  expect(connections.all.size).toBe(0);
  slow.stop();
  server.close();
});

test("a client that reads an HTTP/2 stream slowly is not cut off, although the send buffer stays equally full", async () => {
  const chunk = Buffer.alloc(16_384);
  let left = 200;
  const server = createHttp2Server((_, res) => {
    const fill = (): void => {
      while (left > 0) {
        left--;
        if (!res.write(chunk)) return;
      }
      res.end();
    };
    res.stream.on("drain", fill);
    fill();
  });
  const connections = new ClientConnections(server, unlimited, () => {});
  const slow = new ClientWatch(connections, { ...timeouts, sendTimeout: SEND_TIMEOUT });
  const session = connectHttp2(`http://127.0.0.1:${await listen(server)}`);
  const stream = session.request();
  let size = 0;
  stream.on("data", ({ length }: Buffer) => {
    size += length;
    stream.pause();
    setTimeout(() => stream.resume(), 10);
  });
  await within(new Promise((resolve) => stream.once("close", resolve)), "the end");
  expect(size).toBe(200 * chunk.length);
  expect(slow.counts).toEqual({ body: 0, read: 0 });
  session.destroy();
  slow.stop();
  server.close();
});

test("the connections are checked eight times within the shortest timeout, and at least every 5 s", () => {
  const sendTimeout = 60_000;
  expect(intervalOf(serverDefaults)).toBe(5_000);
  expect(intervalOf({ ...timeouts, sendTimeout })).toBe(5_000);
  expect(intervalOf({ ...timeouts, sendTimeout, bodyTimeout: 400 })).toBe(50);
  expect(intervalOf({ ...timeouts, sendTimeout: 0 })).toBe(5_000);
});

test("`headersTimeout: 0` turns off the limit for TLS handshakes, for which Node has a default of its own", () => {
  const limits = shareLimits({ ...defaultsOf(clientLimitSchema), headersTimeout: 0 });
  expect(nodeLimits(limits)).toMatchObject({ handshakeTimeout: 2 ** 31 - 1 });
});
