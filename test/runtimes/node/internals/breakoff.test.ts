/** Truncated responses do not look complete, even if a version of Node has renamed the members that the proxy uses. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { afterEach, expect, test } from "vitest";
import { createProxy, type NodeProxy } from "../../../../runtimes/node.ts";
import { breakOffRequest } from "../../../../runtimes/node/internals/breakoff.ts";
import { useApps } from "../../../helpers/apps.ts";
import { hide, hideOnSocket } from "../_hidden.ts";
import { pause, within } from "../../../helpers/wait.ts";
import { chunk, request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

let proxy: NodeProxy | undefined;
afterEach(() => proxy?.destroy());

type Handler = (proxy: NodeProxy, req: IncomingMessage, res: ServerResponse) => void;

function serve(handler: Handler): Promise<number> {
  const current = (proxy = createProxy({ target: upstream.url }));
  return apps.serve("node", (req, res) => handler(current, req, res));
}

/** Makes the upstream truncate its responses. */
function breakOffLater(): void {
  upstream.script = async (call) => {
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    await pause(50);
    call.close();
  };
}

test("after a truncated response, the connection is reset if Node does not show the response's transfer coding", async () => {
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

/**
 * Starts a server that, like @hono/node-server, ends each response as if it were complete although its stream has
 * failed.
 */
function serveOrderly(change: (req: IncomingMessage) => IncomingMessage): Promise<number> {
  return apps.serve("node", (req, res) => {
    res.write("half");
    breakOffRequest(change(req));
    res.end("Error");
  });
}

const renamed = (req: IncomingMessage): IncomingMessage => hideOnSocket(req, "_httpMessage");

test.each([
  ["on this Node", (req: IncomingMessage) => req],
  ["on a Node that does not show the current response", renamed],
])("a response whose stream fails does not look complete %s", async (_, change) => {
  const client = await apps.connect(await serveOrderly(change));
  client.send(request("GET", "/broken"));
  const answer = await client.read().catch(() => undefined);
  expect(answer?.cut ?? true).toBe(true);
});
