/** The handler for route rules, in real h3 apps: rules of the app, and rules that are compiled as in Nitro. */
import type { IncomingMessage } from "node:http";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createProxy } from "#fetchway";
import { H3, type Middleware, serve } from "h3";
import { createMatcherFromFind, routeRules } from "h3/rules";
import { compileRouteRules } from "h3/rules/compiler";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import { createRuleHandler, proxy, type RuleHandler } from "../../integrations/rules.ts";
import { findPort } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until, within } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

type Rules = Parameters<typeof routeRules>[0];

/** Starts an app with rules, and with its own route for everything else. Calls `use` with the origin of the app. */
async function withApp(
  rules: Middleware,
  use: (origin: string, server: ReturnType<typeof serve>) => Promise<void>,
): Promise<void> {
  const app = new H3().use(rules).all("/**", () => "the app itself");
  const server = serve(app, { port: 0, hostname: "127.0.0.1", silent: true });
  await server.ready();
  try {
    await use((server.url ?? "").replace(/\/$/, ""), server);
  } finally {
    await server.close(true);
  }
}

function rulesOf(rules: Rules, handler: RuleHandler = createRuleHandler()): Middleware {
  return routeRules(rules, { handlers: { proxy: handler } });
}

/** Sends a request, and returns the request target that the upstream received. */
async function targetOf(url: string): Promise<string | undefined> {
  const before = upstream.calls.length;
  await (await fetch(url)).text();
  return upstream.calls[before]?.target;
}

describe("rules with /** at the end", () => {
  const rules = (): Middleware =>
    rulesOf({
      "/api/**": { proxy: `${upstream.url}/v1/**` },
      "/:tenant/files/**": { proxy: { to: `${upstream.url}/**` } },
    });

  test("requests below the path of a rule are forwarded with their bodies, queries and fields", async () => {
    await withApp(rules(), async (origin) => {
      const response = await fetch(`${origin}/api/a%2Fb?c=%20`, {
        method: "POST",
        body: "text",
        headers: { "x-id": "7" },
      });
      expect(await response.text()).toBe("text");
      expect(response.headers.get("x-id")).toBe("7");
      const call = await upstream.call();
      expect(call.target).toBe("/v1/a%2Fb?c=%20");
      expect(call.get("host")).toBe(upstream.authority);
      expect(call.get("x-forwarded-for")).toBe("127.0.0.1");
    });
  });

  test("the path of the rule is removed, however the request spells it, along with the values of its parameters", async () => {
    await withApp(rules(), async (origin) => {
      expect(await targetOf(`${origin}/%61pi/x`)).toBe("/v1/x");
      expect(await targetOf(`${origin}/one/files/x`)).toBe("/x");
      expect(await targetOf(`${origin}/two/files/x/y`)).toBe("/x/y");
      expect(await targetOf(`${origin}/api/z`)).toBe("/v1/z");
    });
  });

  test("no request is sent outside the target's path", async () => {
    await withApp(rules(), async (origin) => {
      for (const path of ["/api/a%2f..%2f..%2f..%2fb", "//api/a"]) {
        expect((await fetch(origin + path)).status).toBe(400);
      }
      expect(upstream.calls).toEqual([]);
    });
  });

  test("requests outside the paths of the rules go to the app", async () => {
    await withApp(rules(), async (origin) => {
      expect(await (await fetch(`${origin}/apix`)).text()).toBe("the app itself");
      expect(upstream.calls).toEqual([]);
    });
  });

  test("redirects of the target stay below the path of the rule", async () => {
    upstream.script = (call) => call.reply(302, [["Location", `${upstream.url}/v1/new`]]);
    await withApp(rules(), async (origin) => {
      const response = await fetch(`${origin}/api/old`, { redirect: "manual" });
      expect(response.headers.get("location")).toBe("/api/new");
    });
  });

  test("requests of several rules share a connection to the upstream", async () => {
    await withApp(rules(), async (origin) => {
      for (const path of ["/api/a", "/api/b", "/one/files/c"]) await targetOf(origin + path);
      expect(upstream.links).toHaveLength(1);
    });
  });
});

test("a rule without /** in its target sends each request to the target's URL, with the queries of both", async () => {
  const rules = rulesOf({
    "/a": { proxy: `${upstream.url}/fixed` },
    "/b/**": { proxy: `${upstream.url}/fixed?x=1` },
  });
  await withApp(rules, async (origin) => {
    expect(await targetOf(`${origin}/a`)).toBe("/fixed");
    expect(await targetOf(`${origin}/a?y=2`)).toBe("/fixed?y=2");
    expect(await targetOf(`${origin}/b/c`)).toBe("/fixed?x=1");
    expect(await targetOf(`${origin}/b/c?y=2`)).toBe("/fixed?x=1&y=2");
  });
});

