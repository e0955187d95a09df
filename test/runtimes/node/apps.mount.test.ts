/** Redirects of an upstream stay below the path at which a framework has mounted the proxy. */
import { once } from "node:events";
import express from "express";
import { H3, withBase } from "h3";
import { Hono } from "hono";
import { mount } from "hono/mount";
import { afterEach, describe, expect, test } from "vitest";
import { createServer, type ViteDevServer } from "vite";
import { WebSocket } from "ws";
import { createProxy, type NodeProxy, proxyFetch } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { serve } from "../../helpers/serve.ts";
import { accept } from "../../helpers/websocket.ts";
import { request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const ending: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(ending.splice(0).map((each) => each.close()));
});

/** Serves a proxy below a mount of Connect, which Vite uses. */
async function serveConnect(proxy: NodeProxy): Promise<number> {
  const vite: ViteDevServer = await createServer({
    configFile: false,
    appType: "custom",
    logLevel: "silent",
    optimizeDeps: { noDiscovery: true },
    server: { middlewareMode: true, ws: false, watch: null },
  });
  ending.push(vite);
  return apps.serve("node", vite.middlewares.use("/api", proxy.nodeHandler));
}

/** For each kind of mount, a function that serves a proxy below /api. */
const mounts: Record<string, (proxy: NodeProxy) => Promise<number>> = {
  "Express's use": ({ nodeHandler }) => apps.serve("node", express().use("/api", nodeHandler)),
  "an app in an app of Express": ({ nodeHandler }) => {
    const inner = express().use(nodeHandler);
    return apps.serve("node", express().use("/api", inner));
  },
  "Connect's use": serveConnect,
  "h3's mount": (proxy) => apps.serve("h3", new H3().mount("/api", proxy.fetch)),
  "Hono's mount": ({ fetch }) => apps.serve("hono", new Hono().all("/api/*", mount(fetch))),
  "a base path of Hono with a mount": ({ fetch }) =>
    apps.serve("hono", new Hono().basePath("/api").all("/*", mount(fetch))),
};

/** Makes the upstream redirect to `location`, and returns the location that the client gets. */
async function redirect(port: number, location: string, path = "/api/x?y"): Promise<string> {
  upstream.script = (call) => call.reply(302, [["Location", location]]);
  const { headers } = await fetch(`http://127.0.0.1:${port}${path}`, { redirect: "manual" });
  return headers.get("location") ?? "";
}

describe.each(Object.entries(mounts))("a mount by %s", (_, serveMount) => {
  test("redirects of the target get the mount's prefix", async () => {
    const port = await serveMount(createProxy({ target: `${upstream.url}/v1` }));
    expect(await redirect(port, "/v1/login?a=/b")).toBe("/api/login?a=/b");
    expect(upstream.calls.at(-1)?.target).toBe("/v1/x?y");
    expect(await redirect(port, `${upstream.url}/v1/`)).toBe("/api/");
    expect(await redirect(port, "/v1//evil.example")).toBe("/api//evil.example");
    // A location outside of the target, and one that is relative to the client's URL, are unchanged.
    expect(await redirect(port, "/elsewhere")).toBe("/elsewhere");
    expect(await redirect(port, "https://elsewhere.example/v1/")).toBe(
      "https://elsewhere.example/v1/",
    );
    expect(await redirect(port, "../a?b")).toBe("../a?b");
  });

  test("redirects get the mount's prefix for each spelling of the request path, and for the prefix alone", async () => {
    const port = await serveMount(createProxy({ target: upstream.url }));
    const paths = ["/api", "/api/", "/api?q=/x", "/api/?q", "/api/api/x", "/api/a%2Fb/%C3%A9?/x"];
    for (const path of [...paths, "/api/%7C|'\"?\"'|", "/api/é"]) {
      expect(await redirect(port, "/login", path), path).toBe("/api/login");
    }
  });

  test("CVE-2026-47676: the upstream gets the path after the prefix, with no delimiter decoded, or no request", async () => {
    const port = await serveMount(createProxy({ target: upstream.url }));
    upstream.script = (call) => call.reply(200);
    for (const path of [
      "/api/%61dmin",
      "/api/a%2Fb",
      "/api/%2Fadmin",
      "/api//admin",
      "/api%2Fadmin",
      "/%61pi/admin",
      "/%61%70%69/admin",
      "/a%70i%2Fadmin",
      "/API/admin",
    ]) {
      upstream.calls.length = 0;
      await apps.ask(port, request("GET", path, [["Host", "127.0.0.1"]]));
      const [target] = upstream.calls.map((call) => call.target);
      if (path === "/api/a%2Fb") expect(target).toBe("/a%2Fb");
      // Some frameworks decode the escapes of letters; no escape of a delimiter is decoded.
      const rest = decodeURI(path.replace(/^\/[^/]*/, ""));
      if (target !== undefined) expect(decodeURI(target), path).toBe(rest);
    }
  });

  test("a redirect gets the mount's prefix only once if `stripPrefix` is set as well", async () => {
    const proxy = createProxy({ target: upstream.url, stripPrefix: "/api" });
    expect(await redirect(await serveMount(proxy), "/login")).toBe("/api/login");
  });

  test("`locationRewrite` takes precedence over the mount's prefix", async () => {
    const locationRewrite = { "/old/": "/new/" };
    const port = await serveMount(createProxy({ target: upstream.url, locationRewrite }));
    expect(await redirect(port, "/old/a")).toBe("/new/a");
    expect(await redirect(port, "/a")).toBe("/api/a");
    const off = await serveMount(createProxy({ target: upstream.url, locationRewrite: false }));
    expect(await redirect(off, "/login")).toBe("/login");
  });
});

