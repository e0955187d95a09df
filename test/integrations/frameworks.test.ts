/** The code blocks of docs/frameworks.md, run in small frameworks. Handlers that need no framework are called directly. */
import type { AddressInfo, Server } from "node:net";
import type { H3 } from "h3";
import { routeRules } from "h3/rules";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createServer as createVite, type UserConfig } from "vite";
import { WebSocket } from "ws";
import { proxy as ruleHandler } from "../../integrations/rules.ts";
import { expectAllRun, importBlock } from "../project/_blocks.ts";
import { findPort, serve } from "../helpers/serve.ts";
import { echo, Upstream } from "../helpers/upstream.ts";
import { patience, within } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";

const upstream = new Upstream();
const ending: (() => unknown)[] = [];
beforeAll(() => upstream.listen());
afterEach(async () => {
  await Promise.all(ending.splice(0).map((end) => end()));
  await upstream.reset();
});
afterAll(() => upstream.stop());

const TARGET = "http://127.0.0.1:4000";
const toUpstream = (): Record<string, string> => ({ [TARGET]: upstream.url });

/** Expects that a URL below /api is forwarded, with bodies, and that redirects stay below /api. */
async function expectForwarding(
  ask: (path: string, init?: RequestInit) => Promise<Response>,
): Promise<void> {
  const response = await ask("/api/a%2Fb?c", { method: "PUT", body: "text" });
  expect([response.status, await response.text()]).toEqual([200, "text"]);
  expect(upstream.calls.at(-1)).toMatchObject({ method: "PUT", target: "/a%2Fb?c" });
  upstream.script = (call) => call.reply(302, [["Location", "/login"]]);
  const redirect = await ask("/api/x", { redirect: "manual" });
  expect([redirect.status, redirect.headers.get("location")]).toEqual([302, "/api/login"]);
}

test.each([
  [
    "Koa",
    "const app = new Koa();",
    `const app = new Koa();
    app.use(async (ctx, next) => {
      ctx.set("x-earlier", "field");
      try { await next(); } catch ({ message }) { ctx.status = 500; ctx.body = message; }
    });`,
  ],
  [
    "Fastify",
    "const fastify = createFastify({ logger: true });",
    `const fastify = createFastify();
    fastify.addHook("onRequest", async (_, reply) => void reply.header("x-earlier", "field"));
    fastify.setErrorHandler(({ message }, _, reply) => reply.code(500).send(message));`,
  ],
])(
  "%s: the block forwards requests, keeps fields that the app has set, and leaves exceptions to the app's error handler",
  async (name, app, own) => {
    const port = await findPort();
    await importBlock(`docs/frameworks.md: ${name}`, {
      [`"${TARGET}"`]: `({ url }) => {
      if (url.endsWith("/throw")) throw new Error("thrown");
      return "${upstream.url}";
    }`,
      [app]: own,
      "3000": `${port}`,
    });
    const ask = (path: string, init?: RequestInit): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}${path}`, init);
    await expectForwarding(ask);
    expect((await ask("/elsewhere")).status).toBe(404);
    upstream.script = echo;
    const [forwarded, thrown] = [await ask("/api/x"), await ask("/api/throw")];
    for (const { headers } of [forwarded, thrown]) expect(headers.get("x-earlier")).toBe("field");
    expect([thrown.status, await thrown.text()]).toEqual([500, "thrown"]);
  },
);

type Handler = (context: {
  request: Request;
  clientAddress: string;
  getClientAddress(): string;
}) => Promise<Response>;

describe("route files of frameworks that pass a web request", () => {
  /** Returns a function that calls a handler as its framework does. */
  function caller(
    handler: Handler | undefined,
  ): (path: string, init?: RequestInit) => Promise<Response> {
    const clientAddress = "192.0.2.7";
    return async (path, init) => {
      if (handler === undefined) throw new Error("the file has no such export");
      const request = new Request(`http://proxy.test${path}`, init);
      return handler({ request, clientAddress, getClientAddress: () => clientAddress });
    };
  }

  test("Next: the file has a function for each method, and asks the upstream for bodies without compression", async () => {
    type Route = Record<string, (request: Request) => Promise<Response>>;
    const route = await importBlock<Route>("docs/frameworks.md: Next", toUpstream());
    const methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
    expect(Object.keys(route).toSorted()).toEqual(methods);
    await expectForwarding(
      caller(async ({ request }) => route[request.method]?.(request) ?? Response.error()),
    );
    expect(upstream.calls.at(-1)?.all("accept-encoding")).toEqual(["identity"]);
  });

  test.each([
    ["SvelteKit", "fallback"],
    ["Astro", "ALL"],
  ])("%s forwards the client's address", async (name, exported) => {
    const place = `docs/frameworks.md: ${name}`;
    const file = await importBlock<Record<string, Handler>>(place, toUpstream());
    await expectForwarding(caller(file[exported]));
    expect(upstream.calls.at(-1)?.get("x-forwarded-for")).toBe("192.0.2.7");
  });

  test("React Router: the file has a function for GET and one for all other methods", async () => {
    const place = "docs/frameworks.md: React Router";
    const { loader, action } = await importBlock<Record<"loader" | "action", Handler>>(
      place,
      toUpstream(),
    );
    await expectForwarding(
      caller((context) => (context.request.method === "GET" ? loader : action)(context)),
    );
  });

  test("TanStack Start: the file has one function for all methods", async () => {
    interface File {
      Route: { path: string; server: { handlers: { ANY: Handler } } };
    }
    const { Route } = await importBlock<File>("docs/frameworks.md: TanStack Start", {
      ...toUpstream(),
      // The router of TanStack is too large to be installed for this test.
      'import { createFileRoute } from "@tanstack/react-router";':
        "const createFileRoute = (path: string) => (route: object) => ({ path, ...route });",
    });
    expect(Route.path).toBe("/api/$");
    await expectForwarding(caller(Route.server.handlers.ANY));
  });
});