test("options of the rule take precedence over those of the handler, unless they are undefined", async () => {
  const handler = createRuleHandler({ headers: { "x-all": "1" }, xfwd: false });
  const rules = {
    "/a/**": { proxy: `${upstream.url}/**` },
    "/b/**": { proxy: { to: `${upstream.url}/**`, xfwd: true } },
    "/c/**": { proxy: { to: `${upstream.url}/**`, xfwd: undefined } as never },
  };
  await withApp(rulesOf(rules, handler), async (origin) => {
    await targetOf(`${origin}/a/`);
    await targetOf(`${origin}/b/`);
    await targetOf(`${origin}/c/`);
    const seen = upstream.calls.map((call) => [call.get("x-all"), call.get("x-forwarded-for")]);
    expect(seen).toEqual([
      ["1", undefined],
      ["1", "127.0.0.1"],
      ["1", undefined],
    ]);
  });
});

test("the `route` in onRequestEnd is the pattern of the rule, or its option `route`", async () => {
  const routes: unknown[] = [];
  const handler = createRuleHandler({ onRequestEnd: ({ route }) => void routes.push(route) });
  const rules = {
    "/api/**": { proxy: `${upstream.url}/**` },
    "/users/:id": { proxy: `${upstream.url}/user` },
    "/named/**": { proxy: { to: `${upstream.url}/**`, route: "mine" } },
  };
  await withApp(rulesOf(rules, handler), async (origin) => {
    for (const path of ["/api/a", "/api/b", "/users/7", "/named/a"]) await targetOf(origin + path);
    await until(() => routes.length === 4, "the ends");
    expect(routes).toEqual(["/api/**", "/api/**", "/users/:id", "mine"]);
  });
});

test("a rule makes only one handler for all paths", async () => {
  const handler = createRuleHandler();
  const made = new Set<unknown>();
  let count = 0;
  const counting: RuleHandler = {
    ...handler,
    handler(matched) {
      const send = handler.handler(matched);
      made.add(send);
      count++;
      return send;
    },
  };
  const rules = rulesOf({ "/api/**": { proxy: `${upstream.url}/**` } }, counting);
  await withApp(rules, async (origin) => {
    for (const path of ["/api/a", "/api/b", "/api/c"]) await targetOf(origin + path);
    expect(count).toBe(3);
    expect(made.size).toBe(1);
  });
});

test("a request to a dead target gets 502", async () => {
  const url = `http://127.0.0.1:${await findPort()}`;
  await withApp(rulesOf({ "/**": { proxy: `${url}/**` } }), async (origin) => {
    const response = await fetch(`${origin}/a`);
    expect(response.status).toBe(502);
    expect(response.headers.get("proxy-status")).toContain("connection_refused");
  });
});

test.each(["/internal/**", "http://a.test/**/b/**"])("the target %s of a rule is refused", (to) => {
  expect(() => proxy.handler({ options: { to } })).toThrow(
    `fetchway: bad rule "${to}": use a URL such as "http://127.0.0.1:4000/v1/**"`,
  );
});

test.each([
  ["stripPrefix", { stripPrefix: "/api/v2" }, { to: "http://a.test/**", base: "/api" }],
  ["pathRewrite", { pathRewrite: { "token=[^&]*": "" } }, { to: "http://a.test/one" }],
])("%s is refused where it has no effect, in a rule and for all rules", (name, set, rule) => {
  const message = `fetchway: bad rule "${rule.to}": remove \`${name}\``;
  expect(() => proxy.handler({ options: { ...rule, ...set } })).toThrow(message);
  expect(() => createRuleHandler(set).handler({ options: rule })).toThrow(message);
});

test.each([
  ["https://user:s3cret@a.test/v1", 'bad rule "https://…@a.test/v1": remove the credentials'],
  ["https://a.test/v1#top", 'bad rule "https://a.test/v1#top": remove the fragment'],
])("the target %s of a rule for one URL is refused", (to, message) => {
  expect(() => proxy.handler({ options: { to } })).toThrow(`fetchway: ${message}`);
});