test("the prefix of redirects contains the paths of nested mounts, and the values of their parameters", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url, stripPrefix: "/v2" });
  const inner = express().use("/:name/", nodeHandler);
  const port = await apps.serve("node", express().use("/a%20b", inner));
  expect(await redirect(port, "/login", "/a%20b/Shop/v2/x")).toBe("/a%20b/Shop/v2/login");
  expect(upstream.calls.at(-1)?.target).toBe("/x");
});

test("redirects get the mount's prefix although Express middleware has changed the path below the mount", async () => {
  const app = express()
    .use("/api", (req, _, next) => {
      req.url = `/v2${req.url}`;
      next();
    })
    .use("/api", createProxy({ target: upstream.url }).nodeHandler);
  expect(await redirect(await apps.serve("node", app), "/login")).toBe("/api/login");
  expect(upstream.calls.at(-1)?.target).toBe("/v2/x?y");
});

test("below h3's withBase, the upstream gets the path without the base, and redirects get the base as a prefix", async () => {
  const app = new H3().all(
    "/api/**",
    withBase("/api", ({ req }) => proxyFetch(req, upstream.url)),
  );
  expect(await redirect(await apps.serve("h3", app), "/login")).toBe("/api/login");
  expect(upstream.calls.at(-1)?.target).toBe("/x?y");
});

test("a request path that begins with // does not make a redirect lead to another host", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const port = await apps.serve("node", express().use("/*path", nodeHandler));
  upstream.script = (call) => call.reply(302, [["Location", "/login"]]);
  const answer = await apps.ask(port, request("GET", "//evil.example/x"));
  const location = answer.get("location") ?? "";
  expect(new URL(location, "http://proxy.example/").host).toBe("proxy.example");
  expect(location).toContain("/login");
});

describe("frameworks that pass the whole path to the proxy", () => {
  test.each<[string, () => Promise<number>]>([
    ["Express without a mount", () => apps.serve("node", express().use(handler()))],
    [
      "a mount of Express whose middleware puts the prefix back into the path",
      () => {
        const app = express().use("/api", (req, _, next) => {
          req.url = "/api/x?y";
          next();
        });
        return apps.serve("node", app.use("/api", handler()));
      },
    ],
    ["a route of h3", () => apps.serve("h3", new H3().all("/api/**", forwardEvent))],
    [
      "a route of Hono",
      () =>
        apps.serve(
          "hono",
          new Hono().all("/api/*", (c) => proxyFetch(c.req.raw, upstream.url)),
        ),
    ],
    [
      "an app in an app of Hono",
      () => {
        const inner = new Hono().all("/*", (c) => proxyFetch(c.req.raw, upstream.url));
        return apps.serve("hono", new Hono().route("/api", inner));
      },
    ],
  ])("a redirect gets no prefix in %s", async (_, start) => {
    expect(await redirect(await start(), "/login")).toBe("/login");
    expect(upstream.calls.at(-1)?.target).toBe("/api/x?y");
  });

  function handler(): NodeProxy["nodeHandler"] {
    return createProxy({ target: upstream.url }).nodeHandler;
  }
  function forwardEvent({ req }: { req: Request }): Promise<Response> {
    return proxyFetch(req, upstream.url);
  }
});

test("`stripPrefix` shortens the paths of WebSockets of a mounted proxy, and redirects keep the mount's prefix", async () => {
  const proxy = createProxy({ target: upstream.url, stripPrefix: "/api" });
  const app = express().use("/api", proxy.nodeHandler);
  const { port, server, close } = await serve("node", app);
  proxy.attach(server);
  try {
    expect(await redirect(port, "/login")).toBe("/api/login");
    const refused = new WebSocket(`ws://127.0.0.1:${port}/api/live`);
    const [, response] = (await once(refused, "unexpected-response")) as [
      unknown,
      { headers: { location?: string } },
    ];
    expect(response.headers.location).toBe("/api/login");
    upstream.script = async (call) => void (await accept(call));
    const socket = new WebSocket(`ws://127.0.0.1:${port}/api/live`);
    await once(socket, "open");
    expect(upstream.calls.at(-1)?.target).toBe("/live");
    socket.terminate();
  } finally {
    await proxy.close(1);
    close();
  }
});
