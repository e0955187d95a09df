/** When small request bodies arrive, and what is sent of them. */
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { useApps } from "./_apps.ts";
import { pause, until } from "./_wait.ts";
import { request } from "./_wire.ts";

const apps = useApps();
const { upstream } = apps;

const BODY = "x".repeat(1000);

test("a body that arrives with its head leaves in one write with the head", async () => {
  const reads: string[] = [];
  const raw = createServer((socket) =>
    socket.on("data", (bytes) => {
      reads.push(bytes.toString("latin1"));
      if (reads.join("").endsWith(BODY)) socket.end("HTTP/1.1 204 No Content\r\n\r\n");
    }),
  );
  const other = createProxy({ target: `http://127.0.0.1:${await apps.listen(raw)}` });
  const port = await apps.serveNode(other.nodeHandler);
  expect((await apps.ask(port, request("POST", "/", [], BODY))).status).toBe(204);
  expect(reads).toHaveLength(1);
  expect(reads[0]?.startsWith("POST / HTTP/1.1\r\n")).toBe(true);
  await other.close();
});

test("a body that arrives later than its head is whole", async () => {
  const proxy = createProxy({ target: upstream.url });
  const port = await apps.serveNode(proxy.nodeHandler);
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
