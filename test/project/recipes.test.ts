/** The recipes of docs/recipes.md, each run unchanged except for addresses. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { expectAllRun, importBlock, readBlock, withCopy } from "./_blocks.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { connect } from "../helpers/client.ts";
import { echoMessages, handshake, sayHello } from "../helpers/handshake.ts";
import { startProgram } from "../helpers/program.ts";
import type { Call } from "../helpers/link.ts";
import { type Fetch, findPort, listen, serve } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until, within } from "../helpers/wait.ts";
import { chunk, lastChunk, request as writeRequest } from "../helpers/wire.ts";
import type { NodeProxy } from "../../runtimes/node.ts";

const upstream = new Upstream();
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const TARGET = "http://127.0.0.1:4000";
const ending: (() => void)[] = [];
beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const end of ending.splice(0)) end();
  await upstream.reset();
});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await upstream.stop();
});

/** Imports a recipe with replaced texts, and returns its default export. */
async function load<T>(title: string, replaced: Record<string, string> = {}): Promise<T> {
  const place = `docs/recipes.md: ${title}`;
  const ours = readBlock(place).includes(TARGET) ? { [TARGET]: upstream.url } : {};
  return (await importBlock<{ default: T }>(place, { ...ours, ...replaced })).default;
}

async function start(title: string, replaced?: Record<string, string>): Promise<string> {
  const recipe = await load<{ fetch: Fetch }>(title, replaced);
  const { port, server, close } = await serve("srvx", recipe.fetch);
  ending.push(() => {
    close();
    if ("closeAllConnections" in server) (server.closeAllConnections as () => void)();
  });
  return `http://127.0.0.1:${port}`;
}

test("an event stream: events arrive while it is open, and the upstream notices that the client disconnects", async () => {
  upstream.script = (call) => {
    call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
  };
  const leaving = new AbortController();
  const response = await fetch(await start("Event streams (SSE)"), { signal: leaving.signal });
  const reader = response.body?.getReader();
  const first = reader && (await within(reader.read(), "the first event"));
  expect(new TextDecoder().decode(first?.value)).toBe("data: 1\n\n");
  const call = await upstream.call();
  const closed = new Promise((resolve) => call.link.socket.once("close", resolve));
  leaving.abort();
  await within(closed, "the upstream's connection to close");
});

test("a silent event stream: the client gets comments between the events", async () => {
  upstream.script = (call) => {
    call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
  };
  const origin = await start("Event streams (SSE) (2)", { "15_000": "20" });
  const response = await fetch(origin);
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes);
    if (text.length >= 15) break;
  }
  expect(text).toMatch(/^data: 1\n\n(?::\n\n)+$/);
});

