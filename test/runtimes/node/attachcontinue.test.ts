/** `Expect: 100-continue` from end to end, on servers that are built on Node's server. */
import { connect as connectHttp2, createServer as createHttp2 } from "node:http2";
import type { Server } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type NodeProxy } from "../../../runtimes/node.ts";
import { attachContinue } from "../../../runtimes/node/attachcontinue.ts";
import { useApps } from "../../helpers/apps.ts";
import type { Client } from "../../helpers/client.ts";
import { serve } from "../../helpers/serve.ts";
import { pause, until } from "../../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const EXPECT: Header = ["Expect", "100-continue"];
const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";
const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

type Kind = "node" | "srvx" | "h3" | "hono";

/** Starts a server with its own route `/own`, which reads the body; all other routes are the proxy's. */
async function start(kind: Kind, proxy: NodeProxy, isAttached = true): Promise<number> {
  const web = async (given: Request): Promise<Response> =>
    new URL(given.url).pathname === "/own"
      ? new Response(`own ${await given.text()}`)
      : proxy.fetch(given);
  const handlers = {
    node: ((req, res) => {
      if (req.url !== "/own") return proxy.nodeHandler(req, res);
      let text = "";
      req.on("data", (data: Buffer) => (text += data.toString()));
      req.on("end", () => res.end(`own ${text}`));
    }) as NodeProxy["nodeHandler"],
    srvx: web,
    h3: web,
    hono: web,
  };
  const { server, port } = await serve(kind, handlers[kind]);
  servers.push(server);
  if (isAttached) attachContinue(server, ({ url }) => url !== "/own");
  return port;
}

async function send(
  port: number,
  path = "/",
  more: Header[] = [["Content-Length", "5"]],
): Promise<Client> {
  const client = await apps.connect(port);
  client.send(request("POST", path, [EXPECT, ...more]));
  return client;
}

describe.each(["node", "srvx", "h3", "hono"] as const)("attachContinue with %s", (kind) => {
  test("the upstream gets Expect, and the client gets 100 only when the upstream sends 100", async () => {
    const port = await start(kind, createProxy({ target: upstream.url }));
    for (const framing of [
      ["Content-Length", "5"],
      ["Transfer-Encoding", "chunked"],
    ] as Header[]) {
      await upstream.reset();
      upstream.script = () => {};
      const client = await send(port, "/", [framing]);
      const heading = client.readHead();
      const call = await upstream.call();
      expect(call.all("expect")).toEqual(["100-continue"]);
      expect(client.interim).toBe(0);
      call.write(CONTINUE);
      await until(() => client.interim === 1, "100 Continue");
      if (framing[0] === "Content-Length") client.send("hello");
      else client.send(chunk("hello"), lastChunk);
      await call.done;
      expect(call).toMatchObject({ state: "complete", text: "hello" });
      call.reply(200, [], "thanks");
      const answer = await client.readBody(await heading);
      expect(answer).toMatchObject({ status: 200, text: "thanks" });
      expect(answer.interim.map(({ status }) => status)).toEqual([100]);
      client.send(request("GET", "/next"));
      (await upstream.call(1)).reply(200, [], "next");
      expect(await client.read()).toMatchObject({ status: 200, text: "next" });
    }
  });

  test.each([403, 413, 417])(
    "if the upstream responds with %i, the client gets this response without a 100 before it",
    async (status) => {
      upstream.script = (call) => call.reply(status, [], "no");
      const port = await start(kind, createProxy({ target: upstream.url }));
      const client = await send(port, "/", [["Content-Length", "500000"]]);
      const answer = await client.read();
      expect(answer).toMatchObject({ status, text: "no", interim: [] });
      // The connection must close, because the next bytes could be the body or another request (RFC 9110 §10.1.1).
      expect(answer.get("connection")).toBe("close");
      expect(await client.rest()).toHaveLength(0);
      expect(apps.only()).toMatchObject({ length: 0 });
      await until(() => upstream.openLinks === 0, "the upstream's connection closed");
    },
  );

  test("if the upstream sends no 100, the proxy itself sends 100 to the client after a while", async () => {
    const port = await start(kind, createProxy({ target: upstream.url }));
    const client = await send(port);
    const heading = client.readHead();
    await until(() => client.interim === 1, "100 Continue");
    client.send("hello");
    expect(await client.readBody(await heading)).toMatchObject({ status: 200, text: "hello" });
  });

  test("on a route of the app, the client gets 100 when the route reads the body", async () => {
    const port = await start(kind, createProxy({ target: upstream.url }));
    const client = await send(port, "/own");
    const heading = client.readHead();
    await until(() => client.interim === 1, "100 Continue");
    client.send("hello");
    expect(await client.readBody(await heading)).toMatchObject({ text: "own hello" });
    expect(upstream.calls).toEqual([]);
  });

  test("the client gets no 100 if its body exceeds bodyLimit, or if the upstream refuses the connection", async () => {
    const limited = await start(kind, createProxy({ target: upstream.url, bodyLimit: 4 }));
    const over = await (await send(limited)).read();
    expect(over).toMatchObject({ status: 413, interim: [] });
    expect(upstream.calls).toEqual([]);
    const refused = await start(kind, createProxy({ target: "http://127.0.0.1:1" }));
    expect(await (await send(refused)).read()).toMatchObject({ status: 502, interim: [] });
  });

  test("Expect also reaches the upstream with bodyLimit, followRedirects and hooks", async () => {
    upstream.script = (call) => call.write(CONTINUE);
    const options = { bodyLimit: 100, followRedirects: true, onRequest: () => {} };
    const port = await start(kind, createProxy({ target: upstream.url, ...options }));
    const client = await send(port);
    const heading = client.readHead();
    const call = await upstream.call();
    expect(call.all("expect")).toEqual(["100-continue"]);
    await until(() => client.interim === 1, "100 Continue");
    client.send("hello");
    await call.done;
    call.reply(200, [], "thanks");
    expect(await client.readBody(await heading)).toMatchObject({ status: 200, text: "thanks" });
  });

  test("a client need not wait for 100, and the upstream's connection is closed when a client disconnects", async () => {
    const port = await start(kind, createProxy({ target: upstream.url }));
    const client = await apps.connect(port);
    client.send(request("POST", "/", [EXPECT], "hello"));
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
    upstream.script = () => {};
    const leaving = await send(port);
    const call = await upstream.call(1);
    leaving.leave("FIN");
    await until(() => call.link.isClosed, "the upstream's connection closed");
  });

  test("without attachContinue, the server sends 100 immediately, and Expect is dropped", async () => {
    const port = await start(kind, createProxy({ target: upstream.url }), false);
    const client = await send(port);
    const heading = client.readHead();
    await until(() => client.interim === 1, "100 Continue");
    client.send("hello");
    expect(await client.readBody(await heading)).toMatchObject({ status: 200, text: "hello" });
    expect(apps.only().all("expect")).toEqual([]);
  });
});

