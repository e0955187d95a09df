/** The errors for an app that is passed as a server, for a context that is passed as a request, and for names of http-proxy. */
import { createServer, Server } from "node:http";
import express from "express";
import { fastify } from "fastify";
import { H3 } from "h3";
import { Hono } from "hono";
import Koa from "koa";
import { describe, expect, test } from "vitest";
import { listen } from "../../helpers/serve.ts";
import * as entry from "../../../runtimes/node.ts";
import * as overUndici from "../../../runtimes/undici.ts";

const target = "http://127.0.0.1:4000";
const proxy = entry.createProxy({ target });

describe("attach", () => {
  test.each<[string, unknown, RegExp]>([
    ["an app of Express", express(), /: pass app\.listen\(3000\)$/],
    ["an app of Koa", new Koa(), /: pass app\.listen\(3000\)$/],
    ["an app of Fastify", fastify(), /: pass its `server`$/],
    ["an app of h3", new H3(), /: pass serve\(app\)$/],
    ["an app of Hono", new Hono(), /: pass serve\(app\)$/],
    ["an app of Nest", { getHttpServer: () => createServer() }, /: pass app\.getHttpServer\(\)$/],
    ["a server of Vite", { httpServer: createServer() }, /: pass its `httpServer`$/],
    ["a promise of a server", Promise.resolve(createServer()), /: await the promise$/],
    ["a port", 3000, /: app\.server of Fastify, app\.listen\(\) of Express$/],
    ["nothing", undefined, /: app\.server of Fastify/],
  ])("`attach` refuses %s, and the error says what to pass", (_, passed, message) => {
    expect(() => proxy.attach(passed as never)).toThrow(TypeError);
    expect(() => proxy.attach(passed as never)).toThrow(message);
  });

  test("`attach` accepts a server", () => {
    const server = new Server();
    proxy.attach(server)();
    expect(server.listenerCount("upgrade")).toBe(1);
  });
});

describe("nodeHandler", () => {
  const use = proxy.nodeHandler as (...passed: unknown[]) => never;

  test("called with a Hono context, `nodeHandler` throws an error that names proxy.fetch and c.req.raw", async () => {
    const app = new Hono().all("/", use);
    let thrown: unknown;
    app.onError((error, c) => {
      thrown = error;
      return c.text("failed", 500);
    });
    expect((await app.request("/")).status).toBe(500);
    expect(String(thrown)).toMatch(/for a web Request, call proxy\.fetch: pass c\.req\.raw$/);
  });

  test("called with an h3 event, `nodeHandler` throws an error that names proxy.fetch and event.req", async () => {
    let thrown: unknown;
    const app = new H3({ silent: true, onError: ({ cause }) => void (thrown = cause) }).all(
      "/",
      use,
    );
    expect((await app.request("/")).status).toBe(500);
    expect(String(thrown)).toMatch(/for a web Request, call proxy\.fetch: pass event\.req$/);
  });

  test.each<[string, unknown[], RegExp]>([
    ["a web Request", [new Request("http://a.test")], /call proxy\.fetch: pass the request$/],
    [
      "a context of Koa",
      [{ req: {}, res: { writeHead() {} } }, () => {}],
      /in Koa, pass ctx\.req and ctx\.res$/,
    ],
    [
      "a request and a reply of Fastify",
      [{ raw: { httpVersion: "1.1" } }, { raw: {} }],
      /in Fastify, call reply\.hijack\(\), and pass request\.raw and reply\.raw$/,
    ],
    ["nothing", [], /takes messages of node:http$/],
  ])("`nodeHandler` refuses %s, and the error names the fix", (_, passed, message) => {
    expect(() => use(...passed)).toThrow(TypeError);
    expect(() => use(...passed)).toThrow(message);
  });
});

describe("names of functions and methods of http-proxy", () => {
  const both = Object.entries({ node: entry, undici: overUndici });

  test.each(both)(
    "%s: each function throws an error that names docs/coming-from.md",
    (_, { ...names }) => {
      for (const name of ["createProxyServer", "createProxyMiddleware"] as const) {
        expect(() => names[name]({ target })).toThrow(TypeError);
        expect(() => names[name]({ target })).toThrow(
          new RegExp(`no ${name}\\(\\): write createProxy\\(.*; see docs/coming-from\\.md$`),
        );
      }
    },
  );

  test.each(["web", "ws", "listen", "on", "once"])(
    "`%s` of a proxy throws, and is not enumerable",
    (name) => {
      const former = proxy as unknown as Record<string, () => void>;
      expect(former[name]).toThrow(TypeError);
      expect(former[name]).toThrow(
        new RegExp(`^fetchway: there is no ${name}\\(\\): .*; see docs/coming-from\\.md$`),
      );
      expect(Object.keys(proxy)).not.toContain(name);
    },
  );
});

test("an upgrade that is passed to proxyFetch fails with an error that names createProxy", async () => {
  let message = "";
  const headers = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
  const response = await entry.proxyFetch(new Request("http://a.test", { headers }), target, {
    onError: (error) => void ({ message } = error),
  });
  expect(response.status).toBe(501);
  expect(message).toMatch(/make a proxy with createProxy, and call proxy\.attach\(server\)/);
});

test("if other code reads the body while the proxy connects, the error names both possible mistakes", async () => {
  let message = "";
  const reached = createServer((_, res) => res.end());
  const own = entry.createProxy({
    target: `http://127.0.0.1:${await listen(reached)}`,
    onError: (error) => void ({ message } = error),
  });
  const server = createServer((req, res) => {
    own.nodeHandler(req, res);
    req.resume();
  });
  const port = await listen(server);
  await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: "x".repeat(100_000) });
  await own.close();
  for (const each of [server, reached]) each.close().closeAllConnections();
  expect(message).toMatch(
    /^other code has read from the request's body before it was sent, or the handler did not return the proxy's promise;/,
  );
});
