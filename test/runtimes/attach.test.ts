/** Upgrades in the `node:http` servers of Bun and Deno. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { useApps } from "../helpers/apps.ts";
import { echoMessages, handshake, offer, sayHello } from "../helpers/handshake.ts";
import { type Host, type NodeHttpHost, startHost } from "../hosts/_host.ts";
import { settled, until, within } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

describe.each(["nodehttp-bun", "nodehttp-deno"] as const)("the host %s", (name) => {
  let host: Host<NodeHttpHost>;
  let port = 0;
  beforeAll(async () => {
    host = await startHost(name, upstream.url);
    port = host.port("default");
  });
  afterAll(() => host.stop());
  afterEach(() => expect(host.complaints()).toBe(""));

  test("a WebSocket carries messages, and is closed on both sides when one side closes it", async () => {
    const sockets = echoMessages(upstream);
    expect(await sayHello(`ws://127.0.0.1:${port}/`)).toBe("hello");
    const client = new WebSocket(`ws://127.0.0.1:${port}/`);
    await until(() => client.readyState === WebSocket.OPEN, "the opening");
    client.terminate();
    await until(() => sockets[1]?.readyState === WebSocket.CLOSED, "the end at the upstream");
  });

  test("the app's middleware runs for upgrades, and may refuse them", async () => {
    const sockets = echoMessages(upstream);
    const routes = host.port("routes");
    expect(await sayHello(`ws://127.0.0.1:${routes}/`)).toBe("hello");
    const client = await apps.connect(routes);
    client.send(request("GET", "/", handshake));
    const head = await client.readHead();
    expect(head.status).toBe(101);
    expect(head.get("x-by")).toBe("app");
    client.leave("FIN");
    await until(() => sockets[1]?.readyState === WebSocket.CLOSED, "the end at the upstream");
    for (const [path, status, text] of [
      ["/refused", 401, "no entry"],
      ["/never", 504, "Gateway Timeout: http_response_timeout\n"],
    ] as const) {
      const refused = await apps.connect(routes);
      refused.send(request("GET", path, handshake), request("GET", "/smuggled"));
      expect(await refused.read()).toMatchObject({ status, text, cut: false });
      expect(await refused.rest()).toHaveLength(0);
    }
    expect(upstream.calls).toHaveLength(2);
  });

  test("the response to a refused handshake is relayed completely, however large", async () => {
    const size = 4 * 1024 * 1024;
    upstream.script = (call) => {
      call.write(`HTTP/1.1 403 Forbidden\r\nContent-Length: ${size}\r\n\r\n`);
      return call.pour(size);
    };
    const client = await apps.connect(port);
    client.send(request("GET", "/", handshake));
    expect(await client.read()).toMatchObject({ status: 403, length: size, cut: false });
    expect(await client.rest()).toHaveLength(0);
  });

  test("the upstream request is closed when the client disconnects before the response", async () => {
    upstream.script = () => {};
    const client = await apps.connect(port);
    client.send(request("GET", "/", handshake));
    const call = await upstream.call();
    client.leave("FIN");
    await within(call.link.closed, "the end of the upstream's connection");
  });

  test("a request that offers h2c is forwarded as an ordinary request, with its body", async () => {
    const answer = await apps.ask(port, request("GET", "/", offer("h2c")));
    expect(answer.status).toBe(200);
    const posted = await apps.ask(port, request("POST", "/", offer("h2c"), "body"));
    // Deno's server may itself refuse a request with `Upgrade` and a body.
    if (name === "nodehttp-deno" && posted.status === 400) return;
    expect(posted).toMatchObject({ status: 200, text: "body" });
  });

  test("bytes after a handshake reach the upstream, and an upstream that does not read pauses the client", async () => {
    let [arrived, sent] = [0, 0];
    const reading = Promise.withResolvers<void>();
    upstream.script = (call) => {
      const { socket, rest } = call.link.takeOver();
      arrived += rest.length;
      call.reply("101 Switching Protocols", offer("tcp"), null);
      // Begin to read only after the client had to wait.
      void reading.promise.then(() =>
        socket.on("data", (data: Buffer) => (arrived += data.length)).resume(),
      );
    };
    const client = await apps.connect(port);
    client.send(request("GET", "/", offer("tcp")), "early");
    expect((await client.readHead()).status).toBe(101);
    const chunk = Buffer.alloc(65_536);
    const push = (): void => {
      while (sent < 100e6 && client.socket.write(chunk)) sent += chunk.length;
      sent += chunk.length;
    };
    client.socket.on("drain", push);
    push();
    const before = await settled(() => sent);
    expect(before).toBeLessThan(50e6);
    client.socket.off("drain", push);
    reading.resolve();
    await until(() => arrived === before + "early".length, "all of it");
  });
});