test("after a final response without a 100, a body that the client sends anyway does not reach the upstream", async () => {
  upstream.script = (call) => call.write("HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nno");
  const client = await send(await start("node", createProxy({ target: upstream.url })));
  const head = await client.readHead();
  // A client may still send the body that the upstream has refused (RFC 9110 §10.1.1).
  client.send("hello");
  // This pause is longer than the proxy would wait for a 100 of the upstream.
  await pause(1300);
  (await upstream.call()).write("!!");
  expect(await client.readBody(head)).toMatchObject({ status: 403, text: "no!!", interim: [] });
  expect((await client.rest()).toString()).toBe("");
  expect(apps.only().length).toBe(0);
});

test("requests that `match` excludes go to other listeners of `checkContinue`", async () => {
  const { server, port } = await serve("node", createProxy({ target: upstream.url }).nodeHandler);
  servers.push(server);
  server.on("checkContinue", (req: { url: string }, res: { end(text: string): void }) => {
    if (req.url === "/own") res.end("another listener");
  });
  const match = ({ url }: { url?: string | undefined }): boolean => url !== "/own";
  attachContinue(server, match);
  attachContinue(server, match);
  expect(server.listenerCount("checkContinue")).toBe(2);
  expect(await (await send(port, "/own")).read()).toMatchObject({ text: "another listener" });
  upstream.script = (call) => call.reply(403, [], "no");
  expect(await (await send(port)).read()).toMatchObject({ status: 403, interim: [] });
});

test.each(["100-Continue", "nothing-known"])(
  "HTTP/2: 100-continue works in any letter case, and another expectation gets 417: Expect: %s",
  async (expectation) => {
    const server = createHttp2({}, createProxy({ target: upstream.url }).nodeHandler);
    attachContinue(server, () => true);
    const session = connectHttp2(`http://127.0.0.1:${await apps.listen(server)}`);
    try {
      upstream.script = (call) => call.write(CONTINUE);
      const stream = session.request({ ":method": "POST", ":path": "/", expect: expectation });
      let final: unknown;
      stream.on("continue", () => stream.end("hello"));
      stream.on("response", (headers) => (final = headers[":status"])).resume();
      if (expectation === "100-Continue") {
        const call = await upstream.call();
        await call.done;
        expect(call.text).toBe("hello");
        call.reply(200);
      }
      await until(() => final !== undefined, "the final response");
      expect(final).toBe(expectation === "100-Continue" ? 200 : 417);
    } finally {
      session.destroy();
    }
  },
);

test("HTTP/2: the client gets 403 without a 100 before it, and gets 100 only when the upstream sends 100", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const server = createHttp2({}, nodeHandler);
  attachContinue(server, () => true);
  const session = connectHttp2(`http://127.0.0.1:${await apps.listen(server)}`);
  try {
    for (const status of [403, 200]) {
      await upstream.reset();
      upstream.script = (call) => (status === 403 ? call.reply(403) : call.write(CONTINUE));
      const stream = session.request({ ":method": "POST", ":path": "/", expect: "100-continue" });
      let isContinued = false;
      let final: unknown;
      stream.on("continue", () => {
        isContinued = true;
        stream.end("hello");
      });
      stream.on("response", (headers) => (final = headers[":status"]));
      stream.resume();
      const call = await upstream.call();
      expect(call.all("expect")).toEqual(["100-continue"]);
      if (status === 200) {
        await call.done;
        expect(call.text).toBe("hello");
        call.reply(200);
      }
      await until(() => final !== undefined, "the final response");
      expect(final).toBe(status);
      expect(isContinued).toBe(status === 200);
      stream.close();
    }
  } finally {
    session.destroy();
  }
});
