/** The proxy in Hono with Hono's own middleware, and with Requests that user code constructs. */
import { gunzipSync, gzipSync } from "node:zlib";
import { Hono, type MiddlewareHandler } from "hono";
import { every } from "hono/combine";
import { compress } from "hono/compress";
import { cors } from "hono/cors";
import { etag } from "hono/etag";
import { mount } from "hono/mount";
import { secureHeaders } from "hono/secure-headers";
import { timeout } from "hono/timeout";
import { timing } from "hono/timing";
import { H3 } from "h3";
import { FastResponse } from "srvx";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, proxyFetch, type Proxy } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import type { Answer } from "../../helpers/client.ts";
import { addMiddlewareTests } from "./_middleware.ts";
import { chunk, type Header, lastChunk, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const restoring: (() => void)[] = [];
afterEach(() => {
  for (const restore of restoring.splice(0)) restore();
});

/** Replaces the global `Response` until the test ends, as srvx's documentation advises apps to do. */
function replaceResponse(value: typeof Response): void {
  const before = Object.getOwnPropertyDescriptor(globalThis, "Response") as PropertyDescriptor;
  Object.defineProperty(globalThis, "Response", { value, configurable: true });
  restoring.push(() => Object.defineProperty(globalThis, "Response", before));
}

describe("Hono", () => {
  addMiddlewareTests(apps, (before, after) => {
    const app = new Hono()
      .use(async (c, next) => {
        before(c.req.raw);
        await next();
        c.res = await after(c.res);
      })
      .all("*", (c) => proxyFetch(c.req.raw, upstream.url));
    return apps.serve("hono", app);
  });
});

test("an h3 app works in the same process as @hono/node-server", async () => {
  // @hono/node-server replaces the global Request and Response by its own classes, which h3 then uses.
  const hono = new Hono().all("*", (c) => proxyFetch(c.req.raw, upstream.url));
  const h3 = new H3()
    .use(async (event, next) => {
      const response = (await next()) as Response;
      expect(response).toBeInstanceOf(Response);
      event.res.headers.set("x-after", "yes");
      return new Response(response.body, response);
    })
    .all("/**", (event) => proxyFetch(event.req, upstream.url));
  for (const port of [await apps.serve("hono", hono), await apps.serve("h3", h3)]) {
    const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], "body"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(answer.get("x-id")).toBe("7");
  }
});

const long: string = "compressible ".repeat(500);

/** Fields of which the client should get each line, in the same order and case. No `Content-Type` may be added. */
const lines: Header[] = [
  ["Set-Cookie", "a=1; Path=/"],
  ["Set-Cookie", "b=2"],
  ["X-Multi", "1"],
  ["X-Multi", "2, 3"],
  ["Vary", "Accept"],
  ["Vary", "X-A"],
];

/** Returns the fields with the names of `lines` that the client has received, and `Content-Type`. */
function received({ headers }: Answer): Header[] {
  return headers.filter(([name]) => /^(set-cookie|x-multi|vary|content-type)$/i.test(name));
}

const apart: [name: string, serve: () => Promise<number>][] = [
  ["Hono", () => apps.serve("hono", (web) => proxyFetch(web, upstream.url))],
  [
    "an h3 app beside @hono/node-server",
    async () => {
      await apps.serve("hono", () => new Response());
      return apps.serve("h3", (web) => proxyFetch(web, upstream.url));
    },
  ],
  [
    "an h3 app with srvx's FastResponse as the global Response",
    () => {
      replaceResponse(FastResponse);
      return apps.serve("h3", (web) => proxyFetch(web, upstream.url));
    },
  ],
];

test.each(apart)("%s sends the lines of repeated response fields unchanged", async (_, serve) => {
  const port = await serve();
  for (const [status, body] of [
    [200, "body"],
    [302, ""],
    [204, null],
    [200, long.repeat(50)],
  ] as const) {
    upstream.script = (call) => call.reply(status, lines, body);
    const answer = await apps.ask(port, request("GET", "/"));
    expect([answer.status, answer.text === (body ?? "")]).toEqual([status, true]);
    expect(received(answer)).toEqual(lines);
  }
});

