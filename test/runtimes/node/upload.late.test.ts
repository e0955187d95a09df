/**
 * Request bodies that other code listens to, or reads, between the call of the proxy and the beginning of the upload.
 */
import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { toNodeHandler } from "srvx/node";
import { describe, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions, type NodeProxy } from "../../../runtimes/node.ts";
import { IncomingBody } from "../../../runtimes/node/incomingbody.ts";
import { useApps } from "../../helpers/apps.ts";
import { pause, until } from "../../helpers/wait.ts";
import { chunk, lastChunk, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const HALF = "x".repeat(3000);

type Disturb = (req: IncomingMessage) => void;

/** Code that only listens. The upstream must still get every byte. */
const listening: Record<string, Disturb> = {
  "listens immediately": (req) => void req.on("data", () => {}),
  "listens, and pauses": (req) => void req.on("data", () => {}).pause(),
  "listens in the next tick": (req) => process.nextTick(() => req.on("data", () => {})),
  "listens in the check phase": (req) => void setImmediate(() => req.on("data", () => {})),
  "listens after 5 ms": (req) => void setTimeout(() => req.on("data", () => {}), 5),
};

/** Code that reads bytes of the request. The rest must never be sent as if it were complete. */
const taking: Record<string, Disturb> = {
  "resumes in the next tick": (req) => process.nextTick(() => req.resume()),
  "resumes after 5 ms": (req) => void setTimeout(() => req.resume(), 5),
  "reads after 5 ms": (req) => void setTimeout(() => void req.read(), 5),
  "pipes after 5 ms": (req) => void setTimeout(() => req.pipe(new PassThrough().resume()), 5),
};

/** Options that delay the beginning of the upload. */
const delays: Record<string, () => Partial<CreateProxyOptions>> = {
  "without a delay": () => ({}),
  "after an async target": () => ({ target: async () => (await pause(30), upstream.url) }),
  "after onRequest": () => ({ onRequest: () => pause(30) }),
};

/** For each server, a function that starts it. The server also passes a request for /disturbed to `disturb`. */
const servers: Record<string, (proxy: NodeProxy, disturb: Disturb) => Promise<number>> = {
  "node:http": (proxy, disturb) =>
    apps.serve("node", (req, res) => {
      if (req.url === "/disturbed") disturb(req);
      proxy.nodeHandler(req, res);
    }),
  srvx: (proxy, disturb) => {
    const handler = toNodeHandler((web) => proxy.fetch(web));
    return apps.serve("node", (req, res) => {
      if (req.url === "/disturbed") disturb(req);
      void handler(req as never, res as never);
    });
  },
  hono: (proxy, disturb) =>
    apps.serve("hono", {
      fetch(web) {
        const [req] = Object.getOwnPropertySymbols(web)
          .filter(({ description }) => description === "incomingKey")
          .map((symbol) => (web as unknown as Record<symbol, IncomingMessage>)[symbol]);
        if (web.url.endsWith("/disturbed")) disturb(req as IncomingMessage);
        return proxy.fetch(web);
      },
    }),
};

/** Sends 6000 bytes, with a pause in the middle if `split` is true. Returns the status, and whether all bytes arrived. */
async function send(
  port: number,
  framing: string,
  split: boolean,
): Promise<{ status: number; isWhole: boolean }> {
  const client = await apps.connect(port);
  const isChunked = framing === "chunked";
  const head = request("POST", "/disturbed", [
    isChunked ? ["Transfer-Encoding", "chunked"] : ["Content-Length", "6000"],
  ]);
  const first = isChunked ? chunk(HALF) : HALF;
  const rest = isChunked ? Buffer.concat([chunk(HALF), lastChunk]) : Buffer.from(HALF);
  client.send(head, first);
  if (split) await pause(50);
  client.send(rest);
  const { status } = await client.read();
  const complete = upstream.calls.filter(
    ({ method, state }) => method === "POST" && state === "complete",
  );
  expect(complete.map(({ length }) => length)).toEqual(complete.map(() => 6000));
  return { status, isWhole: complete.length > 0 };
}

describe.each(Object.keys(servers))("a server of %s", (server) => {
  const cases = Object.keys(delays).flatMap((delay) =>
    ["sized", "chunked"].flatMap((framing) =>
      [false, true].map((split) => ({ delay, framing, split })),
    ),
  );

  describe.each(cases)("an upload that begins $delay, $framing, split: $split", (each) => {
    const listen = async (disturb: Disturb): Promise<number> => {
      const proxy = createProxy({ target: upstream.url, ...delays[each.delay]?.() });
      return (servers[server] as (typeof servers)[string])(proxy, disturb);
    };

    test.each(Object.keys(listening))("no byte is lost although other code %s", async (name) => {
      const port = await listen(listening[name] as Disturb);
      const sent = await send(port, each.framing, each.split);
      expect(sent).toEqual({ status: 200, isWhole: true });
    });

    test.each(Object.keys(taking))(
      "the upload is refused or complete if other code %s",
      async (name) => {
        const port = await listen(taking[name] as Disturb);
        const { status, isWhole } = await send(port, each.framing, each.split);
        // The upload may also be complete, if the other code read before any byte had arrived.
        expect(isWhole ? status : "refused").toBe(isWhole ? 200 : "refused");
        if (!isWhole) expect(status).toBeGreaterThanOrEqual(400);
      },
    );
  });
});

test("an upload that waits for a connection arrives completely although other code listens to the request", async () => {
  const proxy = createProxy({ target: upstream.url, pool: { maxSockets: 1 } });
  const port = await apps.serve("node", (req, res) => {
    proxy.nodeHandler(req, res);
    if (req.url === "/disturbed") setTimeout(() => req.on("data", () => {}), 5);
  });
  let free: (() => void) | undefined;
  upstream.script = async (call) => {
    if (call.target === "/first") await new Promise<void>((resolve) => (free = resolve));
    await call.done;
    call.reply(200, [], "ok");
  };
  const first = apps.ask(port, request("GET", "/first"));
  await until(() => free !== undefined, "the first request");
  for (const framing of ["sized", "chunked"]) {
    const sent = send(port, framing, true);
    await pause(80);
    free?.();
    expect(await sent).toEqual({ status: 200, isWhole: true });
    upstream.calls.length = 0;
  }
  await first;
});

test("on srvx, a proxy rejects with a TypeError if middleware has already read a part of the body", async () => {
  const proxy = createProxy({ target: upstream.url });
  const thrown: unknown[] = [];
  const handler = toNodeHandler((web) =>
    proxy.fetch(web).catch((error: unknown) => {
      thrown.push(error);
      return new Response("misuse", { status: 500 });
    }),
  );
  const port = await apps.serve("node", (req, res) => {
    req.on("data", () => {});
    setTimeout(() => void handler(req as never, res as never), 30);
  });
  const client = await apps.connect(port);
  client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk(HALF));
  await pause(60);
  client.send(chunk(HALF), lastChunk);
  expect(await client.read()).toMatchObject({ status: 500, text: "misuse" });
  expect(thrown).toEqual([expect.any(TypeError)]);
  expect(upstream.calls).toEqual([]);
});

