/** The proxy's Node handler in Express, Koa, Fastify and `node:http`. */
import express, { type NextFunction, type Request, type Response } from "express";
import fastify from "fastify";
import Koa from "koa";
import { expect, test } from "vitest";
import { createProxy } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { until } from "../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

test("Express: a mounted handler forwards the path below its mount", async () => {
  const app = express().use("/api", createProxy({ target: `${upstream.url}/v1` }).nodeHandler);
  const port = await apps.serve("node", app);
  const answer = await apps.ask(port, request("PUT", "/api/x%2Fy?z=1", [["X-Id", "7"]], "body"));
  expect(answer).toMatchObject({ status: 200, text: "body" });
  expect(answer.get("x-id")).toBe("7");
  expect(apps.only()).toMatchObject({ method: "PUT", target: "/v1/x%2Fy?z=1" });
  expect((await apps.ask(port, request("GET", "/elsewhere"))).status).toBe(404);
});

test("Express: the upstream gets the header fields that middleware has set, and not those it has deleted", async () => {
  const app = express()
    .use((req, _, next) => {
      req.headers["x-user"] = "alice";
      delete req.headers["x-secret"];
      next();
    })
    .use(createProxy({ target: upstream.url }).nodeHandler);
  const port = await apps.serve("node", app);
  await apps.ask(
    port,
    request("GET", "/", [
      ["X-User", "mallory"],
      ["X-Secret", "s"],
      ["X-Kept", "k"],
    ]),
  );
  expect(apps.only().all("x-user")).toEqual(["alice"]);
  expect(apps.only().all("x-secret")).toEqual([]);
  expect(apps.only().all("x-kept")).toEqual(["k"]);
});

test("Express: response fields of earlier middleware reach the client, unless the upstream sends the same fields", async () => {
  const app = express()
    .use((_, res, next) => {
      res.setHeader("x-before", "1");
      res.setHeader("x-both", "express");
      next();
    })
    .use(createProxy({ target: upstream.url }).nodeHandler);
  upstream.script = (call) =>
    call.reply(
      200,
      [
        ["X-Both", "upstream"],
        ["Set-Cookie", "a=1"],
        ["Set-Cookie", "b=2"],
      ],
      "body",
    );
  const answer = await apps.ask(await apps.serve("node", app), request("GET", "/"));
  expect(answer.get("x-before")).toBe("1");
  expect(answer.all("x-both")).toEqual(["upstream"]);
  expect(answer.all("set-cookie")).toEqual(["a=1", "b=2"]);
  expect(answer.text).toBe("body");
});

const upstreamsCookies: [string, string][] = [
  ["Set-Cookie", "a=upstream"],
  ["Set-Cookie", "b=2"],
];

test("Express: cookies that earlier middleware sets are sent before the upstream's cookies", async () => {
  const own = ["session=1; Path=/", "a=express; Path=/"];
  const app = express()
    .use((_, res, next) => {
      res.setHeader("Set-Cookie", own);
      next();
    })
    .use(createProxy({ target: upstream.url }).nodeHandler);
  const port = await apps.serve("node", app);
  upstream.script = (call) => call.reply(200, upstreamsCookies, "body");
  const answer = await apps.ask(port, request("GET", "/"));
  expect(answer.all("set-cookie")).toEqual([...own, "a=upstream", "b=2"]);
  expect(answer.text).toBe("body");
  // Without a cookie from the upstream, the app's cookies are unchanged.
  upstream.script = (call) => call.reply(200, [], "body");
  expect((await apps.ask(port, request("GET", "/"))).all("set-cookie")).toEqual(own);
});

test("Koa: cookies that earlier middleware sets are sent before the upstream's cookies", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const app = new Koa();
  app.use((ctx, next) => {
    ctx.cookies.set("session", "1");
    return next();
  });
  app.use((ctx) => {
    ctx.respond = false;
    nodeHandler(ctx.req, ctx.res);
  });
  upstream.script = (call) => call.reply(200, upstreamsCookies, "body");
  const answer = await apps.ask(await apps.serve("node", app.callback()), request("GET", "/"));
  expect(answer.all("set-cookie")).toEqual(["session=1; path=/; httponly", "a=upstream", "b=2"]);
});

test("Fastify: the client gets fields that a hook copies to Node's response, and the upstream's cookies", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const app = fastify();
  app.addHook("onRequest", async (_, reply) => {
    reply.header("x-before", "1").header("set-cookie", "session=1").header("x-both", "fastify");
  });
  app.addHook("onRequest", (fastifyRequest, reply, _done) => {
    for (const [name, value] of Object.entries(reply.getHeaders())) {
      if (value !== undefined) reply.raw.setHeader(name, value);
    }
    reply.hijack();
    nodeHandler(fastifyRequest.raw, reply.raw);
  });
  upstream.script = (call) =>
    call.reply(200, [...upstreamsCookies, ["X-Both", "upstream"]], "body");
  await app.ready();
  const answer = await apps.ask(await apps.listen(app.server), request("GET", "/"));
  expect(answer.all("set-cookie")).toEqual(["session=1", "a=upstream", "b=2"]);
  expect([answer.get("x-before"), answer.all("x-both")]).toEqual(["1", ["upstream"]]);
  await app.close();
});

