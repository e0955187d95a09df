/** Responses that fail, under a Node whose members have other names: none of them looks complete. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { afterEach, expect, test } from "vitest";
import { createProxy, type NodeProxy } from "../runtimes/node.ts";
import { breakOffRequest } from "../runtimes/node/internals/breakoff.ts";
import { useApps } from "./_apps.ts";
import { hide, hideOnSocket } from "./_hidden.ts";
import { pause, until, within } from "./_wait.ts";
import { chunk, request } from "./_wire.ts";

const apps = useApps();
const { upstream } = apps;

let proxy: NodeProxy | undefined;
afterEach(() => proxy?.destroy());

type Handler = (proxy: NodeProxy, req: IncomingMessage, res: ServerResponse) => void;

function serve(handler: Handler): Promise<number> {
  const current = (proxy = createProxy({ target: upstream.url }));
  return apps.serve("node", (req, res) => handler(current, req, res));
}

/** An upstream whose response breaks off, except the one to `/slow`, which never begins. */
function breakOffLater(): void {
  upstream.script = async (call) => {
    if (call.target === "/slow") return;
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    await pause(50);
    call.close();
  };
}

test("a response that does not show its coding is reset", async () => {
  breakOffLater();
  const port = await serve(({ nodeHandler }, req, res) =>
    nodeHandler(req, hide(res, "chunkedEncoding", "useChunkedEncodingByDefault")),
  );
  const client = await apps.connect(port);
  let isReset = false;
  client.socket.on("error", () => (isReset = true));
  client.send(request("GET", "/"));
  await client.rest().catch(() => {});
  client.finish();
  await within(client.closed, "the connection's end");
  expect(isReset).toBe(true);
});

test("a response that gets no socket is broken off with its connection", async () => {
  breakOffLater();
  const port = await serve(({ nodeHandler }, req, res) =>
    nodeHandler(req, hide(res, "assignSocket")),
  );
  const client = await apps.connect(port);
  let isOver = false;
  client.socket.on("end", () => (isOver = true)).on("close", () => (isOver = true));
  client.send(request("GET", "/slow"), request("GET", "/broken"));
  await until(() => isOver, "the connection's end");
});

/** A server that ends each response as if it were complete, although its stream has failed (@hono/node-server). */
function serveOrderly(change: (req: IncomingMessage) => IncomingMessage): Promise<number> {
  return apps.serve("node", (req, res) => {
    res.write("half");
    if (req.url === "/slow") return void setTimeout(() => res.end(), 50);
    breakOffRequest(change(req));
    res.end("Error");
  });
}

const renamed = (req: IncomingMessage): IncomingMessage => hideOnSocket(req, "_httpMessage");

test.each([
  ["on this Node", (req: IncomingMessage) => req],
  ["on a Node that does not show the current response", renamed],
])("a stream that fails does not look complete %s", async (_, change) => {
  const client = await apps.connect(await serveOrderly(change));
  client.send(request("GET", "/broken"));
  const answer = await client.read().catch(() => undefined);
  expect(answer?.cut ?? true).toBe(true);
});

test.each([
  ["on this Node", (req: IncomingMessage) => req, "half"],
  ["on a Node that does not show the current response", renamed, undefined],
])("a pipelined stream that fails does not look complete %s", async (_, change, first) => {
  const client = await apps.connect(await serveOrderly(change));
  client.send(request("GET", "/slow"), request("GET", "/broken"));
  const slow = await client.read().catch(() => undefined);
  expect(slow?.cut === false ? slow.text : undefined).toBe(first);
  const broken = await client.read().catch(() => undefined);
  expect(broken?.cut ?? true).toBe(true);
});