test("Nitro: Fetchway's handler for route rules replaces h3's handler, and forwards requests", async () => {
  type Rules = Parameters<typeof routeRules>[0];
  const { default: config } = await importBlock<{
    default: { alias: Record<string, string>; routeRules: Rules };
  }>("docs/frameworks.md: Nitro (2)", {
    'import { defineConfig } from "nitro";': "const defineConfig = (config: object) => config;",
    "http://127.0.0.1:4000": upstream.url,
    "http://127.0.0.1:4001": upstream.url,
  });
  expect(Object.keys(config.alias)).toEqual(["h3/rules/proxy"]);
  const asCompiled = JSON.parse(JSON.stringify(config.routeRules)) as Rules;
  const { H3: App } = await import("h3");
  const app: H3 = new App().use(routeRules(asCompiled, { handlers: { proxy: ruleHandler } }));
  const { port, close } = await serve("h3", app);
  ending.push(close);
  await fetch(`http://127.0.0.1:${port}/api/x?y`);
  await fetch(`http://127.0.0.1:${port}/search/x?y`);
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/v1/x?y", "/x?y"]);
});

test("h3: the code of docs/coming-from.md that replaces `proxyRequest` forwards a request", async () => {
  const port = await findPort();
  process.env["PORT"] = `${port}`;
  await importBlock("docs/coming-from.md: h3's `proxyRequest`", toUpstream());
  const ask = async (): Promise<number> => (await fetch(`http://127.0.0.1:${port}/api/x?y`)).status;
  await expect.poll(() => ask().catch(String), { timeout: patience }).toBe(200);
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/v1/x?y"]);
});

describe.each(["docs/frameworks.md: Vite", "docs/coming-from.md: Vite's `server.proxy`"])(
  "with the plugin for Vite in %s",
  (place) => {
    test("requests and WebSockets are forwarded to the upstream, and Vite's own WebSocket still works", async () => {
      const { default: config } = await importBlock<{ default: UserConfig }>(place, {
        ...toUpstream(),
        "http://127.0.0.1:5000": upstream.url,
      });
      const vite = await createVite({
        ...config,
        configFile: false,
        logLevel: "silent",
        optimizeDeps: { noDiscovery: true },
        server: { port: 0, host: "127.0.0.1", watch: null },
      });
      await vite.listen();
      ending.push(() => vite.close());
      const { port } = (vite.httpServer as Server).address() as AddressInfo;
      await fetch(`http://127.0.0.1:${port}/api/x`);
      expect(upstream.calls.at(-1)?.target).toBe("/api/x");

      upstream.script = async (call) => (await accept(call)).send("hello");
      const live = new WebSocket(`ws://127.0.0.1:${port}/live/x`);
      const message = await within(
        new Promise((resolve) => live.once("message", resolve)),
        "the message",
      );
      expect(String(message)).toBe("hello");
      expect(upstream.calls.at(-1)?.target).toBe("/x");
      live.terminate();

      // oxlint-disable-next-line typescript/no-deprecated -- the test acts as Vite's client
      const token = vite.config.webSocketToken;
      const hot = new WebSocket(`ws://127.0.0.1:${port}/?token=${token}`, "vite-hmr");
      const connected = await within(
        new Promise((resolve) => hot.once("message", resolve)),
        "Vite's own message",
      );
      expect(String(connected)).toContain('"connected"');
      hot.terminate();
    });
  },
);

test("every code block that is assigned to this file is run", () =>
  expectAllRun("frameworks.test.ts"));
