/** srvx with other names for what it does not document: each request and response is right all the same. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../runtimes/node.ts";
import { useApps } from "./_apps.ts";
import { chunk, lastChunk, request } from "./_wire.ts";

const apps = useApps();
const { upstream } = apps;

const proxies: NodeProxy[] = [];
afterEach(async () => {
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
});

function create(options: Partial<CreateProxyOptions> = {}): NodeProxy {
  const proxy = createProxy({ target: upstream.url, ...options });
  proxies.push(proxy);
  return proxy;
}

interface Runtime {
  node?: { req: IncomingMessage; res?: ServerResponse; maxRequestBodySize?: number };
}

/** A request of srvx's that shows something else to the proxy, and not to srvx itself. */
function show(web: Request, change: (runtime: Runtime) => object): Request {
  const { runtime } = web as unknown as { runtime: Runtime };
  return new Proxy(web, {
    get(target, name) {
      if (name === "runtime") return change(runtime);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

const BODY = "x".repeat(100_000);
const inChunks = Buffer.concat([chunk(BODY), lastChunk]);
const upload = Buffer.concat([
  Buffer.from(request("POST", "/upload", [["Transfer-Encoding", "chunked"]])),
  inChunks,
]);

describe("the pair of a request", () => {
  /** The limit under another name. */
  const rename = ({ node }: Runtime): object => ({
    name: "node",
    node: { req: node?.req, res: node?.res, bodyLimit: node?.maxRequestBodySize },
  });

  test("a limit under another name still holds", async () => {
    const proxy = create();
    const port = await apps.serve("srvx", {
      maxRequestBodySize: 1000,
      fetch: (web) => proxy.fetch(show(web, rename)),
      error: () => new Response(null, { status: 500 }),
    });
    const { status } = await apps.ask(port, upload);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
  });

  const changes: Record<string, (runtime: Runtime) => object> = {
    "without the limit": rename,
    "without Node's request": ({ node }) => ({ name: "node", node: { request: node?.req } }),
    "without a pair": () => ({ name: "node" }),
  };

  test.each(Object.keys(changes))("a request %s is forwarded as it is", async (name) => {
    const proxy = create();
    const change = changes[name] as (runtime: Runtime) => object;
    const port = await apps.serve("srvx", { fetch: (web) => proxy.fetch(show(web, change)) });
    const client = await apps.connect(port);
    upstream.script = async (call) => {
      await call.done;
      call.reply(200, [["X-Got", `${call.method} ${call.target} ${call.get("x-name")}`]], "got");
    };
    for (let round = 0; round < 2; round++) {
      client.send(request("GET", "/a?b=%2F", [["X-Name", "n"]]));
      const got = await client.read();
      expect([got.status, got.get("x-got"), got.text]).toEqual([200, "GET /a?b=%2F n", "got"]);
      client.send(upload);
      expect((await client.read()).status).toBe(200);
    }
    const uploads = upstream.calls.filter(({ method }) => method === "POST");
    expect(uploads.map((call) => call.length)).toEqual([BODY.length, BODY.length]);
  });
});

describe("a response", () => {
  const reply = (size: number): void => {
    upstream.script = (call) =>
      call.reply(
        "203 Fine",
        [
          ["Set-Cookie", "a=1"],
          ["Set-Cookie", "b=2"],
          ["X-Name", "n"],
        ],
        "y".repeat(size),
      );
  };

  test.each([0, 10, 1_000_000])(
    "of %i bytes is sent by a server that reads the response as a web one",
    async (size) => {
      reply(size);
      const proxy = create();
      const port = await apps.serve("srvx", {
        fetch: async (web) =>
          Object.defineProperty(await proxy.fetch(web), "_toNodeResponse", { value: undefined }),
      });
      const answer = await apps.ask(port, request("GET", "/"));
      expect([answer.status, answer.length, answer.cut]).toEqual([203, size, false]);
      expect(answer.all("set-cookie")).toEqual(["a=1", "b=2"]);
      expect(answer.get("x-name")).toBe("n");
    },
  );

  test.each([10, 1_000_000])(
    "of %i bytes is sent by a server that leaves the head to the body",
    async (size) => {
      reply(size);
      const proxy = create();
      const port = await apps.serve("node", (req, res) => {
        const web = Object.assign(new Request("http://proxy.test/"), {
          runtime: { node: { req, res, maxRequestBodySize: undefined } },
        });
        const send = async (): Promise<void> => {
          const response = (await proxy.fetch(web)) as unknown as {
            _toNodeResponse(): { body: { pipe(to: ServerResponse): void } };
          };
          response._toNodeResponse().body.pipe(res);
        };
        void send();
      });
      const answer = await apps.ask(port, request("GET", "/"));
      expect([answer.status, answer.reason, answer.length]).toEqual([203, "Fine", size]);
      expect(answer.all("set-cookie")).toEqual(["a=1", "b=2"]);
    },
  );

  test("is of a global Response that was replaced", async () => {
    const { Response: Original } = globalThis;
    class Replaced extends Original {}
    globalThis.Response = Replaced;
    try {
      reply(10);
      const proxy = create();
      const seen: boolean[] = [];
      const port = await apps.serve("srvx", {
        async fetch(web) {
          const response = await proxy.fetch(web);
          seen.push(response instanceof Replaced);
          return response;
        },
      });
      const answer = await apps.ask(port, request("GET", "/"));
      expect([answer.status, answer.text, seen]).toEqual([203, "y".repeat(10), [true]]);
    } finally {
      globalThis.Response = Original;
    }
  });
});