test("an h3 app in the same process as @hono/node-server can add a cookie, and sends the whole body", async () => {
  await apps.serve("hono", () => new Response());
  const changes: ((response: Response) => Response)[] = [
    (response) => {
      response.headers.append("set-cookie", "c=3");
      return response;
    },
    (response) => {
      void response.body;
      response.headers.append("set-cookie", "c=3");
      return response;
    },
    (response) => {
      const headers = new Headers(response.headers);
      headers.append("set-cookie", "c=3");
      return new Response(response.body, { headers });
    },
  ];
  for (const change of changes) {
    const port = await apps.serve("h3", async (web) => change(await proxyFetch(web, upstream.url)));
    for (const body of ["body", long.repeat(50)]) {
      upstream.script = (call) => call.reply(200, lines, body);
      const answer = await apps.ask(port, request("GET", "/"));
      expect(answer.all("set-cookie")).toEqual(["a=1; Path=/", "b=2", "c=3"]);
      expect([answer.get("x-multi"), answer.text === body]).toEqual(["1, 2, 3", true]);
    }
  }
});

test("hono/compress encodes a plain body once and leaves an encoded one unchanged", async () => {
  const app = new Hono().use(compress()).all("*", (c) => proxyFetch(c.req.raw, upstream.url));
  const port = await apps.serve("hono", app);
  const bytes = request("GET", "/", [["Accept-Encoding", "gzip"]]);
  upstream.script = (call) => call.reply(200, [["Content-Type", "text/plain"]], long);
  const plain = await apps.ask(port, bytes);
  expect(plain.get("content-encoding")).toBe("gzip");
  expect(plain.all("content-length")).toEqual([]);
  expect(gunzipSync(plain.body).toString()).toBe(long);
  const coded = gzipSync(long);
  upstream.script = (call) =>
    call.reply(
      200,
      [
        ["Content-Type", "text/plain"],
        ["Content-Encoding", "gzip"],
      ],
      coded,
    );
  const passed = await apps.ask(port, bytes);
  expect(passed.all("content-encoding")).toEqual(["gzip"]);
  expect(passed.body.equals(coded)).toBe(true);
});

test("hono/cors adds its headers to a proxied response and answers preflight requests", async () => {
  const app = new Hono().use(cors({ origin: "https://shop.test", credentials: true }));
  app.all("*", (c) => proxyFetch(c.req.raw, upstream.url));
  const port = await apps.serve("hono", app);
  const origin: [string, string] = ["Origin", "https://shop.test"];
  const answer = await apps.ask(port, request("POST", "/", [origin, ["X-Id", "7"]], "body"));
  expect(answer).toMatchObject({ status: 200, text: "body" });
  expect(answer.get("access-control-allow-origin")).toBe("https://shop.test");
  expect(answer.get("x-id")).toBe("7");
  expect(upstream.calls).toHaveLength(1);
  const preflight = request("OPTIONS", "/", [origin, ["Access-Control-Request-Method", "PUT"]]);
  expect((await apps.ask(port, preflight)).status).toBe(204);
  expect(upstream.calls).toHaveLength(1);
});

const middleware: Record<string, [handler: MiddlewareHandler, field: string]> = {
  "c.header": [
    async (c, next) => {
      await next();
      c.header("x-after", "1");
    },
    "x-after",
  ],
  "c.res.headers": [
    async (c, next) => {
      await next();
      c.res.headers.set("x-after", "1");
    },
    "x-after",
  ],
  "hono/etag": [etag(), "etag"],
  "hono/secure-headers": [secureHeaders(), "x-frame-options"],
  "hono/timeout": [timeout(10_000), "x-id"],
  "hono/timing": [timing(), "server-timing"],
  "hono/combine": [every(cors(), secureHeaders()), "access-control-allow-origin"],
};

