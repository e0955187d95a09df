/** Cases about the response of an app in the same process. */
import { Hono } from "hono";
import type { FetchTarget } from "../../../src/index.ts";
import {
  answering,
  ask,
  assertEqual,
  type Case,
  createNetwork,
  describeRequest,
  read,
  statusOf,
} from "./_case.ts";

export const answers: Record<string, Case> = {
  async "status, reason phrase, cookies and responses without a body pass unchanged"(create) {
    const app = new Hono();
    app.get("/odd", () => {
      const headers = new Headers([
        ["set-cookie", "a=1; Path=/, x"],
        ["set-cookie", "b=2"],
        ["connection", "x-hop"],
        ["x-hop", "1"],
      ]);
      return new Response("odd", { status: 299, statusText: "Odd One", headers });
    });
    app.get("/none", (c) => c.body(null, 204));
    app.get("/same", () => new Response(null, { status: 304, headers: { etag: '"x"' } }));
    const proxy = create({ target: app });
    const odd = await proxy.fetch(read("/odd"));
    assertEqual([odd.status, odd.statusText, await odd.text()], [299, "Odd One", "odd"]);
    assertEqual(odd.headers.getSetCookie(), ["a=1; Path=/, x", "b=2"]);
    assertEqual(odd.headers.get("x-hop"), null);
    for (const [path, status] of [
      ["/none", 204],
      ["/same", 304],
    ] as const) {
      const { status: seen, body } = await proxy.fetch(read(path));
      assertEqual([seen, body], [status, null]);
    }
    const head = await proxy.fetch(read("/odd", { method: "HEAD" }));
    assertEqual([head.status, await head.text()], [299, ""]);
  },

  async "a redirect to the app's URL becomes a redirect to the proxy's path"(create) {
    const target = {
      fetch: ({ url }: Request) => Response.redirect(new URL("/v1/there?x", url), 302),
      url: "https://shop.example/v1",
    };
    const response = await create({ target, stripPrefix: "/api" }).fetch(read("/api/a"));
    assertEqual(response.headers.get("location"), "/api/there?x");
  },

  async "a followed redirect within the app's origin is sent to the app"(create) {
    const { fetch, sent } = createNetwork();
    const app = new Hono()
      .post("/a", (c) => c.redirect("/b", 307))
      .post("/b", (c) => describeRequest(c.req.raw));
    const proxy = create({ target: app, fetch, followRedirects: true, headers: { "x-key": "1" } });
    const { url, headers, body } = await ask(proxy, read("/a", { method: "POST", body: "kept" }));
    assertEqual([url, headers["x-key"], body], ["http://app.invalid/b", "1", "kept"]);
    assertEqual(sent.length, 0);
  },

  async "a followed redirect to another origin goes to the network without credentials"(create) {
    const { fetch, sent } = createNetwork();
    const target = answering(() => Response.redirect("http://other.test/x"));
    const proxy = create({
      target,
      fetch,
      followRedirects: true,
      redirectTargets: "any",
      headers: { "x-key": "1" },
    });
    const response = await proxy.fetch(read("/", { headers: { cookie: "a=1", "x-own": "1" } }));
    assertEqual(await response.text(), "from the network");
    const [[url, headers] = ["", new Headers()]] = sent;
    assertEqual([sent.length, url], [1, "http://other.test/x"]);
    assertEqual(
      ["x-key", "cookie", "x-own"].map((name) => headers.get(name)),
      [null, null, "1"],
    );
  },

  async "a request is sent to the app again, with its body, if `retry` names the status"(create) {
    const bodies: string[] = [];
    const target: FetchTarget = {
      async fetch(request) {
        bodies.push(await request.text());
        return new Response(null, { status: bodies.length < 3 ? 503 : 200 });
      },
    };
    const retry = { attempts: 3, statusCodes: [503] };
    const request = read("/", { method: "PUT", body: "again" });
    assertEqual(await statusOf(create({ target, retry }), request), 200);
    assertEqual(bodies, ["again", "again", "again"]);
  },
};
