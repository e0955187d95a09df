/** On Workers, uploads that break off leave no uncaught exception, which workerd would report and `wrangler dev` print. */
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { Miniflare, type MiniflareOptions } from "miniflare";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../../helpers/client.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until, within } from "../../helpers/wait.ts";
import { chunk, request } from "../../helpers/wire.ts";

const upstream = new Upstream();
let miniflare: Miniflare;
let inspector: WebSocket;
let port = 0;
let uncaught: string[] = [];

async function bundle(): Promise<object> {
  const contents = `
    import { createProxy } from "./runtimes/workerd.ts";
    const proxy = createProxy({ target: ${JSON.stringify(upstream.url)} });
    export default {
      fetch(request, env, execution) {
        if (!request.url.endsWith("/control")) return proxy.fetch(request);
        execution.waitUntil(Promise.reject(new Error("control")));
        return new Response();
      },
    };`;
  const resolveDir = fileURLToPath(new URL("../../../", import.meta.url));
  const { outputFiles } = await build({
    stdin: { contents, resolveDir },
    bundle: true,
    write: false,
    format: "esm",
    target: "es2024",
    conditions: ["workerd"],
  });
  return {
    mainModule: "index.mjs",
    modulesRoot: "/",
    modules: { "index.mjs": { type: "esm", contents: outputFiles[0]?.text ?? "" } },
  };
}

async function watchInspector(url: URL): Promise<WebSocket> {
  const list = await fetch(`http://${url.host}/json`);
  const [target] = (await list.json()) as { webSocketDebuggerUrl: string }[];
  const socket = new WebSocket(target?.webSocketDebuggerUrl as string);
  socket.on("message", (data: Buffer) => {
    const { method, params } = JSON.parse(data.toString()) as {
      method?: string;
      params: { exceptionDetails: { text: string } };
    };
    if (method === "Runtime.exceptionThrown") uncaught.push(params.exceptionDetails.text);
  });
  await within(once(socket, "open"), "the inspector");
  socket.send(JSON.stringify({ id: 1, method: "Runtime.enable" }));
  return socket;
}

beforeAll(async () => {
  await upstream.listen();
  miniflare = new Miniflare({
    host: "127.0.0.1",
    port: 0,
    inspectorHost: "127.0.0.1",
    inspectorPort: 0,
    cf: false,
    telemetry: { enabled: false },
    handleStructuredLogs() {},
    workers: [
      {
        config: {
          name: "proxy",
          compatibilityDate: "2026-10-01",
          compatibilityFlags: ["enable_request_signal"],
          manifest: await bundle(),
        },
        dev: { unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }] },
      },
    ],
  } as MiniflareOptions);
  await miniflare.ready;
  port = Number((await miniflare.unsafeGetDirectURL("proxy")).port);
  inspector = await watchInspector(await miniflare.getInspectorURL());
});
afterEach(async () => {
  await upstream.reset();
  uncaught = [];
});
afterAll(async () => {
  inspector.terminate();
  await miniflare.dispose();
  await upstream.stop();
});

const chunked = chunk("a".repeat(10_000));
const uploads: [framing: string, field: [string, string], part: string | Uint8Array][] = [
  ["chunked", ["Transfer-Encoding", "chunked"], chunked],
  ["with a length", ["Content-Length", "500000"], "a".repeat(100_000)],
  ["with a length, the first chunk incomplete", ["Content-Length", "500000"], "a".repeat(10)],
];

test.each(uploads.flatMap((upload) => [["RST", ...upload] as const, ["FIN", ...upload] as const]))(
  "a client that disconnects by %s during an upload %s leaves no uncaught exception",
  async (how, _framing, field, part) => {
    upstream.script = () => {};
    const client = await connect(port);
    client.send(request("POST", "/", [field]), part);
    const call = await upstream.call();
    await until(() => call.body.length > 0, "a part of the upload");
    client.leave(how);
    await within(call.link.closed, "the end of the upstream's connection");
    // The exceptions arrive in order: those of the upload would come before the exception of /control.
    const control = await connect(port);
    control.send(request("GET", "/control"));
    await control.read();
    control.leave("FIN");
    await until(() => uncaught.some((text) => text.includes("control")), "the last exception");
    expect(uncaught.filter((text) => !text.includes("control"))).toEqual([]);
  },
);
