/** When small request bodies arrive, and what is sent of them. */
import { Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { useApps } from "./_apps.ts";
import type { Client } from "./_client.ts";
import { pause, until } from "./_wait.ts";
import { request } from "./_wire.ts";

const apps = useApps();
const { upstream } = apps;

const BODY = "x".repeat(1000);

test("a body that arrives with its head leaves in one write with the head", async () => {
  const proxy = createProxy({ target: upstream.url });
  const { port } = upstream;
  const front = await apps.serve("node", proxy.nodeHandler);
  const client = await apps.connect(front);
  // The first request waits for a connection, and its body arrives meanwhile.
  await ask(client);
  const write = vi.spyOn(Socket.prototype, "write");
  try {
    await ask(client);
    const sockets = write.mock.contexts as readonly Socket[];
    const heads = write.mock.calls.filter((_, at) => sockets[at]?.remotePort === port);
    expect(heads.map(([bytes]) => Buffer.from(bytes).toString().endsWith(BODY))).toEqual([true]);
  } finally {
    write.mockRestore();
  }
  await proxy.close();
});

async function ask(client: Client): Promise<void> {
  client.send(request("POST", "/", [], BODY));
  expect((await client.read()).text).toBe(BODY);
}

test("a body that arrives later than its head is whole", async () => {
  const proxy = createProxy({ target: upstream.url });
  const port = await apps.serve("node", proxy.nodeHandler);
  const client = await apps.connect(port);
  client.send(request("POST", "/", [["Content-Length", "2000"]]));
  await until(() => upstream.calls.length === 1, "the head at the upstream");
  client.send(BODY);
  await pause(20);
  client.send(BODY);
  expect((await client.read()).length).toBe(2000);
  expect(apps.only().text).toBe(BODY + BODY);
  await proxy.close();
});
