/** The connection pool on Bun and Deno: limits, idle connections, closing. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import type { Client } from "../../helpers/client.ts";
import { Served } from "./_served.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

async function requestsAt(count: number): Promise<void> {
  await until(() => upstream.calls.length === count, `${count} requests at the upstream`);
}

describe.each(["bun", "deno"] as const)("on %s", (runtime) => {
  test("maxSockets limits the connections, and queued requests are sent in order unless their client disconnects", async () => {
    rfc("9112-9.4-concurrency");
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { maxSockets: 1 });
    const first = await served.send("/first");
    await requestsAt(1);
    const gone = await served.send("/gone");
    await served.waiting(upstream.url, 1);
    const last = await served.send("/last");
    await served.waiting(upstream.url, 2);
    gone.leave("FIN");
    await served.waiting(upstream.url, 1);
    (await upstream.call(0)).reply(200, [], "one");
    (await upstream.call(1)).reply(200, [], "two");
    expect(await first.read()).toMatchObject({ status: 200, text: "one" });
    expect(await last.read()).toMatchObject({ status: 200, text: "two" });
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/last"]);
    expect(upstream.links).toHaveLength(1);
  });

  test.each([2, 0])("maxFreeSockets: %i idle connections are kept", async (maxFreeSockets) => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { maxFreeSockets });
    const clients = await Promise.all(["/1", "/2", "/3", "/4"].map((path) => served.send(path)));
    await requestsAt(4);
    for (const call of upstream.calls) call.reply(200);
    for (const client of clients) expect((await client.read()).status).toBe(200);
    await until(() => upstream.openLinks === maxFreeSockets, `${maxFreeSockets} connections left`);
    const { origins } = await served.stats();
    expect(origins[upstream.url]).toEqual({
      inUse: 0,
      free: maxFreeSockets,
      waiting: 0,
      tunnels: 0,
    });
  });

  test("idle connections are closed after freeSocketTimeout", async () => {
    await using served = new Served(runtime, upstream.url, { freeSocketTimeout: 200 });
    for (let count = 1; count <= 2; count++) {
      expect(await served.ask("/")).toBe("200 ");
      await until(() => upstream.openLinks === 0, "no connection left", 3500);
      expect(await served.stats()).toMatchObject({ created: count, closed: count, failed: 0 });
    }
    expect(upstream.links).toHaveLength(2);
  });

  test("the upstream's Keep-Alive hint shortens freeSocketTimeout and never lengthens it", async () => {
    upstream.script = (call) =>
      call.reply(200, [["Keep-Alive", `timeout=${call.target.slice(1)}`]]);
    await using served = new Served(runtime, upstream.url);
    expect(await served.ask("/1")).toBe("200 ");
    await until(() => upstream.openLinks === 0, "a connection too short-lived to keep closed");
    // `timedOut` would count a connection that was kept for a while.
    expect(await served.stats()).toMatchObject({ closed: 1, timedOut: 0 });
    expect(await served.ask("/3")).toBe("200 ");
    expect(await served.ask("/3")).toBe("200 ");
    expect(upstream.links).toHaveLength(2);
    await until(() => upstream.openLinks === 0, "a connection closed before its time", 3800);
    expect(await served.ask("/600")).toBe("200 ");
    await until(() => upstream.openLinks === 0, "a connection closed after our time");
  });

  test("the most recently used connection is reused first", async () => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url);
    const clients: Client[] = [];
    for (const path of ["/1", "/2", "/3"]) {
      // Send the requests in sequence, so that they arrive at the upstream in this order.
      clients.push(await served.send(path));
      await requestsAt(clients.length);
    }
    for (const [index, call] of upstream.calls.entries()) {
      call.reply(200);
      expect((await clients[index]?.read())?.status).toBe(200);
    }
    upstream.script = (call) => call.reply(200);
    const last = upstream.calls[2]?.link;
    for (let count = 0; count < 5; count++) await served.ask("/");
    expect(upstream.calls.slice(3).map(({ link }) => link)).toEqual(Array(5).fill(last));
  });

  test("a connection that the upstream closed while it was idle is not reused", async () => {
    upstream.script = (call) => {
      call.reply(200, [], "ok");
      call.close();
    };
    await using served = new Served(runtime, upstream.url);
    for (let count = 0; count < 20; count++) {
      expect(await served.ask("/")).toBe("200 ok");
      await until(() => upstream.openLinks === 0, "the connection closed");
    }
  });

  test("with `retry: false`, no request is sent twice when its connection breaks, whatever its method", async () => {
    // The upstream receives the second request on each connection completely, and breaks the connection before it
    // answers.
    upstream.script = async (call) => {
      await call.done;
      if (call.link.calls.indexOf(call) === 0) call.reply(200);
      else if (upstream.links.length % 2) call.close();
      else call.reset();
    };
    await using served = new Served(runtime, upstream.url, {}, { retry: false });
    const methods = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "QUERY"];
    const sent: string[] = [];
    for (let id = 0; id < 100; id++) {
      const method = methods[id % methods.length] ?? "";
      const body = /^(PUT|POST|QUERY)$/.test(method) ? "a body" : undefined;
      const client = await served.connect();
      client.send(request(method, `/${id}`, [], body));
      await client.read(method);
      sent.push(`${method} /${id}`);
    }
    expect(upstream.calls.map(({ method, target }) => `${method} ${target}`)).toEqual(sent);
  });

  test("a failed connection attempt is counted, and each waiting request makes its own attempt", async () => {
    await using served = new Served(
      runtime,
      "http://127.0.0.1:1",
      { maxSockets: 1 },
      { retry: false },
    );
    const answers = await Promise.all(["/1", "/2", "/3"].map((path) => served.ask(path)));
    expect(answers).toEqual(Array(3).fill("502 Bad Gateway: connection_refused\n"));
    expect(await served.stats()).toMatchObject({ created: 0, failed: 3, requests: 0 });
  });

  test("close() lets running and waiting requests finish, and refuses new ones", async () => {
    upstream.script = () => {};
    await using served = new Served(runtime, upstream.url, { maxSockets: 1 });
    const running = await served.send("/running");
    await requestsAt(1);
    const waiting = await served.send("/waiting");
    await served.waiting(upstream.url, 1);
    const closing = await served.send("/close");
    await served.closing();
    expect(await served.ask("/late")).toMatch(/^503 /);
    (await upstream.call(0)).reply(200, [], "one");
    (await upstream.call(1)).reply(200, [], "two");
    expect((await running.read()).text).toBe("one");
    expect((await waiting.read()).text).toBe("two");
    expect((await closing.read()).text).toBe("closed");
    await until(() => upstream.openLinks === 0, "no connection left");
  });

  test("bytes of a body beyond its Content-Length do not reach the upstream", async () => {
    upstream.script = async (call) => {
      await call.done;
      if (call.state === "complete") call.reply(200);
    };
    await using served = new Served(runtime, upstream.url);
    // First open a connection, because a request is sent immediately on an open one.
    expect(await served.ask("/")).toBe("200 ");
    expect(await served.ask("/lying")).toMatch(/^400 /);
    await until(() => upstream.openLinks === 0, "no connection left");
    for (const { calls, socket } of upstream.links) {
      const heads = calls.map(({ head }) => `${head}\r\n\r\n`).join("");
      expect(socket.bytesRead).toBeLessThanOrEqual(heads.length + 3);
    }
  });
});
