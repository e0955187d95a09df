/** The number of bytes that a socket has not sent yet while the client reads slowly. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { expect, test } from "vitest";
import { countUnsent } from "../../command/limits/writequeue.ts";
import { listen } from "../helpers/serve.ts";
import { until } from "../helpers/wait.ts";

test("the number of unsent bytes decreases while the client reads one large chunk", async () => {
  const server = createServer();
  const port = await listen(server);
  const client = connect(port, "127.0.0.1").pause();
  const [socket] = (await once(server, "connection")) as [Socket];
  expect(countUnsent(socket)).toBe(0);
  const chunk = Buffer.alloc(64 * 1024 * 1024);
  let isWritten = false;
  socket.write(chunk, () => (isWritten = true));
  const before = countUnsent(socket);
  expect(before).toBeGreaterThan(0);
  // Node's own counter changes only when the whole chunk is sent.
  expect(socket.writableLength).toBe(chunk.length);
  client.resume();
  await until(() => countUnsent(socket) < before || isWritten, "progress");
  expect(isWritten).toBe(false);
  expect(socket.writableLength).toBe(chunk.length);
  client.destroy();
  socket.destroy();
  server.close();
});

test("a socket that does not expose its queue counts as having no unsent bytes", () => {
  expect(countUnsent({} as Socket)).toBe(0);
  expect(countUnsent({ _handle: null } as unknown as Socket)).toBe(0);
});
