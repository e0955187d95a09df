/** TLS and HTTP/2 through undici. */
import { createServer } from "node:http";
import { createSecureServer } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import { Agent, type Dispatcher } from "undici";
import { afterEach, expect, test } from "vitest";
import { createProxy } from "#fetchway";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { connect } from "../../helpers/client.ts";
import { listen } from "../../helpers/serve.ts";
import { type Header, request } from "../../helpers/wire.ts";

const { cert, key } = await makeCertificate();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

function through(
  dispatcher: Dispatcher,
  target: string,
): (path: string, init?: RequestInit) => Promise<Response> {
  closing.unshift(() => dispatcher.destroy());
  const proxy = createProxy({ target, transport: createUndiciTransport(dispatcher) });
  return (path, init) => proxy.fetch(new Request(`http://proxy.test${path}`, init));
}

/** The server name (SNI) that the last connection asked for. */
let asked: string | false | null;

async function startUpstream(version: 1 | 2): Promise<string> {
  const handle = (req: { url?: string; method?: string }, res: { end(text: string): void }) =>
    res.end(`${req.method} ${req.url}`);
  const server =
    version === 1
      ? createHttpsServer({ cert, key }, handle as never)
      : createSecureServer({ cert, key }, handle as never);
  server.on("secureConnection", (socket: { servername: string | false | null }) => {
    asked = socket.servername;
  });
  closing.push(() => server.close());
  return `https://localhost:${await listen(server)}`;
}

test("undici uses HTTP/2 if the agent allows it", async () => {
  const target = await startUpstream(2);
  const send = through(new Agent({ allowH2: true, connect: { ca: cert } }), target);
  const got = await send("/a?b");
  expect([got.status, await got.text()]).toEqual([200, "GET /a?b"]);
  const posted = await send("/p", { method: "POST", body: "x" });
  expect(await posted.text()).toBe("POST /p");
  expect([...got.headers.keys()].filter((name) => name.startsWith(":"))).toEqual([]);
});

test("over HTTP/2, undici joins repeated header fields into one, and Fetchway's own client keeps them apart", async () => {
  let sent: string[] = [];
  const server = createSecureServer({ cert, key }, ({ rawHeaders }, response) => {
    sent = rawHeaders.filter((_, at) => rawHeaders[at - 1] === "x-multi");
    response.setHeader("X-Multi", ["1", "2"]);
    response.end();
  });
  closing.push(() => server.close());
  const target = `https://localhost:${await listen(server)}`;
  const agent = new Agent({ allowH2: true, connect: { ca: cert } });
  const own = createProxy({ target, pool: { http2: true, tls: { ca: cert } } });
  closing.unshift(
    () => agent.destroy(),
    () => own.destroy(),
  );
  for (const [proxy, values] of [
    [createProxy({ target, transport: createUndiciTransport(agent) }), ["1, 2"]],
    [own, ["1", "2"]],
  ] as const) {
    const front = createServer(proxy.nodeHandler);
    const client = await connect(await listen(front));
    closing.unshift(
      () => client.leave("FIN"),
      () => front.close(),
    );
    const fields: Header[] = [
      ["X-Multi", "1"],
      ["X-Multi", "2"],
    ];
    client.send(request("GET", "/", fields));
    const answer = await client.read();
    expect([sent, answer.all("x-multi")]).toEqual([values, values]);
  }
});

test("the certificate is checked for the target's name, and not for Host", async () => {
  const target = await startUpstream(1);
  const dispatcher = new Agent({ allowH2: false, connect: { ca: cert } });
  closing.push(() => dispatcher.destroy());
  const transport = createUndiciTransport(dispatcher);
  const proxy = createProxy({ target, transport, changeOrigin: false });
  const answer = await proxy.fetch(
    new Request("http://proxy.test/", { headers: { host: "evil.test" } }),
  );
  expect([answer.status, asked]).toEqual([200, "localhost"]);
});

test("an untrusted certificate becomes 502", async () => {
  const answer = await through(new Agent(), await startUpstream(1))("/");
  expect(answer.headers.get("proxy-status")).toBe("fetchway; error=tls_certificate_error");
});
