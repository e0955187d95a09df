/** The proxy inside h3 and srvx apps. */
import { gzipSync } from "node:zlib";
import { H3, onResponse, type H3Event } from "h3";
import { describe, expect, test } from "vitest";
import { createProxy, proxyFetch } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { addMiddlewareTests } from "./_middleware.ts";
import { request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

describe("h3", () => {
  addMiddlewareTests(apps, (before, after) => {
    const app = new H3()
      .use(async (event, next) => {
        before(event.req);
        return after((await next()) as Response);
      })
      .all("/**", (event) => proxyFetch(event.req, upstream.url));
    return apps.serve("h3", app);
  });
});

describe("srvx", () => {
  addMiddlewareTests(apps, (before, after) =>
    apps.serve("srvx", {
      middleware: [
        async (req, next) => {
          before(req);
          return after(await next());
        },
      ],
      fetch: (req) => proxyFetch(req, upstream.url),
    }),
  );
});

test("h3: event.res headers and onResponse apply to a proxied response", async () => {
  let seen = 0;
  const app = new H3({ onResponse: (response) => void (seen = response.status) })
    .use(onResponse((response: Response) => response.headers.set("x-hook", "1")))
    .all("/**", (event: H3Event) => {
      event.res.headers.set("x-prepared", "1");
      return proxyFetch(event.req, upstream.url);
    });
  const port = await apps.serve("h3", app);
  const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], "body"));
  expect(answer).toMatchObject({ status: 200, text: "body" });
  expect(["x-prepared", "x-hook", "x-id"].map((name) => answer.get(name))).toEqual(["1", "1", "7"]);
  expect(seen).toBe(200);
});

test.each(["a proxy", "the fetch of a proxy"])("h3: app.mount accepts %s", async (what) => {
  const proxy = createProxy({ target: `${upstream.url}/v1` });
  const app = new H3().mount("/api", what === "a proxy" ? proxy : proxy.fetch);
  const port = await apps.serve("h3", app);
  const answer = await apps.ask(port, request("PUT", "/api/x%2Fy?z=1", [], "body"));
  expect(answer).toMatchObject({ status: 200, text: "body" });
  expect(apps.only()).toMatchObject({ method: "PUT", target: "/v1/x%2Fy?z=1" });
  await proxy.close();
});

test("h3: middleware before a mounted proxy changes what the upstream sees", async () => {
  const app = new H3()
    .use((event) => {
      event.req.headers.set("x-user", "alice");
    })
    .mount("/api", createProxy({ target: upstream.url }).fetch);
  const port = await apps.serve("h3", app);
  await apps.ask(port, request("POST", "/api/x", [["X-User", "mallory"]], "body"));
  expect(apps.only()).toMatchObject({ target: "/x", text: "body" });
  expect(apps.only().all("x-user")).toEqual(["alice"]);
});

test("h3: a body can be replaced as docs/bodies.md shows, without the header fields that described the old body", async () => {
  const options = { headers: { "accept-encoding": "identity" } };
  const app = new H3().get("/page", async (event) => {
    const response = await proxyFetch(event.req, upstream.url, options);
    const changed = new Response((await response.text()).toUpperCase() + " longer", response);
    changed.headers.delete("content-encoding");
    changed.headers.delete("content-length");
    return changed;
  });
  const port = await apps.serve("h3", app);
  for (const coding of [[], [["Content-Encoding", "identity"]]] as [string, string][][]) {
    upstream.script = (call) => call.reply(203, [["X-Id", "7"], ...coding], "page");
    const answer = await apps.ask(port, request("GET", "/page", [["Accept-Encoding", "gzip"]]));
    expect(answer).toMatchObject({ status: 203, text: "PAGE longer" });
    expect([answer.get("x-id"), answer.get("content-encoding")]).toEqual(["7", undefined]);
  }
  expect(upstream.calls[0]?.all("accept-encoding")).toEqual(["identity"]);
});

test("h3: text() of an encoded body returns its encoded bytes, as docs/bodies.md says", async () => {
  const bytes = gzipSync("page");
  const seen: string[] = [];
  const app = new H3().get("/page", async (event) => {
    const response = await proxyFetch(event.req, upstream.url);
    seen.push(await response.clone().text());
    return response;
  });
  upstream.script = (call) => call.reply(200, [["Content-Encoding", "gzip"]], bytes);
  await apps.ask(await apps.serve("h3", app), request("GET", "/page"));
  expect(seen).toEqual([bytes.toString("utf8")]);
});
