/** Exchanges are correct even if @hono/node-server renames its undocumented symbols, or other code uses a body. */
import type { IncomingMessage } from "node:http";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createProxy, type NodeProxy } from "../../../../runtimes/node.ts";
import { isBodyUsed, toFields, toRecord } from "../../../../runtimes/node/internals/hono.ts";
import { useApps } from "../../../helpers/apps.ts";
import { within } from "../../../helpers/wait.ts";
import { type Header, request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const proxies: NodeProxy[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const proxy of proxies.splice(0)) proxy.destroy();
});

function create(): NodeProxy {
  const proxy = createProxy({ target: upstream.url });
  proxies.push(proxy);
  return proxy;
}

/** Returns the symbol property of a Hono request or response with this description. */
function symbolOf(web: Request | Response, description: string): symbol {
  const symbol = Object.getOwnPropertySymbols(web).find((each) => each.description === description);
  if (symbol === undefined) throw new Error(`no symbol ${description}`);
  return symbol;
}

const changes: Record<string, (web: Request) => Request> = {
  // The object inherits the getters, so they work, but it has no symbol properties of its own.
  "a request without the symbols": (web) => Object.create(web) as Request,
  "a request with something else under the symbol": (web) =>
    Object.create(web, { [Symbol("incomingKey")]: { value: {} } }) as Request,
  // The native request exists, but the symbol that shows this has another name.
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

describe.each(Object.entries(changes))("a request of @hono/node-server: %s", (_, change) => {
  test("is forwarded unchanged", async () => {
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

/** Returns a text that differs at each place, so that swapped or missing chunks are noticed. */
function textOf(length: number, seed: string): string {
  return Array.from({ length: length / 10 }, (_, i) => seed + `${i}`.padStart(9, "0")).join("");
}

/** How other code may use a response; `reads` says whether the server then reads the stream of the body. */
const uses: Record<string, [reads: boolean, use: (response: Response) => Response]> = {
  "a body that no other code uses": [false, (response) => response],
  "a body whose header fields other code changes": [
    false,
    (response) => {
      response.headers.set("x-other", "1");
      return response;
    },
  ],
  "a body that other code passes on": [
    true,
    (response) => new Response(response.body, { headers: response.headers }),
  ],
  "a body of which other code makes a copy": [
    true,
    (response) => {
      void response.clone().text();
      return response;
    },
  ],
  "a body that other code reads after the head was written": [
    true,
    (response) => {
      const { body, headers } = response;
      let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
      const upper = new ReadableStream<Uint8Array>(
        {
          async pull(controller) {
            reader ??= body?.getReader() as ReadableStreamDefaultReader<Uint8Array>;
            const { value, done } = await reader.read();
            if (done) controller.close();
            else controller.enqueue(Buffer.from(Buffer.from(value).toString().toUpperCase()));
          },
        },
        { highWaterMark: 0 },
      );
      return new Response(upper, { headers });
    },
  ],
  "a response without the symbol": [
    true,
    (response) => {
      Reflect.deleteProperty(response, symbolOf(response, "cache"));
      return response;
    },
  ],
};

test.each(Object.entries(uses))("%s arrives completely", async (name, [reads, use]) => {
  const proxy = create();
  const port = await apps.serve("hono", { fetch: async (web) => use(await proxy.fetch(web)) });
  const client = await apps.connect(port);
  const text = textOf(1_000_000, "a");
  upstream.script = (call) => call.reply(200, [["Content-Type", "text/plain"]], text);
  const getReader = vi.spyOn(ReadableStream.prototype, "getReader");
  client.send(request("GET", "/"));
  const answer = await within(client.read(), "the response");
  expect(answer.text === (name.includes("after the head") ? text.toUpperCase() : text)).toBe(true);
  expect(getReader.mock.calls.length > 0).toBe(reads);
});

test("two pipelined responses each have their own body", async () => {
  const proxy = create();
  const port = await apps.serve("hono", { fetch: (web) => proxy.fetch(web) });
  const client = await apps.connect(port);
  upstream.script = (call) =>
    call.reply(200, [["Content-Type", "text/plain"]], textOf(300_000, call.target.slice(1)));
  client.send(request("GET", "/a"), request("GET", "/b"));
  const answers = [await client.read(), await client.read()];
  expect(answers.map(({ text }) => text === textOf(300_000, "a"))).toEqual([true, false]);
  expect(answers[1]?.text === textOf(300_000, "b")).toBe(true);
});

test("a client that disconnects during a response closes the upstream request", async () => {
  const proxy = create();
  const port = await apps.serve("hono", { fetch: (web) => proxy.fetch(web) });
  const client = await apps.connect(port);
  const closed = Promise.withResolvers<void>();
  upstream.script = (call) => {
    call.link.socket.on("close", () => closed.resolve());
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + textOf(200_000, "a"));
  };
  client.send(request("GET", "/"));
  await client.readHead();
  client.socket.destroy();
  await within(closed.promise, "the end of the upstream request");
});

test("`toFields` gives a repeated field one name, spelled as in the first line, with a list of values", async () => {
  await apps.serve("hono", () => new Response()); // replaces the global `Response`
  const list = ["Set-Cookie", "a=1", "X-A", "1", "set-cookie", "b=2", "x-a", "2", "X-A", "3"];
  expect(Object.assign({}, toFields(list, true))).toEqual({
    "Set-Cookie": ["a=1", "b=2"],
    "X-A": ["1", "2", "3"],
  });
  // Node refuses to send some fields twice over HTTP/2, so only Set-Cookie becomes a list.
  expect(Object.assign({}, toFields(list, false))).toEqual({
    "Set-Cookie": ["a=1", "b=2"],
    "X-A": "1, 2, 3",
  });
  const many = Array.from({ length: 200 }, (_, i) => `X-${i >> 1}`);
  expect(Object.keys(toFields(many, true))).toHaveLength(100);
});

test("`toRecord` returns a plain object, or undefined if a name occurs twice or is `__proto__`", () => {
  expect(toRecord(["A", "1", "B", "2"])).toEqual({ A: "1", B: "2" });
  expect(toRecord(["A", "1", "a", "2"])).toBeUndefined();
  expect(toRecord(["__proto__", "1"])).toBeUndefined();
});

describe("responses made by a class that", () => {
  /** The runtime's own class: @hono/node-server replaces the global one only when a server is made. */
  const Own = globalThis.Response;
  let before: typeof Response;
  beforeEach(() => void (before = globalThis.Response));
  afterEach(() => void (globalThis.Response = before));

  /** A `Response` class that copies header fields if they are a plain object, as the class of another server might. */
  class Copying extends Own {
    constructor(body?: BodyInit | null, init?: ResponseInit) {
      const fields = init?.headers ?? {};
      super(body, {
        ...init,
        headers: fields instanceof Headers ? fields : Object.fromEntries(Object.entries(fields)),
      });
    }
  }
  /** Returns a class that stores the parts of a response under a symbol of this name. */
  const storing = (name: string): typeof Response =>
    class extends Own {
      constructor(body?: BodyInit | null, init?: ResponseInit) {
        super(body, init);
        Object.assign(this, { [Symbol(name)]: [this.status, body, init?.headers] });
      }
    };

  const classes: Record<string, [Class: typeof Response, keepsLines: boolean]> = {
    "stores fields as they are": [storing("cache"), true],
    "stores fields elsewhere": [storing("parts"), false],
    "copies fields": [Copying, false],
    "is the runtime's own": [Own, false],
  };
  const fields: Header[] = [
    ["Set-Cookie", "a=1"],
    ["X-A", "1"],
    ["set-cookie", "b=2"],
    ["x-a", "2"],
    ["__proto__", "p"],
  ];

  test.each(Object.entries(classes))(
    "%s have each header field",
    async (_, [Class, keepsLines]) => {
      globalThis.Response = Class;
      expect(toFields(fields.flat(), true) instanceof Headers).toBe(!keepsLines);
      upstream.script = (call) => call.reply(200, fields, "");
      const { headers } = await create().fetch(new Request("http://proxy.test/"));
      expect(headers.getSetCookie()).toEqual(["a=1", "b=2"]);
      expect([headers.get("x-a"), headers.get("__proto__")]).toEqual(["1, 2", "p"]);
    },
  );
});

test("`isBodyUsed` does not read `bodyUsed` of a response whose native response is not yet created", () => {
  const asked = vi.fn(() => true);
  class OwnResponse {
    get bodyUsed(): boolean {
      return asked();
    }
  }
  const response = new OwnResponse() as unknown as Response;
  expect(isBodyUsed(response)).toBe(true);
  expect(asked).toHaveBeenCalledOnce();
  Object.assign(response, { [Symbol("cache")]: [200, null, {}] });
  expect(isBodyUsed(response)).toBe(false);
  expect(asked).toHaveBeenCalledOnce();
});
