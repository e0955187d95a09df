/** Pipelined requests of a connection on Node's servers are served one after the other. */
import { getRequestListener } from "@hono/node-server";
import { H3 } from "h3";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../runtimes/node.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { useApps } from "../../helpers/apps.ts";
import { pause, settled, within } from "../../helpers/wait.ts";
import { type Header, request } from "../../helpers/wire.ts";

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

const servers: Record<string, (proxy: NodeProxy) => Promise<number>> = {
  node: (proxy) => apps.serve("node", proxy.nodeHandler),
  srvx: (proxy) => apps.serve("srvx", { fetch: (each) => proxy.fetch(each) }),
  h3: (proxy) =>
    apps.serve(
      "h3",
      new H3().all("/**", (event) => proxy.fetch(event.req)),
    ),
  hono: (proxy) => {
    const listener = getRequestListener(proxy.fetch, { overrideGlobalObjects: false });
    return apps.serve("node", (req, res) => void listener(req, res));
  },
};

describe.each(Object.entries(servers))("the server %s", (_, serve) => {
  test("pipelined requests are sent one after the other, whatever their methods", async () => {
    const client = await apps.connect(await serve(create()));
    const methods = ["GET", "HEAD", "OPTIONS", "GET", "PUT", "GET", "DELETE", "GET"];
    let running = 0;
    upstream.script = async (call) => {
      await call.done;
      expect(++running).toBe(1);
      await pause(5);
      running--;
      call.reply(200, [["X-Target", call.target]], call.method === "HEAD" ? null : "");
    };
    client.send(...methods.map((method, at) => request(method, `/${at}`)));
    for (const [at, method] of methods.entries()) {
      expect((await client.read(method)).get("x-target")).toBe(`/${at}`);
    }
    expect(upstream.calls.map(({ target }) => target)).toEqual(
      methods.map((_each, at) => `/${at}`),
    );
  });

  test("before the first response, the app gets only two of hundreds of pipelined requests", async () => {
    const proxy = create();
    let started = 0;
    const client = await apps.connect(
      await serve({
        ...proxy,
        fetch: (each) => {
          started++;
          return proxy.fetch(each);
        },
        nodeHandler: (req, res) => {
          started++;
          proxy.nodeHandler(req, res);
        },
      }),
    );
    upstream.script = () => {};
    const targets = Array.from({ length: 300 }, (_each, at) => `/${at}`);
    client.send(...targets.map((target) => request("GET", target)));
    const first = await upstream.call(0);
    expect(await settled(() => started, undefined, 100)).toBe(2);
    upstream.script = (call) => call.reply(200, [], call.target);
    first.reply(200, [], "/0");
    for (const text of targets) expect((await client.read()).text).toBe(text);
    expect(upstream.calls).toHaveLength(300);
  });

  test("Node's 100 (Continue) for a pipelined request is not sent within the response to the previous request", async () => {
    const client = await apps.connect(await serve(create()));
    upstream.script = async (call) => {
      if (call.target === "/1") await settled(() => upstream.calls.length);
      call.reply(200, [], call.target);
    };
    const expects: Header[] = [["Expect", "100-continue"]];
    client.send(request("GET", "/1"), request("GET", "/2", expects, "body"));
    expect(await client.read()).toMatchObject({ status: 200, text: "/1" });
    expect(await client.read()).toMatchObject({ status: 200, text: "/2" });
  });

  test("a pipelined request is sent before later ones even if the function `target` takes longer for it", async () => {
    const found = Promise.withResolvers<string>();
    const target = ({ method }: Request): string | Promise<string> =>
      method === "PUT" ? found.promise : upstream.url;
    const client = await apps.connect(await serve(create({ target })));
    client.send(request("PUT", "/1", [], "body"), request("GET", "/2"));
    await settled(() => upstream.calls.length);
    found.resolve(upstream.url);
    expect((await client.read()).status).toBe(200);
    expect((await client.read()).status).toBe(200);
    expect(upstream.calls.map((call) => call.target)).toEqual(["/1", "/2"]);
  });

  test("a pipelined request takes no place at an upstream before its turn", async () => {
    const urls = ["http://127.0.0.1:1", upstream.url];
    const target = balance(urls, { maxRequests: 1, policy: "first" });
    const client = await apps.connect(await serve(create({ target })));
    const held: number[] = [];
    upstream.script = async (call) => {
      await call.done;
      held.push(target.active);
      call.reply(200, [], call.target);
    };
    // If the second request had the place, the first one would wait for it, after the other upstream has refused it.
    client.send(request("GET", "/1"), request("GET", "/2"));
    expect(await client.read()).toMatchObject({ status: 200, text: "/1" });
    expect(await client.read()).toMatchObject({ status: 200, text: "/2" });
    expect(held).toEqual([1, 1]);
  });

  test("a hundred pipelined requests are sent in order, and cause no process warning", async () => {
    const warn = vi.fn<(warning: Error) => void>();
    process.on("warning", warn);
    try {
      const client = await apps.connect(await serve(create()));
      const methods = Array.from({ length: 100 }, (_each, at) => (at % 3 === 0 ? "POST" : "GET"));
      client.send(...methods.map((method, at) => request(method, `/${at}`, [], "")));
      upstream.script = async (call) => {
        await call.done;
        call.reply(200, [], call.target);
      };
      for (const at of methods.keys()) expect((await client.read()).text).toBe(`/${at}`);
      expect(upstream.calls).toHaveLength(100);
      expect(warn).not.toHaveBeenCalled();
    } finally {
      process.off("warning", warn);
    }
  });

  test("pipelined requests that follow a failed request are still sent", async () => {
    const client = await apps.connect(await serve(create({ bodyLimit: 10, timeout: 2_000 })));
    upstream.script = (call) => {
      if (call.method === "GET") call.reply(200, [], call.target);
      else if (call.target === "/reset") call.reset();
    };
    client.send(
      request("POST", "/large", [], "more than ten bytes"),
      request("POST", "/reset", [], "x"),
      request("POST", "/late", [], "x"),
      request("GET", "/last"),
    );
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await client.read()).status);
    expect(statuses).toEqual([413, 502, 504, 200]);
  });

  test("`timeout` of a waiting pipelined request begins only when the proxy sends the request", async () => {
    const timeout = 2000;
    const client = await apps.connect(await serve(create({ timeout })));
    upstream.script = async (call) => {
      await pause(0.25 * timeout);
      call.reply(200, [], call.target);
    };
    const targets = ["/1", "/2", "/3", "/4", "/5", "/6"];
    client.send(...targets.map((target) => request("PUT", target, [], "x")));
    for (const text of targets) expect(await client.read()).toMatchObject({ status: 200, text });
  });

  test("the running upstream request is closed when a client with pipelined requests disconnects", async () => {
    const port = await serve(create());
    for (const how of ["FIN", "RST"] as const) {
      upstream.script = () => {};
      const client = await apps.connect(port);
      client.send(...["/1", "/2", "/3", "/4"].map((target) => request("POST", target, [], "body")));
      const call = await upstream.call(0);
      await call.done;
      await settled(() => upstream.calls.length, undefined, 50);
      client.leave(how);
      await within(call.link.closed, `the end of the request after ${how}`);
      expect(upstream.calls).toHaveLength(1);
      await upstream.reset();
    }
  });

  test("an app may send one of several pipelined requests twice", async () => {
    const proxy = create();
    upstream.script = (call) => call.reply(200, [], call.method);
    const both: typeof proxy.fetch = async (each) => {
      if (each.method !== "DELETE") return proxy.fetch(each);
      const [one, other] = await Promise.all([proxy.fetch(each), proxy.fetch(each)]);
      return new Response((await one.text()) + (await other.text()));
    };
    const client = await apps.connect(
      await serve({ ...proxy, fetch: both, nodeHandler: proxy.nodeHandler }),
    );
    client.send(request("PUT", "/1", [], "x"), request("DELETE", "/2"), request("GET", "/3"));
    const texts: string[] = [];
    for (let i = 0; i < 3; i++) texts.push((await client.read()).text);
    expect(texts.join()).toMatch(/^PUT,(?:DELETE){1,2},GET$/);
  });

  test("the option `signal` ends running and waiting pipelined requests", async () => {
    const controller = new AbortController();
    const proxy = create({ signal: controller.signal });
    const client = await apps.connect(await serve(proxy));
    upstream.script = () => {};
    client.send(request("PUT", "/1", [], "x"), request("GET", "/2"));
    await upstream.call(0);
    controller.abort();
    expect([(await client.read()).status, (await client.read()).status]).toEqual([499, 499]);
    expect(upstream.calls).toHaveLength(1);
  });

  test("a request does not wait for an earlier request to which the app has already responded", async () => {
    const proxy = create();
    upstream.script = (call) => {
      if (call.method === "GET") call.reply(200, [], "got");
    };
    // The DELETE is proxied, but its client gets the app's own response, as with a server that mirrors requests.
    const port = await apps.serve("node", (req, res) => {
      if (req.method === "DELETE") {
        proxy.nodeHandler(req, Object.create(res) as typeof res);
        res.end("sent away");
      } else proxy.nodeHandler(req, res);
    });
    const client = await apps.connect(port);
    client.send(request("DELETE", "/1"));
    expect((await client.read()).text).toBe("sent away");
    client.send(request("GET", "/2"));
    expect((await client.read()).text).toBe("got");
    proxy.destroy();
  });
});
