/** Tests of what Bun's own client and server would do differently. */
import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Client, connect } from "../../helpers/client.ts";
import { pour } from "../../helpers/large.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { pause, within } from "../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

/** Starts a server with a proxy to `target`, in an environment whose variables would redirect its requests. */
function startProxy(target: string, options = ""): Program {
  const code = `
    import { createProxy } from ${JSON.stringify(new URL("../../../runtimes/bun.ts", import.meta.url).href)};
    const proxy = createProxy({ target: ${JSON.stringify(target)}, log: false });
    const server = Bun.serve({ ...proxy, port: 0, hostname: "127.0.0.1", ${options} });
    console.log("port=" + server.port);
  `;
  return startProgram("bun", ["-e", code], {
    HTTP_PROXY: "http://127.0.0.1:1",
    http_proxy: "http://127.0.0.1:1",
    NO_PROXY: "",
    NODE_USE_ENV_PROXY: "1",
  });
}

async function connectTo(program: Program): Promise<Client> {
  return connect(Number((await program.printed(/port=(\d+)/))[1]));
}

test("HTTP_PROXY and similar variables are ignored", async () => {
  await using program = startProxy(upstream.url);
  const client = await connectTo(program);
  client.send(request("GET", "/direct"));
  expect((await client.read()).status).toBe(200);
  expect(upstream.calls.map((call) => call.target)).toEqual(["/direct"]);
});

test("an upstream on a Unix socket gets the request path unchanged", async () => {
  const path = join(tmpdir(), `fetchway-bun-${process.pid}.sock`);
  const server = createServer((req, res) => void res.end(`${req.headers.host} ${req.url}`));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  try {
    await using program = startProxy(`unix:${path}`);
    const client = await connectTo(program);
    client.send(request("GET", "//a?b"));
    expect(await client.read()).toMatchObject({ status: 200, text: "localhost //a?b" });
  } finally {
    server.closeAllConnections();
    server.close();
    rmSync(path, { force: true });
  }
});

test("with `...proxy` in its options, Bun.serve accepts bodies of any size and the client's address is forwarded", async () => {
  upstream.script = async (call) => {
    await call.done;
    call.reply(200, [], `${call.get("x-forwarded-for")} ${call.length}`);
  };
  await using program = startProxy(upstream.url);
  const client = await connectTo(program);
  const size = 129 * 1024 * 1024;
  client.send(request("POST", "/", [["Content-Length", `${size}`]]));
  await within(pour(client.socket, size), "the upload", 30_000);
  expect(await client.read()).toMatchObject({ status: 200, text: `127.0.0.1 ${size}` });
});

test("the server's idle timeout does not end an exchange, and Bun's default idle timeout applies afterwards", async () => {
  const past = 6000;
  upstream.script = async (call) => {
    if (call.target === "/late") await pause(past);
    call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
    call.write("Transfer-Encoding: chunked\r\n\r\n", chunk("one "));
    if (call.target === "/silent") await pause(past);
    call.write(chunk("two"), lastChunk);
  };
  await using program = startProxy(upstream.url, "idleTimeout: 1,");
  await Promise.all(
    ["/late", "/silent"].map(async (path) => {
      const client = await connectTo(program);
      client.send(request("GET", path));
      expect(await client.read()).toMatchObject({ text: "one two", cut: false });
      client.socket.resume();
      await within(once(client.socket, "end"), "the idle connection's end", 20_000);
    }),
  );
});

test("a request with a header field that cannot be sent is answered with 400", async () => {
  await using program = startProxy(upstream.url);
  const client = await connectTo(program);
  client.send(request("GET", "/", [["X-A", "a\x7fb"]]));
  expect((await client.read()).status).toBe(400);
  expect(upstream.calls).toEqual([]);
});

test("with a Host that is invalid in a URL, the upstream gets the path unchanged, or the client gets 400", async () => {
  await using program = startProxy(upstream.url);
  for (const host of ["a<b", "caf\xe9", ""]) {
    const client = await connectTo(program);
    client.send(request("GET", "/public//x/admin?y", [["Host", host]]));
    const { status } = await client.read();
    const targets = upstream.calls.map((call) => call.target);
    if (status === 200) expect(targets, host).toEqual(["/public//x/admin?y"]);
    else expect({ status, targets }, host).toEqual({ status: 400, targets: [] });
    await upstream.reset();
  }
});

test("the program of the proxy prints nothing when an upstream truncates a response", async () => {
  await using program = startProxy(upstream.url);
  const client = await connectTo(program);
  upstream.script = (call) => {
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    call.close();
  };
  for (const how of ["in one packet", "later"]) {
    const each = await connectTo(program);
    if (how === "later") {
      upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    }
    each.send(request("GET", "/"));
    const head = await each.readHead();
    if (how === "later") upstream.calls.at(-1)?.reset();
    if (head.status === 200) expect((await each.readBody(head)).cut, how).toBe(true);
    else expect(head.status, how).toBe(502);
  }
  upstream.script = (call) => call.reply(200);
  client.send(request("GET", "/after"));
  expect((await client.read()).status).toBe(200);
  expect(program.output()).toMatch(/^port=\d+\n$/);
});