test("after an early response, other listeners of the request get the rest of the body", async () => {
  upstream.script = (call) => {
    call.reply(413, [["Connection", "close"]], "");
    call.close();
  };
  const proxy = createProxy({ target: upstream.url });
  const seen = { bytes: 0, ended: false };
  const port = await apps.serve("node", (req, res) => {
    req.on("data", (data: Buffer) => (seen.bytes += data.length));
    req.on("end", () => (seen.ended = true));
    proxy.nodeHandler(req, res);
  });
  const client = await apps.connect(port);
  client.send(request("POST", "/", [["Content-Length", "50000"]]), "x".repeat(10_000));
  expect((await client.read()).status).toBe(413);
  client.send("x".repeat(40_000));
  await until(() => seen.ended, "the end of the request");
  expect(seen.bytes).toBe(50_000);
});

test("`whole()` returns all buffered bytes even if each `read()` returns only one chunk", () => {
  // `read()` of Node 26 returns one chunk at a time, as here. Earlier versions return all buffered bytes in one call.
  const chunks = [Buffer.from("one,"), Buffer.from("two,"), Buffer.from("three")];
  const message = Object.assign(new PassThrough(), {
    complete: true,
    read: () => chunks.shift() ?? null,
  });
  const body = new IncomingBody(message as unknown as IncomingMessage);
  expect(Buffer.from(body.whole() ?? []).toString()).toBe("one,two,three");
});