test.each(Object.entries(middleware))(
  "%s has its usual effect on a proxied response, and does not change the body",
  async (_, [handler, field]) => {
    const app = new Hono().use(handler).all("*", (c) => proxyFetch(c.req.raw, upstream.url));
    const port = await apps.serve("hono", app);
    for (const size of [10, 65_536, 500_000]) {
      const body = "body ".repeat(size / 5);
      const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], body));
      expect(answer.text === body, `${size} bytes`).toBe(true);
      upstream.script = (call) => call.reply(200, [["X-Id", "7"], ...lines], body);
      const got = await apps.ask(port, request("GET", "/"));
      expect(got.text === body, `${size} bytes`).toBe(true);
      expect(got.all("set-cookie")).toEqual(["a=1; Path=/", "b=2"]);
      expect(got.all("x-multi").join(", ")).toBe("1, 2, 3");
      expect(got.all("vary").join(", ")).toMatch(/^(.*, )?Accept, X-A/);
      expect(got.get(field), `${size} bytes`).toBeDefined();
      const head = await apps.ask(port, request("HEAD", "/"));
      expect(head).toMatchObject({ status: 200, length: 0 });
      await upstream.reset();
    }
  },
);

test("app.request() returns the whole response", async () => {
  const app = new Hono().use(etag()).all("*", (c) => proxyFetch(c.req.raw, upstream.url));
  for (const size of [10, 500_000]) {
    const body = "x".repeat(size);
    upstream.script = (call) => call.reply(200, [["X-Id", "7"]], body);
    const response = await app.request("/");
    expect([response.status, response.headers.get("x-id")]).toEqual([200, "7"]);
    expect((await response.text()) === body).toBe(true);
  }
});

test("after c.header(), HEAD reaches the upstream as HEAD, and the client gets the upstream's Content-Length", async () => {
  const app = new Hono().all("*", async (c) => {
    c.header("x-before", "1");
    return proxyFetch(c.req.raw, upstream.url);
  });
  const port = await apps.serve("hono", app);
  upstream.script = (call) => call.reply(200, [["Content-Length", "1234"]], null);
  const answer = await apps.ask(port, request("HEAD", "/"));
  expect(apps.only().method).toBe("HEAD");
  expect(answer).toMatchObject({ status: 200, length: 0 });
  expect(answer.get("content-length")).toBe("1234");
});

const mounts: Record<string, (app: Hono, proxy: Proxy) => Hono> = {
  // oxlint-disable-next-line typescript/no-deprecated -- most apps still call it
  "app.mount": (app, proxy) => app.mount("/api", proxy.fetch),
  "hono/mount": (app, proxy) => app.all("/api/*", mount(proxy.fetch)),
};

