import { describe, expect, test } from "vitest";
import { addCors, origins } from "../../command/serve/cors.ts";

const shop = "https://shop.example";
const app = "http://localhost:5173";

function answerWith(headers: Record<string, string> = {}): (request: Request) => Response {
  return () => new Response("body", { status: 201, headers: { "x-own": "1", ...headers } });
}

/** Returns the CORS fields of a response, and `Vary`. */
function corsOf({ headers }: Response): Record<string, string> {
  return Object.fromEntries(
    [...headers].filter(([name]) => name.startsWith("access-control-") || name === "vary"),
  );
}

function ask(headers: Record<string, string>, method = "GET"): Request {
  return new Request("http://proxy.test/", { method, headers });
}

function preflight(origin: string, more: Record<string, string> = {}): Request {
  return ask({ origin, "access-control-request-method": "PUT", ...more }, "OPTIONS");
}

test("with CORS turned off, the handler is returned unchanged", () => {
  const answer = answerWith();
  expect(addCors(answer, { cors: false })).toBe(answer);
});

describe("CORS for all origins", () => {
  const handle = addCors(answerWith(), { cors: true });

  test("a page may read a response, without credentials", async () => {
    const response = await handle(ask({ origin: shop }));
    expect([response.status, await response.text()]).toEqual([201, "body"]);
    expect(corsOf(response)).toEqual({
      "access-control-allow-origin": "*",
      "access-control-expose-headers": "*",
    });
  });

  test("a preflight is answered, and allows the method and fields that it asks for", async () => {
    const names = { "access-control-request-headers": "x-a, authorization,bad name" };
    const response = await handle(preflight("null", names));
    expect([response.status, response.body]).toEqual([204, null]);
    expect(corsOf(response)).toEqual({
      "access-control-allow-origin": "*",
      "access-control-allow-methods": "PUT",
      "access-control-allow-headers": "x-a, authorization",
      "access-control-max-age": "60",
      vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    });
  });

  test("a preflight does not open private networks to pages of the internet", async () => {
    const asked = { "access-control-request-private-network": "true" };
    const response = await handle(preflight(shop, asked));
    expect(response.headers.has("access-control-allow-private-network")).toBe(false);
  });

  test("an OPTIONS request that is not a preflight is forwarded", async () => {
    expect((await handle(ask({ origin: shop }, "OPTIONS"))).status).toBe(201);
  });
});

describe("CORS for a list of origins", () => {
  const handle = addCors(answerWith({ "set-cookie": "a=b" }), { cors: false, corsOrigin: [app] });

  test("a page of a listed origin may read a response, with credentials", async () => {
    expect(corsOf(await handle(ask({ origin: app })))).toEqual({
      "access-control-allow-origin": app,
      "access-control-allow-credentials": "true",
      // With credentials, "*" would be the name of a field, not a wildcard.
      "access-control-expose-headers": "content-type, vary, x-own",
      vary: "Origin",
    });
  });

  test.each([shop, `${app}.evil.example`, "null"])(
    "a page of the origin %s may not read a response",
    async (origin) => {
      expect(corsOf(await handle(ask({ origin })))).toEqual({ vary: "Origin" });
    },
  );

  test("a preflight of an origin that is not listed is forwarded", async () => {
    expect((await handle(preflight(app))).headers.get("access-control-allow-credentials")).toBe(
      "true",
    );
    expect((await handle(preflight(shop))).status).toBe(201);
  });
});

test("CORS fields that the upstream sets itself are not changed", async () => {
  const own = { "access-control-allow-origin": shop, vary: "Accept" };
  for (const corsOrigin of [undefined, [app]]) {
    const handle = addCors(answerWith(own), { cors: true, corsOrigin });
    expect(corsOf(await handle(ask({ origin: app })))).toEqual(own);
  }
});

test.each<[hook: string, answer: () => Response | Promise<Response>, body: string]>([
  ["Response.redirect()", () => Response.redirect("https://login.example/"), ""],
  ["fetch()", () => fetch("data:text/plain,whole"), "whole"],
])(
  "a response of %s, whose fields are immutable, gets the CORS fields",
  async (_, answer, body) => {
    const { status, headers } = await answer();
    for (const corsOrigin of [undefined, [app]]) {
      const response = await addCors(answer, { cors: true, corsOrigin })(ask({ origin: app }));
      expect([response.status, await response.text()]).toEqual([status, body]);
      expect([...response.headers]).toEqual(expect.arrayContaining([...headers]));
      expect(response.headers.get("access-control-allow-origin")).toBe(corsOrigin?.[0] ?? "*");
    }
  },
);

test("the 101 response to a WebSocket handshake is returned untouched, as the same object", async () => {
  const switched = {
    status: 101,
    get headers(): Headers {
      throw new Error("touched");
    },
  } as Response;
  const handle = addCors<Request>(() => switched, { cors: true });
  expect(await handle(ask({}))).toBe(switched);
});

test.each([
  ["null", '"null" is the origin of every sandboxed page, whose author is unknown; leave it out'],
  ["localhost:5173", '"localhost:5173" is not an origin: use one such as "http://localhost:5173"'],
  ["http://A.example:80/", '"http://A.example:80/" is not an origin: use "http://a.example"'],
  ["*", '"*" is not an origin: use one such as "http://localhost:5173"'],
  [app, undefined],
])("--cors-origin %s is accepted, or refused with the fix", (origin, message) => {
  expect(origins.check([origin])).toBe(message);
});
