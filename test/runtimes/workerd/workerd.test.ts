import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type BuildOptions } from "esbuild";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { toCapnp } from "../../helpers/capnp.ts";
import { connect } from "../../helpers/client.ts";
import { useEcho } from "../../helpers/echo.ts";
import { readLinkedExample } from "../../project/_example.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { startUpstreams } from "../../helpers/upstreams.ts";
import { patience, pause, until } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";
import type { Call } from "../../helpers/link.ts";
import { type Program, startProgram } from "../../helpers/program.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "fetchway-"));
const upstream = useEcho();
afterAll(() => rmSync(directory, { recursive: true }));

/** Bundles a Worker and serves it in workerd on a free port, which workerd prints. */
async function startWorker(
  name: string,
  contents: string,
  options: BuildOptions,
  vars: Record<string, string> = {},
): Promise<Program> {
  await build({
    stdin: {
      contents: contents.replace("http://127.0.0.1:4000", upstream.url),
      resolveDir: root,
      loader: "ts",
    },
    outfile: join(directory, `${name}.js`),
    bundle: true,
    format: "esm",
    logLevel: "silent",
    ...options,
  });
  const flags = ["nodejs_compat", "enable_request_signal"];
  const config = toCapnp({ module: `${name}.js`, flags, vars: () => vars });
  writeFileSync(join(directory, `${name}.capnp`), config);
  return startProgram("workerd", ["serve", join(directory, `${name}.capnp`), "--control-fd=1"]);
}

async function get(program: Program, path: string): Promise<Response> {
  const [, port] = await program.printed(/"port":\s*(\d+)/);
  return fetch(`http://127.0.0.1:${port}${path}`);
}

const forWorkers: BuildOptions = { conditions: ["workerd", "worker"] };

describe("a mirror", () => {
  const mirror = new Upstream();
  beforeAll(() => mirror.listen());
  afterEach(() => mirror.reset());
  afterAll(() => mirror.stop());

  /** Starts a Worker whose proxy gets the third argument of `fetch`, except for the path `/lost`. */
  function startMirrored(options: string): Promise<Program> {
    const contents = `
      import { createProxy } from "./runtimes/workerd.ts";
      import { mirrorTo } from "./src/exchange/mirror.ts";
      const proxy = createProxy({ mirror: mirrorTo("${mirror.url}"), ${options} });
      export default {
        fetch: (request, env, ctx) => proxy.fetch(request, env, request.url.endsWith("/lost") ? undefined : ctx),
      };`;
    return startWorker("mirror", contents, forWorkers);
  }
  const copyOf = (path: string): Call | undefined =>
    mirror.calls.find(({ target }) => target === path);

  test("gets a copy that continues after the response only if the third argument of `fetch` has `waitUntil`", async () => {
    await using program = await startMirrored('target: "http://127.0.0.1:4000"');
    mirror.script = () => {};
    for (const path of ["/lost", "/kept"]) expect((await get(program, path)).status).toBe(200);
    await until(() => copyOf("/kept") !== undefined, "the copy");
    // Without waitUntil, workerd ends the copy with the response, or never sends it.
    await until(() => copyOf("/lost")?.link.isClosed !== false, "the end of the lost copy");
    await pause(500);
    expect(copyOf("/kept")?.link.isClosed).toBe(false);
    copyOf("/kept")?.reply(200, [], "x");
  });

  const impatient = 'target: { fetch: () => new Response("x") }, timeout: 2_500';

  test("is disconnected after `timeout`, although its response has no end", async () => {
    await using program = await startMirrored(impatient);
    mirror.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
    };
    expect((await get(program, "/")).status).toBe(200);
    const { link } = await mirror.call();
    await until(() => link.isClosed, "the end of the copy");
  });

  test("gets copies again when the time of 100 copies that ended with their requests is over", async () => {
    await using program = await startMirrored(impatient);
    for (let i = 0; i < 100; i++) expect((await get(program, "/lost")).status).toBe(200);
    const isCopied = async (): Promise<boolean> => {
      expect((await get(program, "/kept")).status).toBe(200);
      return copyOf("/kept") !== undefined;
    };
    await expect.poll(isCopied, { timeout: patience }).toBe(true);
  });
});