test.each(Object.entries(mounts))(
  "%s passes the body and the client's address to a proxy's fetch",
  async (_, to) => {
    const proxy = createProxy({ target: upstream.url });
    const port = await apps.serve("hono", to(new Hono(), proxy));
    const answer = await apps.ask(port, request("PUT", "/api/x?z=1", [["X-Id", "7"]], "body"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(apps.only()).toMatchObject({ method: "PUT", target: "/x?z=1" });
    expect(apps.only().get("x-forwarded-for")).toBe("127.0.0.1");
    const client = await apps.connect(port);
    client.send(
      request("POST", "/api/y", [["Transfer-Encoding", "chunked"]]),
      chunk("a"),
      chunk("b"),
      lastChunk,
    );
    expect(await client.read()).toMatchObject({ status: 200, text: "ab" });
  },
);

test("a Request that middleware creates is forwarded unchanged", async () => {
  const app = new Hono().all("*", (c) => {
    const headers = new Headers(c.req.raw.headers);
    headers.set("x-user", "alice");
    const raw = new Request("http://other.test/rebuilt?q", new Request(c.req.raw, { headers }));
    return proxyFetch(raw, upstream.url);
  });
  const port = await apps.serve("hono", app);
  const answer = await apps.ask(port, request("POST", "/", [["X-User", "mallory"]], "body"));
  expect(answer).toMatchObject({ status: 200, text: "body" });
  expect(apps.only()).toMatchObject({ target: "/rebuilt?q", method: "POST" });
  expect(apps.only().all("x-user")).toEqual(["alice"]);
});

test("if middleware reads the body and replaces it, the upstream gets the new body", async () => {
  const app = new Hono().all("*", async (c) => {
    const text = await c.req.text();
    const init = { method: "POST", headers: c.req.raw.headers, body: text.toUpperCase() };
    return proxyFetch(new Request(c.req.url, init), upstream.url);
  });
  const port = await apps.serve("hono", app);
  const answer = await apps.ask(port, request("POST", "/", [], "a longer body"));
  expect(answer).toMatchObject({ status: 200, text: "A LONGER BODY" });
});

test("a body that was already read causes a TypeError that names the fix", async () => {
  const thrown: unknown[] = [];
  const note = (error: unknown): Response => {
    thrown.push(error);
    return new Response("misuse", { status: 500 });
  };
  const hono = new Hono().all("*", async (c) => {
    await c.req.text();
    return proxyFetch(c.req.raw, upstream.url).catch(note);
  });
  const h3 = new H3().all("/**", async (event) => {
    await event.req.text();
    return proxyFetch(event.req, upstream.url).catch(note);
  });
  for (const port of [await apps.serve("hono", hono), await apps.serve("h3", h3)]) {
    for (const body of ["small", "large".repeat(50_000)]) {
      expect((await apps.ask(port, request("POST", "/", [], body))).status).toBe(500);
    }
  }
  const made = new Request("http://a.test/", { method: "POST", body: "x" });
  await made.text();
  await proxyFetch(made, upstream.url).catch(note);
  expect(thrown).toHaveLength(5);
  for (const error of thrown) {
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(/already been read.*(clone|new Request|before)/s);
  }
  expect(upstream.calls).toEqual([]);
});

test("a `Request` that the app constructs is forwarded, with or without a body", async () => {
  const get = await proxyFetch(new Request("http://a.test/x?y"), upstream.url);
  expect([get.status, await get.text()]).toEqual([200, ""]);
  const init = { method: "POST", body: "body", headers: { "x-id": "7" } };
  const post = await proxyFetch(new Request("http://a.test/x?y", init), upstream.url);
  expect([post.status, post.headers.get("x-id"), await post.text()]).toEqual([200, "7", "body"]);
  expect(post).toBeInstanceOf(Response);
  const body = new Blob(["streamed ", "body"]).stream();
  const put = new Request("http://a.test/", { method: "PUT", body, duplex: "half" } as RequestInit);
  expect(await (await proxyFetch(put, upstream.url)).text()).toBe("streamed body");
  const [first, second, third] = upstream.calls;
  expect(first).toMatchObject({ method: "GET", target: "/x?y", framing: { kind: "none" } });
  expect(first?.all("x-forwarded-for")).toEqual([]);
  expect(second?.text).toBe("body");
  expect(third).toMatchObject({ text: "streamed body", framing: { kind: "length" } });
});

test("the upstream's connection is closed when the app aborts a `Request` that it has constructed", async () => {
  upstream.script = () => {};
  const aborting = new AbortController();
  const { signal } = aborting;
  const answer = proxyFetch(new Request("http://a.test/", { signal }), upstream.url);
  const call = await upstream.call();
  aborting.abort();
  await call.link.closed;
  expect((await answer).status).toBe(499);
});

test("wrong arguments of proxyFetch and createProxy cause a TypeError that names the fix", async () => {
  const made = new Request("http://a.test/");
  const wrong: [Promise<unknown> | (() => unknown), RegExp][] = [
    [proxyFetch(upstream.url as never, made), /Request first/],
    [proxyFetch(made, undefined as never), /target/],
    [proxyFetch(made, "not a url"), /target/],
    [proxyFetch(made, "ftp://a.test"), /http/],
    [proxyFetch(made, upstream.url, { timeout: -1 }), /timeout/],
    [proxyFetch(made, upstream.url, { timeOut: 1 } as never), /timeOut/],
    [() => createProxy({} as never), /target/],
    [() => createProxy({ target: upstream.url, headers: { connection: "x" } }), /connection/],
  ];
  for (const [misuse, message] of wrong) {
    const error = await (typeof misuse === "function" ? (async () => misuse())() : misuse).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error, String(message)).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(message);
  }
  expect(upstream.calls).toEqual([]);
});
