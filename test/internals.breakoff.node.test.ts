/** Responses that fail, under a Node whose members have other names: none of them looks complete. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { afterEach, expect, test } from "vitest";
import { createProxy, type NodeProxy } from "../runtimes/node.ts";
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
  return apps.serveNode((req, res) => handler(current, req, res));
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
  client.send(request("GET", "/slow"), request("GET", "/broken"));
  await upstream.call(1);
  client.finish();
  await within(client.closed, "the connection's end");
});

test.each(["", "pipelined "])("a stream that fails breaks off its %sresponse", async (way) => {
  breakOffLater();
  const port = await serve(({ fetch }, req, res) => {
    const listener = getRequestListener(fetch, {
      overrideGlobalObjects: false,
      errorHandler: () => {},
    });
    void listener(hideOnSocket(req, "_httpMessage"), res);
  });
  const client = await apps.connect(port);
  client.send(...(way === "" ? [] : [request("GET", "/slow")]), request("GET", "/broken"));
  await until(() => upstream.calls.some(({ target }) => target === "/broken"), "the request");
  const answer = await within(
    client.read().catch(() => undefined),
    "the response's end",
  );
  expect(answer?.cut ?? true).toBe(true);
});
