/** Tests for behaviour that only workerd has. */
import { gunzipSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { createProxy, createTransport } from "../../../runtimes/workerd.ts";
import { until, within } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";
import { useWorker } from "./_workerd.ts";

const worker = `
import { createProxy, proxyFetch } from "./runtimes/workerd.ts";
let proxy;

/** Creates a stream that fails after its first chunk. */
function broken(source) {
  let pieces = 0;
  return new ReadableStream({
    ...source,
    async pull(controller) {
      if (pieces++ === 0) return controller.enqueue(new TextEncoder().encode("half"));
      await new Promise((resolve) => setTimeout(resolve, 100));
      throw new Error("broken");
    },
  });
}

/** Sends a body with a Content-Length of 10. */
function sendSized({ url }, body) {
  return proxy.fetch(new Request(url, { method: "POST", body, headers: { "content-length": "10" } }));
}

const ways = {
  "/plain": (request) => proxy.fetch(request),
  async "/fields"(request) {
    const { body, headers } = await proxy.fetch(request);
    return new Response(body, { headers });
  },
  "/clone": async (request) => (await proxy.fetch(request)).clone(),
  async "/init"(request) {
    const response = await proxy.fetch(request);
    return new Response(response.body, response);
  },
  "/unsized": ({ url }) => proxy.fetch(new Request(url, { method: "POST", body: broken() })),
  "/sized": (request) => sendSized(request, broken()),
  "/bytes": (request) => sendSized(request, broken({ type: "bytes" })),
  "/expected": (request) => sendSized(request, broken({ type: "bytes", expectedLength: 10 })),
  async "/readers"(request) {
    const { getReader } = ReadableStream.prototype;
    let count = 0;
    ReadableStream.prototype.getReader = function (...options) {
      count++;
      return getReader.apply(this, options);
    };
    const response = await proxy.fetch(request);
    ReadableStream.prototype.getReader = getReader;
    return new Response(response.status + " " + count);
  },
  async "/pipe"({ url }) {
    const { readable, writable } = new FixedLengthStream(200_000);
    const writer = writable.getWriter();
    const sent = proxy.fetch(new Request(url, { method: "POST", body: readable, headers: { "content-length": "200000" } }));
    for (let count = 0; count < 10; count++) await writer.write(new Uint8Array(10_000));
    await writer.abort(new Error("broken"));
    return sent;
  },
  async "/reads"(request) {
    const { read } = ReadableStreamBYOBReader.prototype;
    let count = 0;
    ReadableStreamBYOBReader.prototype.read = function (...options) {
      count++;
      return read.apply(this, options);
    };
    const response = await proxy.fetch(request);
    ReadableStreamBYOBReader.prototype.read = read;
    return new Response(response.status + " " + count);
  },
  "/global": (request, context, { UPSTREAM }) => proxyFetch(request, UPSTREAM, { fetch }),
  "/service": (request, context, { UPSTREAM, SERVICE }) =>
    proxyFetch(request, UPSTREAM, { fetch: (url, init) => SERVICE.fetch(url, init) }),
  async "/unbound"(request, context, { UPSTREAM, SERVICE }) {
    return proxyFetch(request, UPSTREAM, { fetch: SERVICE.fetch }).catch(
      ({ name, message }) => new Response(name + ": " + message, { status: 500 }),
    );
  },
  "/waiting"(request, context) {
    context.waitUntil(new Promise((resolve) => setTimeout(resolve, 5000)));
    return proxy.fetch(request);
  },
};

export default {
  fetch(request, env, context) {
    proxy ??= createProxy({ target: env.UPSTREAM });
    return ways[new URL(request.url).pathname](request, context, env);
  },
};
`;

const { upstream, send } = useWorker(worker);

test("the client's address comes from the connection and not from header fields", async () => {
  const fields: [string, string][] = [
    ["CF-Connecting-IP", "6.6.6.6"],
    ["CF-Ray", "1-DFW"],
  ];
  const client = await send(request("GET", "/plain", fields));
  expect((await client.read()).status).toBe(200);
  expect(upstream.calls[0]?.all("x-forwarded-for")).toEqual(["127.0.0.1"]);
});

test.each(["global", "service"])(
  "the option `fetch` can be the global `fetch`, or call the `fetch` of a service binding: %s",
  async (way) => {
    const client = await send(request("GET", `/${way}`));
    expect((await client.read()).status).toBe(200);
    expect(upstream.calls.map((call) => call.target)).toEqual([`/${way}`]);
  },
);

test("a service's `fetch` as the option `fetch`, without its service, causes a TypeError that names the fix", async () => {
  const client = await send(request("GET", "/unbound"));
  const answer = await client.read();
  expect(answer.text).toMatch(/^TypeError: fetchway: bad option `fetch`: .+ env\.SERVICE\.fetch/);
  expect(upstream.calls).toEqual([]);
});

test.each(["plain", "fields", "clone", "init"])(
  "an encoded body is unchanged after a Worker builds another response from it: %s",
  async (way) => {
    const bytes = gzipSync("a body that compresses well; ".repeat(100));
    upstream.script = (call) => call.reply(200, [["Content-Encoding", "gzip"]], bytes);
    const answer = await (await send(request("GET", `/${way}`))).read();
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.body.equals(bytes)).toBe(true);
    expect(gunzipSync(answer.body).length).toBe(2900);
  },
);

test.each(["sized", "unsized", "bytes", "expected"])(
  "a request body that the Worker's script makes (%s) never looks complete if it fails",
  async (way) => {
    upstream.script = () => {};
    const client = await send(request("GET", `/${way}`));
    const call = await upstream.call();
    await call.done;
    expect(call).toMatchObject({ state: "cut", text: "half" });
    expect((await client.read()).status).toBeGreaterThanOrEqual(400);
  },
);