test("a gateway to language models: if a provider fails before the first event, the other provider responds", async () => {
  const other = new Upstream();
  await other.listen();
  ending.push(() => void other.stop());
  const print = vi.spyOn(console, "log").mockImplementation(() => {});
  ending.push(() => print.mockRestore());
  const origin = await start("A gateway to language models", {
    "http://127.0.0.1:4001": other.url,
    "20_000": "200",
  });
  const body = JSON.stringify({ model: "m", stream: true });
  const ask = (key = "key of a customer"): Promise<Response> =>
    fetch(`${origin}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, cookie: "a=b", "x-api-key": "c" },
      body,
    });
  expect((await ask("wrong")).status).toBe(401);
  expect(upstream.calls).toEqual([]);

  const head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  const events = (provider: string): string =>
    `data: {"choices":[{"delta":{"content":"${provider}"}}]}\n\n` +
    'data: {"choices":[],"usage":{"prompt_tokens":3,"total_tokens":7}}\n\ndata: [DONE]\n\n';
  const whole = (call: Call, text: string): void => call.write(head, chunk(text), lastChunk);
  other.script = (call) => whole(call, events("other"));
  // There are no more failures than these five: the fifth ejects the first provider.
  const failures: ((call: Call) => void)[] = [
    (call) => call.reply(529, [], "overloaded"),
    (call) => call.write(head, chunk(": PROCESSING\n\n")),
    (call) => call.write(head, lastChunk),
    (call) => whole(call, 'data: {"error":{"message":"overloaded"}}\n\n'),
    (call) => whole(call, "event: message_start\ndata: {}\n\nevent: error\ndata: {}\n\n"),
  ];
  for (const [i, fail] of failures.entries()) {
    upstream.script = fail;
    const response = await ask();
    expect([i, response.status, await response.text()]).toEqual([i, 200, events("other")]);
    await until(() => print.mock.calls.length > i, "the number of tokens");
    expect(print.mock.lastCall).toEqual([`${other.url}: 7 tokens`]);
  }
  for (const [calls, key] of [
    [upstream.calls, "key of the first provider"],
    [other.calls, "key of the second provider"],
  ] as const) {
    expect(calls).toHaveLength(failures.length);
    for (const call of calls) {
      expect(call.all("authorization")).toEqual([`Bearer ${key}`]);
      expect([call.get("cookie"), call.get("x-api-key"), call.text]).toEqual([
        undefined,
        undefined,
        body,
      ]);
    }
  }
});

test("a restart: a request waits until the upstream is back", async () => {
  const port = await findPort();
  const url = `http://127.0.0.1:${port}`;
  const origin = await start("Ride out restarts", { [TARGET]: url });
  const response = fetch(origin, { method: "POST", body: "x" });
  let isOver = false;
  void response.finally(() => (isOver = true)).catch(() => {});
  await expect(fetch(url)).rejects.toThrow("fetch failed");
  expect(isOver).toBe(false);
  const back = new Upstream();
  ending.push(() => void back.stop());
  await back.listen(port);
  expect(await (await response).text()).toBe("x");
});

describe("an auth service in front", () => {
  const auth = new Upstream();
  const AUTH = { "http://127.0.0.1:9091": "" };
  beforeEach(async () => {
    await auth.listen();
    AUTH["http://127.0.0.1:9091"] = auth.url;
  });
  afterEach(() => auth.stop());
  const begin = (): Promise<string> => start("Forward auth", AUTH);

  test("the target gets the fields that the auth service has set, and never the client's own fields", async () => {
    auth.script = (call) => call.reply(204, [["Remote-User", "alice"]]);
    const response = await fetch(`${await begin()}/a?b`, {
      method: "POST",
      body: "upload",
      headers: {
        cookie: "session=1",
        "remote-user": "root",
        remote_user: "root",
        "remote-groups": "admins",
        "x-forwarded-uri": "/public",
        "x-forwarded-method": "GET",
      },
    });
    expect(response.status).toBe(200);
    const asked = await auth.call();
    expect([asked.method, asked.target, asked.text]).toEqual(["GET", "/api/verify", ""]);
    expect(asked.get("host")).toBe(auth.url.replace("http://", ""));
    expect(asked.get("cookie")).toBe("session=1");
    expect(asked.all("x-forwarded-method")).toEqual(["POST"]);
    expect(asked.all("x-forwarded-uri")).toEqual(["/a?b"]);
    expect(asked.get("x-forwarded-for")).toBe("127.0.0.1");
    for (const name of ["content-length", "remote-user", "remote_user", "remote-groups"]) {
      expect(asked.get(name), name).toBeUndefined();
    }
    const call = await upstream.call();
    expect([call.method, call.target, call.text]).toEqual(["POST", "/a?b", "upload"]);
    expect(call.all("remote-user")).toEqual(["alice"]);
    expect([call.get("remote_user"), call.get("remote-groups")]).toEqual([undefined, undefined]);
  });

  test("a response of the auth service other than 2xx goes to the client, and the target gets no request", async () => {
    const fields: [string, string][] = [
      ["Location", "http://login.example/?rd=1"],
      ["Set-Cookie", "state=1"],
    ];
    auth.script = (call) => call.reply(302, fields, "log in");
    const body = "x".repeat(1_000_000);
    const response = await fetch(await begin(), { method: "PUT", body, redirect: "manual" });
    expect([response.status, await response.text()]).toEqual([302, "log in"]);
    expect(response.headers.get("location")).toBe("http://login.example/?rd=1");
    expect(response.headers.getSetCookie()).toEqual(["state=1"]);
    expect(upstream.calls).toEqual([]);
  });

  test("a WebSocket passes only if the auth service answers 2xx", async () => {
    const proxy = await load<NodeProxy>("Forward auth", AUTH);
    const server = createServer(proxy.nodeHandler);
    proxy.attach(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    ending.push(() => server.close());
    const { port } = server.address() as AddressInfo;
    const sockets = echoMessages(upstream);
    ending.push(() => sockets.forEach((socket) => socket.terminate()));
    auth.script = (call) => call.reply(204);
    expect(await sayHello(`ws://127.0.0.1:${port}/socket`)).toBe("hello");
    auth.script = (call) => call.reply(403);
    const client = await connect(port);
    ending.push(() => client.socket.destroy());
    client.send(writeRequest("GET", "/socket", handshake));
    expect((await within(client.read(), "the response")).status).toBe(403);
    expect(auth.calls.map((call) => [call.method, call.get("upgrade")])).toEqual([
      ["GET", undefined],
      ["GET", undefined],
    ]);
    expect(upstream.calls).toHaveLength(1);
  });

  test("the client gets 502 if the auth service is down, and 504 if it is late", async () => {
    const origin = await begin();
    auth.script = () => {};
    const late = await start("Forward auth", {
      ...AUTH,
      "filterHeaders:": "timeout: 100, filterHeaders:",
    });
    expect((await fetch(late)).status).toBe(504);
    await auth.stop();
    expect((await fetch(origin)).status).toBe(502);
    expect(upstream.calls).toEqual([]);
  });

  test("if the client disconnects, the request to the auth service is aborted", async () => {
    auth.script = () => {};
    const leaving = new AbortController();
    const response = fetch(await begin(), { signal: leaving.signal });
    response.catch(() => {});
    const { link } = await auth.call();
    leaving.abort();
    await within(link.closed, "the connection to the service to close");
    await expect(response).rejects.toThrow();
    expect(upstream.calls).toEqual([]);
  });
});

test("a part of an API: without the token, no spelling of its path reaches the upstream", async () => {
  const origin = await start("A part of an API that only some clients may use");
  const { hostname, port } = new URL(origin);
  const ask = async (path: string, fields: Record<string, string> = {}): Promise<number> => {
    const { request } = await import("node:http");
    return new Promise((resolve, reject) => {
      request({ hostname, port, path, headers: fields }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      })
        .on("error", reject)
        .end();
    });
  };
  upstream.script = (call) => call.reply(200, [], "x");
  for (const path of [
    "/admin",
    "/admin/x?y",
    "//admin",
    "/%61dmin",
    "/x/..%2fadmin",
    "/%2561dmin",
  ]) {
    expect([path, await ask(path)]).toEqual([path, 403]);
  }
  expect(upstream.calls).toEqual([]);
  expect(await ask("/%61dmin", { authorization: "Bearer secret of the admins" })).toBe(200);
  expect(await ask("/public?admin")).toBe(200);
});

test("CORS: preflights do not reach the upstream, and only pages of one origin can read responses", async () => {
  const origin = await start("CORS");
  const preflight = await fetch(origin, {
    method: "OPTIONS",
    headers: { "access-control-request-method": "PUT" },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-methods")).toContain("PUT");
  expect(upstream.calls).toEqual([]);
  upstream.script = (call) => call.reply(200, [["Access-Control-Allow-Origin", "*"]], "x");
  const response = await fetch(origin);
  expect(response.headers.get("access-control-allow-origin")).toBe("https://app.example");
  // An OPTIONS request that is not a preflight is forwarded.
  expect((await fetch(origin, { method: "OPTIONS" })).status).toBe(200);
  expect(upstream.calls).toHaveLength(2);
});

test("a secret: only the upstream gets the secret, and only requests of customers are forwarded", async () => {
  const origin = await start("A secret for the upstream, and a login in front of it");
  expect((await fetch(origin)).status).toBe(401);
  expect(upstream.calls).toEqual([]);
  const headers = { "x-api-key": "key of a customer", authorization: "Bearer mine" };
  expect((await fetch(origin, { headers })).status).toBe(200);
  const call = await upstream.call();
  expect(call.all("authorization")).toEqual(["Bearer secret of the upstream"]);
  expect(call.get("x-api-key")).toBeUndefined();
});

test("a log: a line reports the outcome of each request, even if the response is truncated", async () => {
  const lines: string[] = [];
  const print = vi
    .spyOn(console, "log")
    .mockImplementation((line: string) => void lines.push(line));
  try {
    const origin = await start("A log line for each request");
    upstream.script = (call) => call.reply(201, [], "four");
    await (await fetch(`${origin}/a?b`)).text();
    await until(() => lines.length === 1, "the first line");
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({
      method: "GET",
      path: "/a?b",
      status: 201,
      clientAddress: "127.0.0.1",
      upstream: upstream.url,
      bytesOut: 4,
    });
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour");
      call.close();
    };
    await expect(fetch(origin).then((response) => response.text())).rejects.toThrow();
    await until(() => lines.length === 2, "the second line");
    expect(JSON.parse(lines[1] ?? "")).toMatchObject({
      failure: expect.stringMatching(
        /^http_response_incomplete: 127\.0\.0\.1:\d+ closed /,
      ) as string,
    });
  } finally {
    print.mockRestore();
  }
});

test("a self-signed certificate: the upstream's certificate is trusted, and any other is not", async () => {
  const [mine, other] = [await makeCertificate(), await makeCertificate()];
  const server = createSecureServer(mine, (_, res) => res.end("over TLS"));
  const port = await listen(server);
  ending.push(() => server.close().closeAllConnections());
  const title = "A self-signed certificate";
  for (const [{ cert }, status] of [
    [mine, 200],
    [other, 502],
  ] as const) {
    const file = join(folder, `${status}.pem`);
    writeFileSync(file, cert);
    const origin = await start(title, {
      "https://127.0.0.1:4000": `https://127.0.0.1:${port}`,
      "upstream-cert.pem": file,
    });
    expect((await fetch(origin)).status).toBe(status);
  }
});

test("several tenants: each host has its upstream, and other hosts get 404", async () => {
  const proxy = await load<{ fetch: Fetch }>("Several tenants");
  const ask = async (host: string): Promise<number> =>
    (await proxy.fetch(new Request(`http://${host}/a`))).status;
  expect(await ask("shop.example")).toBe(200);
  expect(await ask("docs.example")).toBe(200);
  expect(await ask("evil.example")).toBe(404);
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/shop/a", "/docs/a"]);
});

test("a rate limit: a client above the limit gets 429, whatever address its X-Forwarded-For claims", async () => {
  const origin = await start("A rate limit", { "limit = 100": "limit = 2" });
  const ask = async (address: string): Promise<Response> =>
    fetch(origin, { headers: { "x-forwarded-for": address } });
  expect((await ask("1.1.1.1")).status).toBe(200);
  expect((await ask("2.2.2.2")).status).toBe(200);
  const refused = await ask("3.3.3.3");
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
  expect(upstream.calls).toHaveLength(2);
});

test("a service binding: the bound Worker gets the request", async () => {
  type Worker = { fetch(request: Request, env: object): Promise<Response> };
  const worker = await load<Worker>("A service binding");
  const SERVICE = { fetch: async ({ url }: Request) => new Response(new URL(url).pathname) };
  const response = await worker.fetch(new Request("http://a.test/b"), { SERVICE });
  expect(await response.text()).toBe("/b");
});

test("a cache: a repeated request reaches the upstream only if its response may not be stored", async () => {
  const origin = await start("A cache");
  const ask = async (path: string): Promise<string> => (await fetch(origin + path)).text();
  upstream.script = (call) =>
    call.reply(
      200,
      [["Cache-Control", call.target === "/stored" ? "max-age=60" : "no-store"]],
      `answer ${upstream.calls.length}`,
    );
  expect([await ask("/stored"), await ask("/stored")]).toEqual(["answer 1", "answer 1"]);
  expect([await ask("/other"), await ask("/other")]).toEqual(["answer 2", "answer 3"]);
});

test("a test without an upstream: the test in the recipe passes", async () => {
  await withCopy("docs/recipes.md: A test without an upstream", {}, async (copy) => {
    await using program = startProgram("node", ["--test", fileURLToPath(copy)]);
    await program.ended();
    expect([program.code(), program.output()]).toEqual([
      0,
      expect.stringContaining("✔ the cart comes from the shop"),
    ]);
  });
});

test("every recipe has a test", () => expectAllRun("recipes.test.ts"));