test("`stripPrefix` works in a rule for all paths, and `pathRewrite` in a rule with /** in its target", async () => {
  const rule = {
    to: `${upstream.url}/v1/**`,
    stripPrefix: "/api",
    pathRewrite: { "token=[^&]*": "token=" },
  };
  await withApp(rulesOf({ "/**": { proxy: rule } }), async (origin) => {
    expect(await targetOf(`${origin}/api/a?token=7`)).toBe("/v1/a?token=");
  });
});

test("an environment variable in the target may be set later, and a slash at the end of its value is kept, but not doubled", async () => {
  const rules = {
    "/api/**": { proxy: "{{ FETCHWAY_TEST_API }}/**" },
    "/one": { proxy: "{{FETCHWAY_TEST_API}}" },
    "/dir": { proxy: "{{FETCHWAY_TEST_DIR}}" },
    "/below/**": { proxy: "{{FETCHWAY_TEST_DIR}}/**" },
  };
  const missing = { options: { to: "{{FETCHWAY_TEST_API}}/**" } };
  expect(() => proxy.handler(missing)).toThrow(
    'fetchway: bad rule "{{FETCHWAY_TEST_API}}/**": the environment has no FETCHWAY_TEST_API',
  );
  await withApp(rulesOf(rules), async (origin) => {
    expect((await fetch(`${origin}/api/a`)).status).toBe(500);
    vi.stubEnv("FETCHWAY_TEST_API", `${upstream.url}/`);
    try {
      expect(await targetOf(`${origin}/api/a`)).toBe("/a");
      expect(await targetOf(`${origin}/one?x`)).toBe("/?x");
      vi.stubEnv("FETCHWAY_TEST_DIR", `${upstream.url}/dir/`);
      expect(await targetOf(`${origin}/dir`)).toBe("/dir/");
      expect(await targetOf(`${origin}/below/a`)).toBe("/dir/a");
    } finally {
      vi.unstubAllEnvs();
    }
  });
});

test("rules that are compiled to a module, as in Nitro, import the handler by name", async () => {
  const rules = {
    "/api/**": { proxy: `${upstream.url}/v1/**` },
    "/env/**": { proxy: "{{FETCHWAY_TEST_API}}/v1/**" },
  };
  const source = new URL("../../integrations/rules.ts", import.meta.url).href;
  const { code } = compileRouteRules(rules, { runtimeRules: { proxy: { source } } });
  // The module is in a folder of the project, so that it finds the packages of the project.
  const folder = await mkdtemp(join(import.meta.dirname, "../../node_modules/.cache/rules-"));
  try {
    await writeFile(join(folder, "rules.mjs"), code);
    const compiled = (await import(join(folder, "rules.mjs"))) as {
      findRouteRules: Parameters<typeof createMatcherFromFind>[0];
    };
    const match = createMatcherFromFind(compiled.findRouteRules);
    const middleware: Middleware = (event, next) => {
      const [first] = match(event.req.method, event.url.pathname).routeRuleMiddleware;
      return first === undefined ? next() : first(event, next);
    };
    await withApp(middleware, async (origin) => {
      expect(await targetOf(`${origin}/api/a?b`)).toBe("/v1/a?b");
      expect(await (await fetch(`${origin}/other`)).text()).toBe("the app itself");
      vi.stubEnv("FETCHWAY_TEST_API", upstream.url);
      expect(await targetOf(`${origin}/env/a?b`)).toBe("/v1/a?b");
    });
  } finally {
    vi.unstubAllEnvs();
    await rm(folder, { recursive: true });
  }
});

test.each([
  ["beside the rules", { match: (req: IncomingMessage) => req.url?.startsWith("/api/") ?? false }],
  ["through the rules", { routes: true }],
])("an attached proxy forwards WebSockets %s", async (_, options) => {
  const rules = rulesOf({ "/api/**": { proxy: `${upstream.url}/v1/**` } });
  await withApp(rules, async (origin, server) => {
    const target = "routes" in options ? "http://127.0.0.1:1" : `${upstream.url}/v1`;
    createProxy({ target, stripPrefix: "/api" }).attach(server, options);
    upstream.script = async (call) => {
      const socket = await accept(call);
      socket.on("message", (data: Buffer) => socket.send(data.toString()));
    };
    const socket = new WebSocket(`${origin.replace("http:", "ws:")}/api/socket`);
    const messages: string[] = [];
    socket.on("message", (data: Buffer) => messages.push(data.toString()));
    socket.on("open", () => socket.send("a message"));
    await until(() => messages.length > 0, "the echo");
    expect(upstream.calls[0]?.target).toBe("/v1/socket");
    const closed = new Promise((resolve) => socket.on("close", resolve));
    socket.close();
    await within(closed, "the close");
  });
});
