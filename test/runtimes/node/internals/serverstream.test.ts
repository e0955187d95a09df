/** Request bodies that must be read from the server's web stream: srvx limits the body, or the app has accessed the stream. */
import { once } from "node:events";
import type { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { afterEach, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../../runtimes/node.ts";
import { useApps } from "../../../helpers/apps.ts";
import { within } from "../../../helpers/wait.ts";
import { request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

let proxy: NodeProxy | undefined;
afterEach(() => proxy?.destroy());

const BODY = "x".repeat(1_000_000);

function serve(
  options: Partial<CreateProxyOptions>,
  before?: (req: Readable) => unknown,
  maxRequestBodySize = 10_000_000,
): Promise<number> {
  const { fetch } = (proxy = createProxy({ target: upstream.url, ...options }));
  return apps.serve("srvx", {
    ...(maxRequestBodySize > 0 && { maxRequestBodySize }),
    async fetch(web) {
      await before?.(web.runtime?.node?.req as Readable);
      return fetch(web);
    },
    error: (error) => new Response(String(error), { status: 500 }),
  });
}

test("a body below the limit of the server is sent whole", async () => {
  const port = await serve({});
  expect((await apps.ask(port, request("POST", "/", [], BODY))).status).toBe(200);
  expect(apps.only().length).toBe(BODY.length);
});

test("a body that is not sent does not block the next request on its connection", async () => {
  const port = await serve({
    onRequest: ({ method }) => (method === "POST" ? new Response("mine") : undefined),
  });
  const client = await apps.connect(port);
  client.send(request("POST", "/", [], BODY), request("GET", "/next"));
  expect((await client.read()).text).toBe("mine");
  expect((await within(client.read(), "the next response")).status).toBe(200);
});

test("a body of which middleware has read a part is refused", async () => {
  const port = await serve({}, async (req) => {
    await once(req, "readable");
    req.read(10);
  });
  const client = await apps.connect(port);
  client.send(request("POST", "/", [], BODY));
  const answer = await within(client.read(), "a response");
  expect(answer.status).toBe(500);
  expect(answer.text).toMatch(/TypeError: .*already been read/);
});

test.each([
  ["small", "x"],
  ["large", BODY],
])("a %s body that a parser has read to its end is refused", async (_, body) => {
  const port = await serve({}, (req) => finished(req.resume()), 0);
  const client = await apps.connect(port);
  client.send(request("POST", "/", [], body));
  const answer = await within(client.read(), "a response");
  expect(answer.status).toBe(500);
  expect(answer.text).toMatch(/TypeError: .*already been read.*body parsers/);
  expect(upstream.calls).toEqual([]);
});

test("a body is sent whole if the app has accessed its web stream", async () => {
  const { fetch } = (proxy = createProxy({ target: upstream.url }));
  const port = await apps.serve("srvx", {
    fetch(web) {
      void web.body;
      return fetch(web);
    },
  });
  const client = await apps.connect(port);
  client.send(request("POST", "/", [], BODY));
  expect((await within(client.read(), "a response")).status).toBe(200);
  expect(apps.only().length).toBe(BODY.length);
});