test("Express: `res.statusCode` is the upstream's status when the response is finished", async () => {
  const finished: number[] = [];
  const app = express()
    .use((_, res, next) => {
      res.on("finish", () => finished.push(res.statusCode));
      next();
    })
    .use(createProxy({ target: upstream.url }).nodeHandler);
  upstream.script = (call) => call.reply(418, [], "teapot");
  const answer = await apps.ask(await apps.serve("node", app), request("GET", "/"));
  expect(answer).toMatchObject({ status: 418, text: "teapot" });
  await until(() => finished.length > 0, "the event");
  expect(finished).toEqual([418]);
});

test("Express: if a parser has read the body, the error handler gets a TypeError that names the fix", async () => {
  const errors: unknown[] = [];
  const app = express()
    .use(express.json())
    .use(createProxy({ target: upstream.url }).nodeHandler)
    // Express recognizes an error handler by its four parameters.
    .use((error: unknown, _req: Request, res: Response, _next: NextFunction) => {
      errors.push(error);
      res.status(500).end("misuse");
    });
  const port = await apps.serve("node", app);
  const bytes = request("POST", "/", [["Content-Type", "application/json"]], '{"a":1}');
  expect(await apps.ask(port, bytes)).toMatchObject({ status: 500, text: "misuse" });
  expect(errors[0]).toBeInstanceOf(TypeError);
  expect((errors[0] as Error).message).toMatch(/already been read.*express\.json/s);
  expect(upstream.calls).toEqual([]);
  const unparsed = request("POST", "/", [["Content-Type", "text/plain"]], "body");
  expect(await apps.ask(port, unparsed)).toMatchObject({ status: 200, text: "body" });
});

test("Express: the whole body reaches the upstream although earlier middleware is asynchronous", async () => {
  const app = express()
    .use(async (_req, _res, next) => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      next();
    })
    .use(createProxy({ target: upstream.url }).nodeHandler);
  const port = await apps.serve("node", app);
  for (const body of ["small", "large ".repeat(100_000)]) {
    const answer = await apps.ask(port, request("POST", "/", [], body));
    expect(answer.text === body).toBe(true);
  }
  const client = await apps.connect(port);
  client.send(
    request("POST", "/", [["Transfer-Encoding", "chunked"]]),
    chunk("a"),
    chunk("b"),
    lastChunk,
  );
  expect(await client.read()).toMatchObject({ status: 200, text: "ab" });
});

test("Fastify: `nodeHandler` responds to a request whose reply the route has hijacked", async () => {
  const { nodeHandler, close } = createProxy({ target: upstream.url });
  const app = fastify();
  // Unlike Fastify's own parsers, this one does not read the body of the raw request.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.addHook("onRequest", async (req) => {
    req.raw.headers["x-user"] = "alice";
  });
  app.all("/*", (req, reply) => {
    reply.hijack();
    nodeHandler(req.raw, reply.raw);
  });
  await app.ready();
  const port = await apps.listen(app.server);
  const bytes = request(
    "POST",
    "/x?y",
    [
      ["Content-Type", "application/json"],
      ["X-Id", "7"],
    ],
    '{"a":1}',
  );
  const answer = await apps.ask(port, bytes);
  expect(answer).toMatchObject({ status: 200, text: '{"a":1}' });
  expect(answer.get("x-id")).toBe("7");
  expect(apps.only()).toMatchObject({ target: "/x?y", text: '{"a":1}' });
  expect(apps.only().all("x-user")).toEqual(["alice"]);
  await close();
});

test("Fastify: a route may return the web Response of a proxy's `fetch`", async () => {
  const proxy = createProxy({ target: upstream.url });
  const app = fastify();
  app.get("/*", (req) => proxy.fetch(new globalThis.Request(`http://${req.host}${req.url}`)));
  await app.ready();
  upstream.script = (call) =>
    call.reply(
      201,
      [
        ["Set-Cookie", "a=1"],
        ["Set-Cookie", "b=2"],
      ],
      "body",
    );
  const answer = await apps.ask(await apps.listen(app.server), request("GET", "/x?y"));
  expect(answer).toMatchObject({ status: 201, text: "body" });
  expect(answer.all("set-cookie")).toEqual(["a=1", "b=2"]);
  expect(apps.only().target).toBe("/x?y");
});

test("node:http: stats() counts the requests of the handler, and requests after close() get 503", async () => {
  const proxy = createProxy({ target: upstream.url });
  const port = await apps.serve("node", proxy.nodeHandler);
  await apps.ask(port, request("GET", "/1"));
  await apps.ask(port, request("GET", "/2"));
  expect(proxy.stats()).toMatchObject({ created: 1, requests: 2, failed: 0 });
  await proxy.close();
  expect((await apps.ask(port, request("GET", "/3"))).status).toBe(503);
  expect(upstream.calls).toHaveLength(2);
});
