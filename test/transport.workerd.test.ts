/** What the suite does not ask of every host: workerd's own ways of going wrong. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, createTransport } from "../runtimes/workerd.ts";
import { connect, type Client } from "./_client.ts";
import { type Program, startProgram } from "./_program.ts";
import { Upstream } from "./_upstream.ts";
import { within } from "./_wait.ts";
import { request } from "./_wire.ts";

const worker = `
import { createProxy, proxyFetch } from "./runtimes/workerd.ts";
let proxy;

/** A body made by the script: it breaks off after the first piece. */
function broken() {
  let pieces = 0;
  return new ReadableStream({
    async pull(controller) {
      if (pieces++ === 0) return controller.enqueue(new TextEncoder().encode("half"));
      await new Promise((resolve) => setTimeout(resolve, 100));
      throw new Error("broken");
    },
  });
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
  "/sized": ({ url }) =>
    proxy.fetch(
      new Request(url, { method: "POST", body: broken(), headers: { "content-length": "10" } }),
    ),
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

const directory = mkdtempSync(join(tmpdir(), "fetchway-"));
const upstream = new Upstream();
let program: Program;
let port = 0;

beforeAll(async () => {
  await upstream.listen();
  await build({
    stdin: {
      contents: worker,
      resolveDir: fileURLToPath(new URL("..", import.meta.url)),
      loader: "js",
    },
    outfile: join(directory, "worker.js"),
    bundle: true,
    format: "esm",
    conditions: ["workerd"],
  });
  writeFileSync(
    join(directory, "config.capnp"),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "internet", network = (allow = ["public", "private"])),
    (name = "main", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = "2026-10-01",
      compatibilityFlags = ["enable_request_signal"],
      bindings = [
        (name = "UPSTREAM", text = "${upstream.url}"),
        (name = "SERVICE", service = "internet"),
      ],
    )),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`,
  );
  program = startProgram("workerd", ["serve", join(directory, "config.capnp"), "--control-fd=1"]);
  port = Number((await program.printed(/"port":\s*(\d+)/))[1]);
});
afterEach(() => upstream.reset());
afterAll(async () => {
  await program[Symbol.asyncDispose]();
  await upstream.stop();
  rmSync(directory, { recursive: true });
});

async function send(bytes: Uint8Array): Promise<Client> {
  const client = await connect(port);
  client.send(bytes);
  return client;
}

test("the client's address is the connection's, whatever its fields say", async () => {
  const fields: [string, string][] = [
    ["CF-Connecting-IP", "6.6.6.6"],
    ["CF-Ray", "1-DFW"],
  ];
  const client = await send(request("GET", "/plain", fields));
  expect((await client.read()).status).toBe(200);
  expect(upstream.calls[0]?.all("x-forwarded-for")).toEqual(["127.0.0.1"]);
});

test.each(["global", "service"])("`fetch` may be %s", async (way) => {
  const client = await send(request("GET", `/${way}`));
  expect((await client.read()).status).toBe(200);
  expect(upstream.calls.map((call) => call.target)).toEqual([`/${way}`]);
});

test("a service's `fetch` without its service is misuse that says the fix, not 502", async () => {
  const client = await send(request("GET", "/unbound"));
  const answer = await client.read();
  expect(answer.text).toMatch(/^TypeError: fetchway: bad option `fetch`: .+ env\.SERVICE\.fetch/);
  expect(upstream.calls).toEqual([]);
});

test.each(["plain", "fields", "clone", "init"])(
  "a coded body is the same after a Worker made another response of it: %s",
  async (way) => {
    const bytes = gzipSync("a body that compresses well; ".repeat(100));
    upstream.script = (call) => call.reply(200, [["Content-Encoding", "gzip"]], bytes);
    const answer = await (await send(request("GET", `/${way}`))).read();
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.body.equals(bytes)).toBe(true);
    expect(gunzipSync(answer.body).length).toBe(2900);
  },
);

test.each(["sized", "unsized"])(
  "a %s body of the script's that fails never arrives whole",
  async (way) => {
    upstream.script = () => {};
    const client = await send(request("GET", `/${way}`));
    const call = await upstream.call();
    await call.done;
    expect(call).toMatchObject({ state: "cut", text: "half" });
    expect((await client.read()).status).toBeGreaterThanOrEqual(400);
  },
);

test("a client that leaves closes the upstream request, although the Worker goes on", async () => {
  upstream.script = () => {};
  const client = await send(request("GET", "/waiting"));
  const call = await upstream.call();
  client.leave("RST");
  await within(call.link.closed, "the upstream's connection closed", 1000);
});

describe.each(["FIN", "RST"])("a connection closed by %s as it is reused", (how) => {
  /** Sends requests one after the other; each is answered on a new connection, and met with a close on a kept one. */
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
    // Otherwise nothing was kept, and nothing tried.
    expect(upstream.links.some(({ calls }) => calls.length > 1)).toBe(true);
    return statuses;
  }

  test.each([
    ["GET", undefined],
    ["PUT", "a body"],
    ["POST", undefined],
    ["POST", "a body"],
  ])("a %s is seen once at most (body: %s)", async (method, body) => {
    expect(await statusesOf(method, body)).toContain(200);
    const ids = upstream.calls.map((call) => call.get("x-id"));
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("what Workers cannot do is refused at creation", () => {
  const target = "http://127.0.0.1:4000";
  test.each([
    [{ host: "shop.example" }, /`host`.*cannot set Host/],
    [{ changeOrigin: false }, /`changeOrigin: false`.*cannot set Host/],
    [{ pool: { maxSockets: 4 } }, /`maxSockets`.*no connections of their own/],
    [{ target: "unix:/run/app.sock" }, /unix/],
    [{ target: { url: "https://127.0.0.1:4000", tls: { ca: "pem" } } }, /tls/i],
  ])("%j", (options, message) => {
    expect(() => createProxy({ target, ...options })).toThrow(TypeError);
    expect(() => createProxy({ target, ...options })).toThrow(message);
  });

  test("what is left to their defaults is not", () => {
    expect(createTransport({ connectTimeout: 5 }).name).toBe("workerd");
    expect(createProxy({ target, changeOrigin: true }).stats()).toBeUndefined();
  });
});
