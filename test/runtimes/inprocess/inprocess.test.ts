/**
 * Apps in the same process as targets, on each runtime. test/runtimes/workerd/miniflare.test.ts runs the same cases on workerd.
 */
import { createServer } from "node:http";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { H3 } from "h3";
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { type Client, connect } from "../../helpers/client.ts";
import { cases } from "./_inprocess.ts";
import { digestOf, mebibyte, pour } from "../../helpers/large.ts";
import { listen } from "../../helpers/serve.ts";
import { EVALUATE, startProgram } from "../../helpers/program.ts";
import { until } from "../../helpers/wait.ts";
import { type Header, request } from "../../helpers/wire.ts";

const ROOT = new URL("../../..", import.meta.url).href;

/** Runs all cases as a program on the runtime. */
async function run(runtime: keyof typeof EVALUATE, entry: string): Promise<typeof expected> {
  const code = `
    import { createProxy } from "${ROOT}runtimes/${entry}.ts";
    import { runCases } from "${ROOT}test/runtimes/inprocess/_inprocess.ts";
    console.log("outcomes:" + JSON.stringify(await runCases(createProxy)));
  `;
  await using program = startProgram(runtime, [...EVALUATE[runtime], code]);
  const [, outcomes = ""] = await program.printed(/^outcomes:(.+)$/m);
  return JSON.parse(outcomes) as typeof expected;
}

const expected: Record<string, string | null> = Object.fromEntries(
  Object.keys(cases).map((name) => [name, null]),
);

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  test("all cases of apps in the same process pass with the runtime's own entry", async () => {
    expect(await run(runtime, runtime)).toEqual(expected);
  });
});

test("all cases of apps in the same process pass on Node with the portable entry, fetchway/fetch", async () => {
  expect(await run("node", "fetch")).toEqual(expected);
});

describe("an app in the same process, behind Node's server", () => {
  const answerShort = (): Response =>
    new Response(new Response("four").body, { headers: { "content-length": "5" } });
  /** The signal of the app's last request. */
  let signal: AbortSignal | undefined;
  const isAborted = (): boolean | undefined => signal?.aborted;
  const hono = new Hono()
    .post("/back", (c) => new Response(c.req.raw.body))
    .get("/stream", (c) => {
      ({ signal } = c.req.raw);
      return c.body(new ReadableStream({ start: (out) => out.enqueue(new Uint8Array(1)) }));
    })
    .get("/hang", (c) => {
      ({ signal } = c.req.raw);
      return new Promise<Response>(() => {});
    })
    .get("/short", () => answerShort());
  const h3 = new H3()
    .post("/back", (event) => new Response(event.req.body))
    .get("/stream", (event) => {
      ({ signal } = event.req);
      return new Response(new ReadableStream({ start: (out) => out.enqueue(new Uint8Array(1)) }));
    })
    .get("/hang", (event) => {
      ({ signal } = event.req);
      return new Promise(() => {});
    })
    .get("/short", () => answerShort());

  describe.each(Object.entries({ hono, h3 }))("%s", (_, target) => {
    const proxy = createProxy({ target });
    const server = createServer(proxy.nodeHandler);
    let port = 0;
    beforeAll(async () => void (port = await listen(server)));
    afterAll(() => void server.close());

    async function send(method: string, path: string, fields: Header[] = []): Promise<Client> {
      const client = await connect(port);
      client.send(request(method, path, fields));
      return client;
    }

    test.each([true, false])("large bodies stream both ways (chunked: %s)", async (chunked) => {
      const size = 8 * mebibyte;
      const framing: Header = chunked
        ? ["Transfer-Encoding", "chunked"]
        : ["Content-Length", String(size)];
      const client = await send("POST", "/back", [framing]);
      const [answer] = await Promise.all([
        client.read("POST"),
        pour(client.socket, size, { chunked }),
      ]);
      expect([answer.length, answer.sha256]).toEqual([size, digestOf(size)]);
      client.leave("FIN");
    });

    test.each(["hang", "stream"])(
      "the app's signal aborts when the client disconnects: %s",
      async (path) => {
        signal = undefined;
        const client = await send("GET", `/${path}`);
        if (path === "stream") await client.readHead();
        await until(() => isAborted() !== undefined, "the app's call");
        expect(isAborted()).toBe(false);
        client.leave("RST");
        await until(() => isAborted() === true, "the app's signal");
      },
    );

    test("a body shorter than its Content-Length is truncated by closing the connection", async () => {
      const client = await send("GET", "/short");
      const answer = await client.read();
      expect([answer.status, answer.cut]).toEqual([200, true]);
      client.leave("FIN");
    });
  });
});

test("an app that keeps only the signal of its request is aborted on Node, also after the request was collected", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  let signal: AbortSignal | undefined;
  const app = (asked: Request): Response => {
    ({ signal } = asked);
    return new Response(new ReadableStream({ pull: (sink) => sink.enqueue(new Uint8Array(1)) }));
  };
  const proxy = createProxy({ target: { fetch: app } });
  const reader = (await proxy.fetch(new Request("http://proxy.test/"))).body?.getReader();
  await reader?.read();
  collect();
  await new Promise(setImmediate);
  collect();
  await reader?.cancel();
  expect(signal?.aborted).toBe(true);
  await proxy.close();
});