test("explainError names the upstream, and nothing is printed without `onError`", async () => {
  const contents = `import { createProxy } from "./runtimes/workerd.ts";
    import { explainError } from "./src/explain/errors.ts";
    const target = "http://127.0.0.1:1";
    const quiet = createProxy({ target });
    const proxy = createProxy({ target, onError: (error) => new Response(explainError(error)) });
    export default {
      fetch: (request) => (request.url.endsWith("/quiet") ? quiet : proxy).fetch(request),
    };`;
  await using program = await startWorker("explained", contents, forWorkers);
  expect((await get(program, "/quiet")).status).toBe(502);
  expect(await (await get(program, "/")).text()).toMatch(
    /^connection_terminated: 127\.0\.0\.1:1: Network connection lost\. \(is it running\? /,
  );
  expect(program.output()).not.toContain("fetchway: connection_");
});

test("several upstreams work, and the options `check` and `resolve` are refused by errors that name them", async () => {
  const contents = `import { createProxy } from "./runtimes/workerd.ts";
    import { balance } from "./src/upstreams/balance.ts";
    const urls = ["http://127.0.0.1:1", "http://127.0.0.1:4000"];
    const target = balance(urls, { policy: "round_robin", outliers: { consecutiveFailures: 2 } });
    const proxy = createProxy({ target });
    let refusal = "";
    for (const options of [{ check: { path: "/" } }, { resolve: true }]) {
      try {
        createProxy({ target: balance(urls, options) });
      } catch (error) {
        refusal += error.name + ": " + error.message + "\\n";
      }
    }
    export default {
      fetch(request) {
        const { pathname } = new URL(request.url);
        if (pathname === "/refusal") return new Response(refusal);
        return pathname === "/states" ? Response.json(target.states()) : proxy.fetch(request);
      },
    };`;
  await using program = await startWorker("upstreams", contents, forWorkers);
  for (let n = 0; n < 6; n++) {
    const response = await get(program, `/${n}`);
    expect(response.status).toBe(200);
    await response.text();
  }
  expect(await (await get(program, "/states")).json()).toMatchObject([
    { state: "ejected", active: 0 },
    { state: "up", active: 0 },
  ]);
  expect(await (await get(program, "/refusal")).text()).toMatch(
    new RegExp(
      "^TypeError: fetchway: bad option `check`: nothing runs between requests here; leave it out.*\n" +
        "TypeError: fetchway: bad option `resolve`: the workerd client looks up names itself; leave it out",
    ),
  );
});

test("clients keep their upstream by a cookie, and its secret is generated once", async () => {
  await using upstreams = await startUpstreams(3);
  const contents = `import { createProxy } from "./runtimes/workerd.ts";
    import { balance } from "./src/upstreams/balance.ts";
    let made = 0;
    const cookie = { onSecretMade: () => void made++ };
    const target = balance(${JSON.stringify(upstreams.urls)}, { policy: "sticky", cookie });
    const proxy = createProxy({ target });
    export default {
      fetch: (request) =>
        request.url.endsWith("/made") ? new Response(String(made)) : proxy.fetch(request),
    };`;
  await using program = await startWorker("sticky", contents, forWorkers);
  const [, port] = await program.printed(/"port":\s*(\d+)/);
  const ask = (cookie: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}/x`, { headers: { cookie } });
  const indexes = new Set<string>();
  for (let client = 0; client < 10; client++) {
    const first = await ask("a=1");
    const [set = ""] = first.headers.getSetCookie();
    expect(set).toMatch(/^fetchway=[\w-]{22}; Path=\/; HttpOnly; SameSite=Lax$/);
    expect(first.headers.get("cache-control")).toBe("private");
    const index = await first.text();
    indexes.add(index);
    for (let n = 0; n < 3; n++) {
      const next = await ask(`a=1; ${set.split(";", 1)[0]}; b=2`);
      expect([await next.text(), next.headers.getSetCookie()]).toEqual([index, []]);
    }
  }
  expect(indexes.size).toBeGreaterThan(1);
  expect(await (await get(program, "/made")).text()).toBe("1");
  const cookies = new Set(upstreams.requests.map(({ headers }) => headers.cookie));
  expect(cookies).toEqual(new Set(["a=1", "a=1; b=2"]));
});

test("a queued request is sent when the running request, which belongs to another event of the Worker, has ended", async () => {
  await using upstreams = await startUpstreams(1);
  const contents = `import { createProxy } from "./runtimes/workerd.ts";
    import { balance } from "./src/upstreams/balance.ts";
    const target = balance(["${upstreams.urls[0]}"], { maxRequests: 1, maxQueue: 1 });
    const proxy = createProxy({ target });
    export default {
      fetch: (request) =>
        request.url.endsWith("/waiting") ? new Response(String(target.waiting)) : proxy.fetch(request),
    };`;
  await using program = await startWorker("queue", contents, forWorkers);
  const held = get(program, "/hold");
  await until(() => upstreams.held === 1, "the first request");
  const waiting = get(program, "/1");
  while ((await (await get(program, "/waiting")).text()) !== "1") await pause(2);
  const refused = await get(program, "/2");
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
  upstreams.release();
  expect(await (await held).text()).toBe("held");
  expect(await (await waiting).text()).toBe("0");
  expect(upstreams.paths).toEqual(["/hold", "/1"]);
});

test("a small upload arrives complete even if workerd does not show the length of its stream", async () => {
  const origin = new Upstream();
  await origin.listen();
  const contents = `
    import { createProxy } from "./runtimes/workerd.ts";
    const { prototype } = ReadableStream;
    const keys = Object.getOwnPropertySymbols(prototype);
    delete prototype[keys.find(({ description }) => description === "length")];
    const { getReader } = prototype;
    let count = 0;
    prototype.getReader = function (...options) {
      count++;
      return getReader.apply(this, options);
    };
    const proxy = createProxy({ target: "${origin.url}" });
    export default {
      fetch: async (request) => new Response((await proxy.fetch(request)).status + " " + count),
    };`;
  try {
    await using program = await startWorker("lengthless", contents, forWorkers);
    const [, port] = await program.printed(/"port":\s*(\d+)/);
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: "a body" });
    expect(await response.text()).toBe("200 1");
    expect(origin.calls[0]).toMatchObject({ state: "complete", text: "a body" });
    expect(origin.calls[0]?.get("content-length")).toBe("6");
  } finally {
    await origin.stop();
  }
});

test("a large upload is not stopped if workerd always shows the same number of remaining bytes", async () => {
  const origin = new Upstream();
  await origin.listen();
  const contents = `
    import { createProxy } from "./runtimes/workerd.ts";
    const { prototype } = ReadableStream;
    const keys = Object.getOwnPropertySymbols(prototype);
    const key = keys.find(({ description }) => description === "length");
    Object.defineProperty(prototype, key, { get: () => 100000n });
    export default createProxy({ target: "${origin.url}", timeout: 2000 });`;
  try {
    await using program = await startWorker("uncounted", contents, forWorkers);
    const [, port] = await program.printed(/"port":\s*(\d+)/);
    const client = await connect(Number(port));
    client.send(request("POST", "/", [["Content-Length", "100000"]]));
    for (let count = 0; count < 10; count++) {
      client.send("x".repeat(10_000));
      await pause(300);
    }
    expect((await client.read()).status).toBe(200);
    expect(origin.calls[0]).toMatchObject({ state: "complete", length: 100_000 });
  } finally {
    await origin.stop();
  }
});

test("the entry reads target and options from the Worker's vars", async () => {
  const vars = {
    FETCHWAY_TARGET: `${upstream.url}/base`,
    FETCHWAY_OPTIONS: '{"headers":{"x-set":"1"}}',
  };
  await using program = await startWorker(
    "entry",
    'export { default } from "./runtimes/server.ts"',
    forWorkers,
    vars,
  );
  expect(await (await get(program, "/a%2Fb?c")).json()).toMatchObject({
    path: "/base/a%2Fb?c",
    headers: { "x-set": "1" },
  });
});

test("with wrong vars, clients get 500, and the Worker prints one line that names the mistake", async () => {
  const vars = { FETCHWAY_TARGET: "ftp://u.test" };
  await using program = await startWorker(
    "wrong",
    'export { default } from "./runtimes/server.ts"',
    forWorkers,
    vars,
  );
  const response = await get(program, "/");
  expect([response.status, await response.text()]).toEqual([
    500,
    "Internal Server Error: proxy_configuration_error\n",
  ]);
  await program.printed(/fetchway: bad target "ftp:\/\/u\.test"/);
});

describe.each(["h3", "hono"])("the %s example", (name) => {
  test("forwards below /api and serves the rest", async () => {
    const source = readLinkedExample(name);
    await using program = await startWorker(name, source, forWorkers);
    const response = await get(program, "/api/a%2Fb?c");
    expect(response.headers.get("x-served-by")).toBe(name);
    expect(await response.json()).toMatchObject({ method: "GET", path: "/a%2Fb?c" });
    expect(await (await get(program, "/health")).text()).toBe("ok");
  });
});

test("a bundle with Node's entry throws an error that names the fix", async () => {
  await using program = await startWorker("node", 'export { createProxy } from "#fetchway"', {
    platform: "node",
    conditions: ["node"],
    banner: {
      js: 'import { createRequire } from "node:module"; const require = createRequire("/");',
    },
  });
  await program.printed(
    /fetchway: this is the entry for Node; bundle with the condition "workerd"/,
  );
});
