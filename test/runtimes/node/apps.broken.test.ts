/** Truncated responses, and request bodies that other code reads or decodes, on Node's servers. */
import type { IncomingMessage } from "node:http";
import { Hono } from "hono";
import { toNodeHandler } from "srvx/node";
import { describe, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions } from "../../../runtimes/node.ts";
import { useApps } from "../../helpers/apps.ts";
import { pause, until, within } from "../../helpers/wait.ts";
import { chunk, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

type Options = Partial<CreateProxyOptions>;

const servers: Record<string, (options?: Options) => Promise<number>> = {
  srvx: (options) => {
    const proxy = createProxy({ target: upstream.url, ...options });
    return apps.serve("srvx", { fetch: (web) => proxy.fetch(web) });
  },
  hono: (options) => {
    const proxy = createProxy({ target: upstream.url, ...options });
    return apps.serve(
      "hono",
      new Hono().all("*", (c) => proxy.fetch(c.req.raw)),
    );
  },
};

describe.each(Object.entries(servers))("a server of %s", (_, serve) => {
  test("a truncated pipelined response does not look complete when it ends within a large chunk", async () => {
    upstream.script = async (call) => {
      if (call.target === "/first") return call.reply(200, [], "first");
      const half = chunk("x".repeat(300_000)).subarray(0, 150_000);
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", half);
      call.close();
    };
    const client = await apps.connect(await serve());
    client.send(request("GET", "/first"), request("GET", "/broken"));
    expect(await client.read()).toMatchObject({ status: 200, text: "first" });
    const second = await client.read().catch(() => undefined);
    expect(second?.cut ?? true).toBe(true);
  });

  test("with the option `fetch`, a truncated response to an HTTP/1.0 client ends with a reset of the connection", async () => {
    upstream.script = async (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
      await pause(50);
      call.close();
    };
    const client = await apps.connect(await serve({ fetch: globalThis.fetch }));
    let isReset = false;
    client.socket.on("error", () => (isReset = true));
    client.send("GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n");
    await client.rest().catch(() => {});
    client.finish();
    await within(client.closed, "the connection's end");
    expect(isReset).toBe(true);
  });
});

test("the connection serves its next request although a hook responds while other code reads the request body", async () => {
  const proxy = createProxy({ target: upstream.url, onRequest: () => new Response("mine") });
  const handler = toNodeHandler((web) => proxy.fetch(web));
  const disturb: ((req: IncomingMessage) => void)[] = [
    (req) => void req.on("data", () => {}),
    (req) => void req.resume(),
  ];
  for (const each of disturb) {
    const port = await apps.serve("node", (req, res) => {
      each(req);
      void handler(req as never, res as never);
    });
    const client = await apps.connect(port);
    for (let count = 0; count < 2; count++) {
      client.send(request("POST", "/", [], "x".repeat(400_000)));
      expect(await client.read()).toMatchObject({ status: 200, text: "mine" });
    }
  }
});

test.each(["retry", "bodyLimit"])(
  "with the option %s, a string chunk in the middle of an upload fails the request",
  async (option) => {
    const options: Options = option === "retry" ? { retry: { attempts: 2 } } : { bodyLimit: 1e6 };
    const proxy = createProxy({ target: upstream.url, ...options });
    let isText = false;
    const readAsText = (req: IncomingMessage): void => {
      req.setEncoding("utf8");
      isText = true;
    };
    const port = await apps.serve("node", (req, res) => {
      if (req.headers["x-text"]) setTimeout(() => readAsText(req), 20);
      proxy.nodeHandler(req, res);
    });
    const client = await apps.connect(port);
    client.send(
      request("POST", "/", [
        ["Transfer-Encoding", "chunked"],
        ["X-Text", "1"],
      ]),
      chunk("one"),
    );
    await until(() => isText, "the change of the encoding");
    client.send(chunk("two"), "0\r\n\r\n");
    expect((await client.read()).status).toBeGreaterThanOrEqual(400);
    await until(() => upstream.calls.every(({ state }) => state !== "reading"), "the upload's end");
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
  },
);
