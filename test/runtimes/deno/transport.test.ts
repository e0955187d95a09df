/** Tests for behaviour that only Deno has. */
import { rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../helpers/client.ts";
import { mebibyte } from "../../helpers/large.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

const runtime = JSON.stringify(new URL("../../../runtimes/deno.ts", import.meta.url).href);

/** Starts a server with a proxy to `target`, in an environment whose variables would redirect its requests. */
function startProxy(target: string): Program {
  return run(`
    import { createProxy } from ${runtime};
    const proxy = createProxy({ target: ${JSON.stringify(target)} });
    Deno.serve({ port: 0, hostname: "127.0.0.1" }, proxy.fetch);
  `);
}

function run(code: string): Program {
  return startProgram("deno", ["eval", "--unstable-no-legacy-abort", code], {
    HTTP_PROXY: "http://127.0.0.1:1",
    http_proxy: "http://127.0.0.1:1",
    ALL_PROXY: "http://127.0.0.1:1",
    NO_PROXY: "",
  });
}

async function portOfProgram(program: Program): Promise<number> {
  return Number((await program.printed(/http:\/\/127\.0\.0\.1:(\d+)/))[1]);
}

test("HTTP_PROXY and similar variables are ignored", async () => {
  await using program = startProxy(upstream.url);
  const client = await connect(await portOfProgram(program));
  client.send(request("GET", "/direct"));
  expect((await client.read()).status).toBe(200);
  expect(upstream.calls.map((call) => call.target)).toEqual(["/direct"]);
});

test("in a server of srvx, the client's address is forwarded", async () => {
  await using program = run(`
    import { serve } from "srvx";
    import { proxyFetch } from ${runtime};
    const fetch = (request) => proxyFetch(request, ${JSON.stringify(upstream.url)});
    serve({ fetch, port: 0, hostname: "127.0.0.1", gracefulShutdown: false });
  `);
  const client = await connect(await portOfProgram(program));
  client.send(request("POST", "/", [["X-Forwarded-For", "6.6.6.6"]], "body"));
  expect(await client.read()).toMatchObject({ status: 200, text: "body" });
  expect(upstream.calls[0]?.all("x-forwarded-for")).toEqual(["127.0.0.1"]);
});

test("an upstream on a Unix socket gets a request line in origin form", async () => {
  const path = join(tmpdir(), `fetchway-${process.pid}.sock`);
  const server = createServer((req, res) => void res.end(`${req.headers.host} ${req.url}`));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  try {
    await using program = startProxy(`unix:${path}`);
    const client = await connect(await portOfProgram(program));
    client.send(request("GET", "/a/../b?c"));
    expect(await client.read()).toMatchObject({ status: 200, text: "localhost /a/../b?c" });
  } finally {
    server.closeAllConnections();
    server.close();
    rmSync(path, { force: true });
  }
});

test("clients that disconnect during large bodies do not crash the process", async () => {
  upstream.script = async (call) => {
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    await call.pour(64 * mebibyte, { chunked: true });
  };
  await using program = startProxy(upstream.url);
  const port = await portOfProgram(program);
  for (let round = 0; round < 10; round++) {
    const clients = await Promise.all(Array.from({ length: 20 }, () => connect(port)));
    await Promise.all(
      clients.map(async (client, index) => {
        client.send(request("GET", "/large"));
        const pieces = client.pieces(await client.readHead());
        for (let length = 0; length < (index + 1) * 100_000;) {
          const next = await pieces.next();
          length += next.done ? Infinity : next.value.length;
        }
        client.leave(index % 2 ? "FIN" : "RST");
      }),
    );
  }
  upstream.script = (call) => call.reply(200, [], "still here");
  const client = await connect(port);
  client.send(request("GET", "/after"));
  expect(await client.read()).toMatchObject({ status: 200, text: "still here" });
});

const posts: Record<string, (id: string) => Uint8Array> = {
  "without a body": (id) => request("POST", "/", [["X-Id", id]]),
  "with a body": (id) => request("POST", "/", [["X-Id", id]], "a body"),
  "with a chunked body": (id) => {
    const headers: [string, string][] = [
      ["X-Id", id],
      ["Transfer-Encoding", "chunked"],
    ];
    return Buffer.concat([request("POST", "/", headers), chunk("a body"), lastChunk]);
  },
};

test.each(Object.entries(posts))(
  "a POST %s is never sent twice, no matter when the upstream closes the connection",
  async (_, post) => {
    // The upstream receives each request completely. It answers most of the requests that are the first on their connection.
    // Instead of answering any other request, it closes or resets the connection.
    upstream.script = async (call) => {
      await call.done;
      const kept = call.link.calls.indexOf(call) === 0 && upstream.calls.indexOf(call) % 5 !== 4;
      if (kept) call.reply(200);
      else if (upstream.links.length % 2) call.close();
      else call.reset();
    };
    await using program = startProxy(upstream.url);
    const port = await portOfProgram(program);
    const statuses = new Set<number>();
    for (let id = 0; id < 100; id++) {
      const client = await connect(port);
      client.send(post(`${id}`));
      statuses.add((await client.read()).status);
      client.leave("FIN");
    }
    expect(statuses).toEqual(new Set([200, 502]));
    expect(upstream.calls.map((call) => call.get("x-id"))).toEqual(
      Array.from({ length: 100 }, (__, id) => `${id}`),
    );
  },
);