test("a client's small upload is sent without a JavaScript reader of its stream", async () => {
  const client = await send(request("POST", "/readers", [], "a body"));
  expect((await client.read()).text).toBe("200 0");
  expect(upstream.calls[0]?.text).toBe("a body");
});

test("the proxy reads only the first chunk of a client's large upload", async () => {
  const body = "0123456789".repeat(100_000);
  const client = await send(request("POST", "/reads", [], body));
  expect((await client.read()).text).toBe("200 1");
  expect(upstream.calls[0]).toMatchObject({ state: "complete", text: body });
});

test.each(["FIN", "RST"] as const)(
  "a large upload whose client disconnects by %s never looks complete",
  async (how) => {
    upstream.script = () => {};
    const client = await send(request("POST", "/plain", [["Content-Length", "1000000"]]));
    client.send("x".repeat(500_000));
    const call = await upstream.call();
    await until(() => call.length === 500_000, "the first half");
    client.leave(how);
    await within(call.link.closed, "the upstream's connection closed");
    expect(call.state).toBe("cut");
  },
);

test("if the Worker's script aborts the pipe that is a large request's body, the upstream request is cut off", async () => {
  upstream.script = () => {};
  const client = await send(request("GET", "/pipe"));
  const answer = await client.read();
  const call = await upstream.call();
  await within(call.link.closed, "the upstream's connection closed");
  expect(call.state).toBe("cut");
  expect(answer.status).toBe(400);
});

/** Sends only the beginning of 100 large uploads, and returns the distinct statuses of their responses. */
async function statusesOfUploads(): Promise<number[]> {
  const answers = Array.from({ length: 100 }, async () => {
    const client = await send(request("POST", "/plain", [["Content-Length", "1000000"]]));
    client.send("x".repeat(100_000));
    return (await client.read()).status;
  });
  return [...new Set(await Promise.all(answers))];
}

test("an early response to a large upload reaches the client", async () => {
  upstream.script = (call) => {
    call.reply(413, [["Connection", "close"]]);
    call.close();
  };
  expect(await statusesOfUploads()).toEqual([413]);
});

test("a large upload gets 502 if the upstream resets the connection", async () => {
  upstream.script = (call) => call.reset();
  expect(await statusesOfUploads()).toEqual([502]);
});

test("a large upload gets 400 if the client ends it too early", async () => {
  upstream.script = () => {};
  const client = await send(request("POST", "/plain", [["Content-Length", "1000000"]]));
  client.send("x".repeat(100_000));
  await upstream.call();
  client.finish();
  expect((await client.read()).status).toBe(400);
});

test("the upstream request is closed when the client disconnects, although the Worker continues", async () => {
  upstream.script = () => {};
  const client = await send(request("GET", "/waiting"));
  const call = await upstream.call();
  client.leave("RST");
  await within(call.link.closed, "the upstream's connection closed", 4000);
});

describe.each(["FIN", "RST"])(
  "if the upstream closes connections by %s when they are reused",
  (how) => {
    /**
     * Sends requests in sequence, and returns the distinct statuses of their responses. The upstream answers on a new
     * connection, and closes a reused one.
     */
    async function statusesOf(method: string, body?: string): Promise<Set<number>> {
      upstream.script = async (call) => {
        await call.done;
        if (call.link.calls.length === 1) call.reply(200);
        else if (how === "FIN") call.close();
        else call.reset();
      };
      const statuses = new Set<number>();
      for (let id = 0; id < 60; id++) {
        const client = await send(request(method, "/plain", [["X-Id", `${id}`]], body));
        statuses.add((await client.read(method)).status);
        client.leave("FIN");
      }
      // Without a reused connection, the test would have tested nothing.
      expect(upstream.links.some(({ calls }) => calls.length > 1)).toBe(true);
      return statuses;
    }

    test.each([
      ["GET", undefined],
      ["PUT", "a body"],
      ["POST", undefined],
      ["POST", "a body"],
    ])("a %s reaches the upstream at most once (body: %s)", async (method, body) => {
      expect(await statusesOf(method, body)).toContain(200);
      const ids = upstream.calls.map((call) => call.get("x-id"));
      expect(new Set(ids).size).toBe(ids.length);
    });
  },
);

describe("options that Workers do not support", () => {
  const target = "http://127.0.0.1:4000";
  test.each([
    [{ host: "shop.example" }, /`host`.*cannot set Host/],
    [{ changeOrigin: false }, /`changeOrigin: false`.*cannot set Host/],
    [{ pool: { maxSockets: 4 } }, /`maxSockets`.*no connections of their own/],
    [{ target: "unix:/run/app.sock" }, /unix/],
    [{ target: { url: "https://127.0.0.1:4000", tls: { ca: "pem" } } }, /tls/i],
  ])("the options %j are refused when the proxy is created", (options, message) => {
    expect(() => createProxy({ target, ...options })).toThrow(TypeError);
    expect(() => createProxy({ target, ...options })).toThrow(message);
  });

  test("connectTimeout, and unsupported options that are undefined or have their default value, are accepted", () => {
    const left = { keepAlive: undefined } as object;
    expect(createTransport({ connectTimeout: 5, ...left }).name).toBe("workerd");
    expect(() => createTransport({ connectTimeout: -1 })).toThrow("bad option `connectTimeout`");
    expect(createProxy({ target, changeOrigin: true }).stats()).toBeUndefined();
  });
});
