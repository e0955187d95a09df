/** @hono/node-server with other names for what it does not document: each request is right all the same. */
import type { IncomingMessage } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type NodeProxy } from "../runtimes/node.ts";
import { toRecord } from "../runtimes/node/internals/hono.ts";
import { useApps } from "./_apps.ts";
import { within } from "./_wait.ts";
import { request } from "./_wire.ts";

const apps = useApps();
const { upstream } = apps;

const proxies: NodeProxy[] = [];
afterEach(() => {
  for (const proxy of proxies.splice(0)) proxy.destroy();
});

function create(): NodeProxy {
  const proxy = createProxy({ target: upstream.url });
  proxies.push(proxy);
  return proxy;
}

/** Node's request under one of Hono's. */
function symbolOf(web: Request, description: string): symbol {
  const symbol = Object.getOwnPropertySymbols(web).find((each) => each.description === description);
  if (symbol === undefined) throw new Error(`no symbol ${description}`);
  return symbol;
}

const changes: Record<string, (web: Request) => Request> = {
  // What an object inherits is not its own: its getters work, and no symbol is found.
  "a request without the symbols": (web) => Object.create(web) as Request,
  "a request with something else under the symbol": (web) =>
    Object.create(web, { [Symbol("incomingKey")]: { value: {} } }) as Request,
  // The native request was made, and the symbol that tells has another name.
  "a symbol that is not known": (web) => {
    const { body } = web;
    const key = symbolOf(web, "incomingKey");
    const req = (web as unknown as Record<symbol, IncomingMessage>)[key];
    return Object.create(web, {
      [Symbol("incomingKey")]: { value: req },
      [Symbol("nativeRequest")]: { value: body },
    }) as Request;
  },
};

describe.each(Object.entries(changes))("%s", (_, change) => {
  test("is forwarded as it is", async () => {
    const proxy = create();
    const port = await apps.serve("hono", { fetch: (web) => proxy.fetch(change(web)) });
    const client = await apps.connect(port);
    upstream.script = async (call) => {
      await call.done;
      call.reply(200, [["X-Got", `${call.method} ${call.target} ${call.get("x-name")}`]], "got");
    };
    client.send(request("GET", "/a?b=%2F", [["X-Name", "n"]]));
    const got = await client.read();
    expect([got.status, got.get("x-got"), got.text]).toEqual([200, "GET /a?b=%2F n", "got"]);
    for (const size of [10, 1_000_000]) {
      const body = "x".repeat(size);
      client.send(request("POST", "/upload", [["X-Name", "n"]], body));
      const answer = await within(client.read(), `an answer to ${size} bytes`);
      expect(answer.get("x-got")).toBe("POST /upload n");
      expect(upstream.calls.at(-1)?.length).toBe(size);
    }
  });
});

test("header fields become a record, unless a name occurs twice", () => {
  expect(toRecord(["A", "1", "B", "2"])).toEqual({ A: "1", B: "2" });
  expect(toRecord(["A", "1", "a", "2"])).toBeUndefined();
  expect(toRecord(["__proto__", "1"])).toBeUndefined();
});
