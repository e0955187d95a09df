/** Requests and responses are correct even if srvx renames its undocumented properties. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../../runtimes/node.ts";
import type { SrvxParts } from "../../../../runtimes/node/internals/srvx.ts";
import { useApps } from "../../../helpers/apps.ts";
import { until, within } from "../../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../../helpers/wire.ts";

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

/** Returns a srvx request whose `runtime` is changed for the proxy, but not for srvx itself. */
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

/** A request with its own getter for `body`, like srvx's class. */
class ServerRequest extends Request {
  override get body(): Request["body"] {
    return super.body;
  }
}

const BODY = "x".repeat(100_000);
const inChunks = Buffer.concat([chunk(BODY), lastChunk]);
const upload = Buffer.concat([
  Buffer.from(request("POST", "/upload", [["Transfer-Encoding", "chunked"]])),
  inChunks,
]);

describe("the property of srvx's request that holds Node's request and response", () => {
  /** Renames the property with the body limit. */
  const rename = ({ node }: Runtime): object => ({
    name: "node",
    node: { req: node?.req, res: node?.res, bodyLimit: node?.maxRequestBodySize },
  });

  test("the server's body limit still holds if srvx renames the limit", async () => {
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
    "without `node`": () => ({ name: "node" }),
  };

  test.each(Object.keys(changes))(
    "if it is %s, the request is forwarded unchanged",
    async (name) => {
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
    },
  );
});

describe("a response of the proxy", () => {
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
    "a response of %i bytes is sent by a server that uses the methods of a web Response",
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
    "a response of %i bytes is sent with its head if the server only calls `pipe` of the body",
    async (size) => {
      reply(size);
      const proxy = create();
      const port = await apps.serve("node", (req, res) => {
        const web = Object.assign(new ServerRequest("http://proxy.test/"), {
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

  test("the first response of the proxy is already an instance of Response", async () => {
    vi.resetModules();
    const { SrvxResponse } = await import("../../../../runtimes/node/internals/srvx.ts");
    class Own extends SrvxResponse {
      protected toSrvxParts(): SrvxParts {
        return { status: 204, statusText: "", headers: [], body: null };
      }
    }
    expect(new Own()).toBeInstanceOf(Response);
  });

  test("a response of the proxy is an instance of a class that has replaced the global Response", async () => {
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

describe("a request that an app has built", () => {
  /** Copies srvx's `runtime` to a new request, as h3 does for a request to one of its own routes. */
  function rebuild(web: Request, init: RequestInit): Request {
    const { runtime } = web as unknown as { runtime: Runtime };
    return Object.assign(new Request(web.url, init), { runtime });
  }

  function serveRebuilt(
    init: (web: Request) => RequestInit | Promise<RequestInit>,
  ): Promise<number> {
    const proxy = create();
    return apps.serve("srvx", async (web) => proxy.fetch(rebuild(web, await init(web))));
  }

  test("a request with another body reaches the upstream with the length and the fields of the new request", async () => {
    const port = await serveRebuilt(() => ({
      method: "PUT",
      body: "another body",
      headers: { "x-own": "1" },
    }));
    const sent = request("POST", "/", [["X-First", "1"]], "the first body");
    expect((await apps.ask(port, sent)).status).toBe(200);
    const call = apps.only();
    expect([call.method, call.body.toString(), call.get("x-own")]).toEqual([
      "PUT",
      "another body",
      "1",
    ]);
    expect(call.get("x-first")).toBeUndefined();
    expect(call.get("x-forwarded-for")).toBe("127.0.0.1");
  });

  test("a POST with a body reaches the upstream although the client has sent a GET", async () => {
    const port = await serveRebuilt(() => ({ method: "POST", body: "made here" }));
    expect((await apps.ask(port, request("GET", "/"))).status).toBe(200);
    expect([apps.only().method, apps.only().body.toString()]).toEqual(["POST", "made here"]);
  });

  test("a changed copy of the client's body reaches the upstream", async () => {
    const port = await serveRebuilt(async (web) => ({
      method: "POST",
      body: (await web.text()).toUpperCase(),
    }));
    expect((await apps.ask(port, upload)).status).toBe(200);
    expect(apps.only().body.toString()).toBe(BODY.toUpperCase());
  });

  test("the upstream request is aborted when the client disconnects", async () => {
    const port = await serveRebuilt(() => ({ method: "GET" }));
    upstream.script = () => {};
    const client = await apps.connect(port);
    client.send(request("GET", "/hang"));
    await until(() => upstream.calls.length === 1, "the upstream request");
    client.leave("RST");
    await within(apps.only().link.closed, "the upstream connection's close");
  });
});
